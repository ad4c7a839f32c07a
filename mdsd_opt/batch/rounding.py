"""By how much the logarithms of a list may be off, read off the numbers themselves.

A list was written in some format: bfloat16, float16, float32, float64, or so many decimal places or
digits. The coarsest in which all of its numbers can be written is taken, so that the true format
is never coarser than that. Proofs, and what is assumed of servers: docs/theory/unknown-tails.md.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

#: Formats and their significant bits, the coarsest first.
_FORMATS: tuple[tuple[Any, int], ...] = (
    (ml_dtypes.bfloat16, 8), (np.float16, 11), (np.float32, 24),
)  # fmt: skip

#: Numbers that fit none of these.
_DOUBLE_BITS = 53

#: Numbers of fewer bits were computed in float32: log_softmax sums 16-bit logits in it, too.
_SINGLE_BITS = 24

#: In units of the last bit of one: what exp and log may be off, and the rounding of their sum.
_FUNCTIONS, _LOG_OF_SUM = 4.0, 32.0

#: A sum over the vocabulary is made of so many running sums at least: lanes of a processor.
_RUNNING_SUMS = 8

#: Tokens of a vocabulary of unknown size.
_VOCAB_SIZE = 1 << 18


def rounding(logprobs: Vector, vocab_size: int | None) -> tuple[Vector, float]:
    """How far each logarithm may be off, and how far all of them together.

    Parameters
    ----------
    logprobs : ndarray, shape (n,)
    vocab_size : int, optional

    Returns
    -------
    each : ndarray, shape (n,)
        Rounding of the number itself, and of what its logarithm was computed from.
    together : float
        Error of the logarithm of the sum over the vocabulary, by which all are shifted alike.
    """
    telling = logprobs[np.isfinite(logprobs) & (logprobs != 0)]  # the others fit all formats
    printed = _of_decimals(logprobs, telling)
    bits = next((bits for dtype, bits in _FORMATS if _fits(logprobs, printed, dtype)), _DOUBLE_BITS)
    if not telling.size:  # certainties alone: as in float32
        bits = _SINGLE_BITS
    computed = _SINGLE_BITS if bits <= _SINGLE_BITS else _DOUBLE_BITS
    unit = 2.0**-computed
    each = printed + _last_bit(logprobs, bits) / 2 + _last_bit(logprobs, computed)
    sums = (_VOCAB_SIZE if vocab_size is None else vocab_size) / _RUNNING_SUMS
    return each + _FUNCTIONS * unit, (sums + _LOG_OF_SUM) * unit


def _of_decimals(logprobs: Vector, telling: Vector) -> Vector:
    """Half a unit of the last place or digit of numbers that were rounded when printed."""
    if not telling.size:
        return np.zeros_like(logprobs)
    written = [Decimal(repr(x)).as_tuple() for x in telling.tolist()]
    places = -min(int(number.exponent) for number in written)
    digits = max(len(number.digits) for number in written)
    with np.errstate(divide="ignore"):
        first = np.floor(np.log10(np.abs(logprobs)))
    return np.where(
        np.isfinite(logprobs), 0.5 * np.maximum(10.0**-places, 10.0 ** (first - digits + 1)), 0.0
    )


def _fits(logprobs: Vector, printed: Vector, dtype: Any) -> bool:
    """Whether all are numbers of a format, as such, rounded when printed, or as short as can be."""
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = logprobs.astype(dtype)
        far = np.abs(numbers.astype(np.float64) - logprobs) > printed  # false for infinities
    shortest = (
        float(str(number)) == x for number, x in zip(numbers[far], logprobs[far], strict=True)
    )
    return all(shortest)


def _last_bit(x: Vector, bits: int) -> Vector:
    """Distance of neighbouring numbers of so many bits, zero at zero and infinity."""
    exponent = np.frexp(x)[1]
    return np.where(np.isfinite(x) & (x != 0), np.ldexp(1.0, exponent - bits), 0.0)
