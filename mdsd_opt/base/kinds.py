"""What rows of numbers are: logits, logarithms of probabilities, or probabilities.

Probabilities taken for logits would be computed with in silence, and give another rate.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Opened
from mdsd_opt.errors import InvalidDistribution, InvalidInput

KINDS = ("logits", "logprobs", "probs")

#: Rows that are looked at to see what they are.
_ROWS_SEEN = 8

#: Tokens of each that are looked at before all are.
_TOKENS_SEEN = 64

#: By how much the sum of probabilities, stored in 16 bits, may be off.
_SUM_ERROR = 0.02


def as_logits(given: Opened, kind: str | None) -> Opened:
    """Rows as logits.

    Parameters
    ----------
    given : Opened, shape (..., V)
    kind : {None, "logits", "logprobs", "probs"}
        None: logits, unless the first rows look like probabilities.

    Raises
    ------
    InvalidInput
        There is no such kind; or they look like probabilities, and nobody said so.
    InvalidDistribution
        They are not what they are said to be.
    """
    if kind not in (None, *KINDS):
        raise InvalidInput(f'kind is {kind!r}: give "logits", "logprobs" or "probs"')
    if kind != "logits" and given.library != "dask" and given.shape and 0 not in given.shape:
        _check(given, kind)
    return _log(given) if kind == "probs" else given


def _check(given: Opened, kind: str | None) -> None:
    """Raise unless the rows may be what they are said to be."""
    rows = _first_rows(given)
    # Of a single token the sum says nothing.
    if kind is None and given.shape[-1] > 1 and _are_probabilities(rows):
        raise InvalidInput(
            f"the rows of {given.name} are not negative and sum to one, as probabilities do. "
            "Give the kind 'probs' if they are, or 'logits' if not"
        )
    if kind == "logprobs" and (rows.astype(np.float64) > _SUM_ERROR).any():
        raise InvalidDistribution(
            f"{given.name} has numbers above zero, which are no logarithms of probabilities"
        )
    if kind == "probs" and (given.array < 0).any():
        raise InvalidDistribution(f"{given.name} has negative numbers, which are no probabilities")
    if kind == "probs" and not _are_probabilities(rows):
        raise InvalidDistribution(f"{given.name} has rows that do not sum to one")


def _first_rows(given: Opened) -> NDArray[Any]:
    """Along the last axis but one; never all of them, as a reshape might copy."""
    array = given.array[(0,) * (len(given.shape) - 2)]
    if len(given.shape) > 1:
        array = array[:_ROWS_SEEN]
    return Opened(given.name, array, given.library).numpy()


def _are_probabilities(rows: NDArray[Any]) -> bool:
    if not (rows[..., :_TOKENS_SEEN].astype(np.float64) >= 0).all():  # nearly all logits
        return False
    rows = rows.astype(np.float64)
    return bool((rows >= 0).all() and (abs(rows.sum(-1) - 1.0) < _SUM_ERROR).all())


def _log(given: Opened) -> Opened:
    array: Any = given.array
    if given.library == "torch":
        array = (array.float() if array.element_size() < 4 else array).log()
    elif given.library == "numpy":
        array = _log_of_numpy(array)
    elif given.library == "dask":
        array = array.map_blocks(_log_of_numpy)
    else:
        array = sys.modules[{"jax": "jax.numpy"}.get(given.library, "cupy")].log(array)
    return Opened(given.name, array, given.library)


def _log_of_numpy(array: NDArray[Any]) -> NDArray[Any]:
    wide = array.astype(np.float32) if array.dtype.itemsize < 4 else array
    with np.errstate(divide="ignore"):
        logarithms: NDArray[Any] = np.log(wide)
    return logarithms
