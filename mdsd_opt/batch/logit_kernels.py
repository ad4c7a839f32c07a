r"""Rows of logits to unnormalised weights, block by block.

Everything is in base 2 and float64, whatever the logits are stored in. With T the temperature, the
exponent of a token is :math:`y = \ell \log_2(e) / T - M`, for an integer M that makes the largest
of the row zero up to half a unit, and its weight is :math:`2^{y + 52}`: the smallest weights stay
normal numbers, and a common factor cancels in every probability. Weights below 2^-1074 of the
largest are zero, as in a float64 softmax.

Rows arrive as float64, float32 or uint16; the latter holds the bits of bfloat16 or float16.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from mdsd_opt.distributions import SMALLEST_PROBABILITY
from mdsd_opt.kernels.exp2_kernels import LOWEST_EXPONENT, scaled_exp2
from mdsd_opt.kernels.sum_kernels import LANES, lane_sum
from mdsd_opt.numba_cache import kernel

Row = NDArray[Any]
Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Tokens handled at once: five float64 buffers of this length stay in the first-level cache.
BLOCK = 1024

#: Up to here an exponent's integer fits into the lowest bits of a float32.
_LARGEST_SHIFT = 2.0**20


class Side(NamedTuple):
    """One row of logits, ready to be weighed.

    With `scale` S = log2(e) / T and `largest` m, the exponent of a logit l is y = S l - M for an
    integer M next to S m: y = S (l - m) + `offset` = S (l - `base`) - `shift`. The first form is
    accurate in floating point, the second has an integer that need not be rounded.
    """

    row: Row
    is_half: bool
    largest: float
    scale: float
    offset: float
    base: float
    shift: float


def stored_number(stored: Any, is_half: Any) -> Any:
    """Value of one stored logit."""
    raise NotImplementedError("only called from compiled code")


@overload(stored_number, inline="never")
def _number_of(stored: Any, is_half: Any) -> Any:
    if stored == types.uint16:
        return _number_of_bits
    return _number_of_float


def _number_of_float(stored: Any, is_half: Any) -> Any:
    return stored


def _number_of_bits(stored: Any, is_half: Any) -> Any:
    bits = np.uint32(stored)
    if not is_half:  # bfloat16 is the upper half of a float32
        return np.uint32(bits << np.uint32(16)).view(np.float32)
    # float16: put exponent and fraction where float32 has them, and mend the exponent's bias (15
    # against 127) by a multiplication, which is exact and takes subnormal numbers along.
    shifted = np.uint32((bits & np.uint32(0x7FFF)) << np.uint32(13)).view(np.float32)
    value = shifted * np.float32(2.0**112)
    if value >= np.float32(65536.0):  # exponent 31: infinity, or NaN where the fraction is not zero
        value = np.float32(np.inf) if value == np.float32(65536.0) else np.float32(np.nan)
    return -value if bits >= np.uint32(0x8000) else value


@kernel
def row_maximum(row: Row, is_half: bool) -> float:
    """Return the largest logit; any number of the row, or NaN, if the row has a NaN."""
    size = row.size
    lanes = np.full(LANES, stored_number(row[0], is_half))
    whole = size - size % LANES
    for start in range(0, whole, LANES):
        block = row[start : start + LANES]
        for lane in range(LANES):
            value = stored_number(block[lane], is_half)
            lanes[lane] = value if value > lanes[lane] else lanes[lane]
    for i in range(whole, size):
        value = stored_number(row[i], is_half)
        lanes[0] = value if value > lanes[0] else lanes[0]
    largest = lanes[0]
    for lane in range(LANES):
        largest = lanes[lane] if lanes[lane] > largest else largest
    return np.float64(largest)


@kernel
def row_side(row: Row, is_half: bool, scale: float) -> Side:
    """Find the row's largest logit."""
    largest = row_maximum(row, is_half)
    if abs(largest * scale) < _LARGEST_SHIFT:
        shift = np.rint(largest * scale)
        return Side(row, is_half, largest, scale, largest * scale - shift, 0.0, shift)
    return Side(row, is_half, largest, scale, 0.0, largest, 0.0)


@kernel(contract=True)
def exponent_of(logit: float, largest: float, scale: float, offset: float) -> float:
    """Exponent of a logit, see `Side`. A NaN stays a NaN."""
    y = (logit - largest) * scale + offset
    return LOWEST_EXPONENT if y < LOWEST_EXPONENT else y


@kernel
def weigh_token(side: Side, token: int) -> tuple[float, float]:
    """Exponent and weight of one token."""
    logit = np.float64(stored_number(side.row[token], side.is_half))
    y = exponent_of(logit, side.largest, side.scale, side.offset)
    return y, scaled_exp2(y)


@kernel
def weigh_block(side: Side, start: int, size: int, exponents: Vector, weights: Vector) -> None:
    """Write exponents and weights of the tokens start .. start + size to the given buffers.

    A NaN stays a NaN in both.
    """
    _, is_half, largest, scale, offset, _, _ = side
    row = side.row[start : start + size]  # indexed from 0, so that the loop vectorises
    for i in range(row.size):
        logit = np.float64(stored_number(row[i], is_half))
        y = exponent_of(logit, largest, scale, offset)
        exponents[i] = y
        weights[i] = scaled_exp2(y)


@kernel
def weigh_row(side: Side, exponents: Vector, weights: Vector) -> float:
    """Weigh a whole row; return the sum of the weights, which is not finite for a bad row."""
    for start in range(0, weights.size, BLOCK):
        size = min(BLOCK, weights.size - start)
        weigh_block(side, start, size, exponents[start:], weights[start:])
    return lane_sum(weights)


@kernel
def drop_impossible(weights: Vector, total: float) -> int:
    """Set weights of probability below 1e-300 to zero; return how many tokens are left."""
    smallest = total * SMALLEST_PROBABILITY
    left = 0
    for i in range(weights.size):
        possible = weights[i] >= smallest
        weights[i] = weights[i] if possible else 0.0
        left += possible
    return left


@kernel
def likeliest_tokens(exponents: Vector, weights: Vector, most: int) -> Integers:
    """Ids of the largest exponents, in descending order, ties towards the lowest id.

    Weights decide only what is possible; exponents keep the order of logits that round to the same
    weight.
    """
    tokens = np.empty(min(most, exponents.size), np.int64)
    count = 0
    for start in range(0, exponents.size, BLOCK):
        block = exponents[start : start + BLOCK]
        if count == tokens.size and row_maximum(block, False) <= exponents[tokens[-1]]:
            continue
        for i in range(start, start + block.size):
            if weights[i] == 0.0:
                continue
            if count == tokens.size:
                if exponents[i] <= exponents[tokens[-1]]:
                    continue
                count -= 1
            place = count
            while place > 0 and exponents[tokens[place - 1]] < exponents[i]:
                tokens[place] = tokens[place - 1]
                place -= 1
            tokens[place] = i
            count += 1
    return tokens[:count]
