r"""Rows of logits to unnormalised weights.

Everything is in base 2 and float64, whatever the logits are stored in. With S = log2(e) / T, T the
temperature, the exponent of a logit l is :math:`y = S l - M`, for an integer M that makes the
exponent of the largest logit zero up to half a unit, and its weight is :math:`2^{y + 52}`: the
smallest weights stay normal numbers, and a common factor cancels in every probability. Weights
below 2^-1074 of the largest are zero, as in a float64 softmax.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.distributions import SMALLEST_PROBABILITY
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.exp2_kernels import LOWEST_EXPONENT, scaled_exp2
from mdsd_opt.prefix_search.sum_kernels import BLOCK, range_sum

Row = NDArray[Any]
Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Up to here an exponent's integer fits into the lowest bits of a float32.
LARGEST_SHIFT = 2.0**20

_LANES = 256


@kernel(inner=True)
def largest_logit(row: Row, lanes: Vector) -> float:
    """Return the largest logit; any number of the row, or NaN, if the row has a NaN.

    `lanes` has room for as many numbers as the row or more: independent maxima, so that one
    comparison need not wait for another.
    """
    width = min(_LANES, row.size)
    for lane in range(width):
        lanes[lane] = row[lane]
    for start in range(width, row.size, width):
        block = row[start : start + width]
        for lane in range(block.size):
            value = np.float64(block[lane])
            lanes[lane] = value if value > lanes[lane] else lanes[lane]
    largest = lanes[0]
    for lane in range(width):
        largest = lanes[lane] if lanes[lane] > largest else largest
    return largest


@kernel(inner=True)
def offset_of(largest: float, scale: float) -> float:
    """Exponent S m - M of the largest logit m; that of another logit l is S (l - m) more."""
    if abs(largest * scale) < LARGEST_SHIFT:
        return largest * scale - np.rint(largest * scale)
    return 0.0


@kernel(contract=True, inner=True)
def exponent_of(logit: float, largest: float, scale: float, offset: float) -> float:
    """Exponent of a logit. A NaN stays a NaN."""
    y = (logit - largest) * scale + offset
    return LOWEST_EXPONENT if y < LOWEST_EXPONENT else y


@kernel(inner=True)
def weigh(row: Row, largest: float, scale: float, exponents: Vector, weights: Vector) -> None:
    """Write the exponents and weights of a row or a part of one. A NaN stays a NaN in both."""
    offset = offset_of(largest, scale)
    for i in range(row.size):
        y = exponent_of(np.float64(row[i]), largest, scale, offset)
        exponents[i] = y
        weights[i] = scaled_exp2(y)


@kernel(inner=True)
def weigh_row(row: Row, scale: float, exponents: Vector, weights: Vector) -> float:
    """Weigh a whole row; return the sum of the weights, which is not finite for a bad row."""
    weigh(row, largest_logit(row, exponents), scale, exponents, weights)
    return range_sum(weights, 0, weights.size)


@kernel(inner=True)
def drop_impossible(weights: Vector, total: float) -> int:
    """Set weights of probability below 1e-300 to zero; return how many tokens are left."""
    smallest = total * SMALLEST_PROBABILITY
    left = 0
    for i in range(weights.size):
        possible = weights[i] >= smallest
        weights[i] = weights[i] if possible else 0.0
        left += possible
    return left


@kernel(inner=True)
def likeliest_tokens(exponents: Vector, weights: Vector, most: int, tokens: Integers) -> int:
    """Write the ids of the largest exponents, descending, ties to the lowest id; return how many.

    Weights decide only what is possible; exponents keep the order of logits that round to the same
    weight.
    """
    count = 0
    least = -np.inf  # a token must have more than this
    for start in range(0, exponents.size, BLOCK):
        block = exponents[start : start + BLOCK]
        above = 0
        for i in range(block.size):
            above += block[i] > least
        if above == 0:
            continue
        for i in range(start, start + block.size):
            exponent = exponents[i]
            if not exponent > least or weights[i] == 0.0:
                continue
            place = min(count, most - 1)
            count = place + 1
            while place > 0 and exponents[tokens[place - 1]] < exponent:
                tokens[place] = tokens[place - 1]
                place -= 1
            tokens[place] = i
            if count == most:
                least = exponents[tokens[most - 1]]
    return count


@kernel
def decode_halves(bits: NDArray[np.uint16], numbers: NDArray[np.float32]) -> None:
    """Float32 of float16 given by its bits, several times as fast as NumPy."""
    for i in range(bits.size):
        stored = np.uint32(bits[i])
        # Put exponent and fraction where float32 has them, and mend the exponent's bias (15 against
        # 127) by a multiplication, which is exact and takes subnormal numbers along.
        shifted = np.uint32((stored & np.uint32(0x7FFF)) << np.uint32(13)).view(np.float32)
        value = shifted * np.float32(2.0**112)
        if value >= np.float32(65536.0):  # infinity, or NaN where the fraction is not zero
            value = np.float32(np.inf) if value == np.float32(65536.0) else np.float32(np.nan)
        numbers[i] = -value if stored >= np.uint32(0x8000) else value
