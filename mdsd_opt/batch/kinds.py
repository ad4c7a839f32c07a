"""What rows of numbers are: logits, logarithms of probabilities, or probabilities.

Probabilities taken for logits would be computed with in silence, and give another rate.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.arrays import Opened
from mdsd_opt.errors import InvalidDistribution, InvalidInput

KINDS = ("logits", "logprobs", "probs")

#: Rows that are looked at to see what they are.
_ROWS_SEEN = 8

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
    if kind == "logits" or given.library == "dask" or len(given.shape) == 0:
        return given if kind != "probs" else _log(given)
    rows = _first_rows(given)
    if kind is None and _are_probabilities(rows):
        raise InvalidInput(
            f"the rows of {given.name} are not negative and sum to one, as probabilities do. "
            "Give the kind 'probs' if they are, or 'logits' if not"
        )
    if kind == "logprobs" and (rows > _SUM_ERROR).any():
        raise InvalidDistribution(
            f"{given.name} has numbers above zero, which are no logarithms of probabilities"
        )
    if kind != "probs":
        return given
    if (given.array < 0).any():
        raise InvalidDistribution(f"{given.name} has negative numbers, which are no probabilities")
    if not _are_probabilities(rows):
        raise InvalidDistribution(f"{given.name} has rows that do not sum to one")
    return _log(given)


def _first_rows(given: Opened) -> NDArray[np.float64]:
    size = given.shape[-1]
    array = given.array.reshape(-1, size)[:_ROWS_SEEN] if size else given.array[:0]
    return Opened(given.name, array, given.library).numpy().astype(np.float64)


def _are_probabilities(rows: NDArray[np.float64]) -> bool:
    """Whether all rows are, of more than one token: the sum says nothing of a single one."""
    if rows.size == 0 or rows.shape[-1] == 1:
        return False
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
