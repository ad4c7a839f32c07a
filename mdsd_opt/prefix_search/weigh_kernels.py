r"""Conversion of rows of logits to unnormalised weights.

Everything is in base 2 and float64, whatever the logits are stored in. With S = log2(e) / T, T the
temperature, the exponent of a logit l is :math:`y = S l - M`, for an integer M that makes the
exponent of the largest logit zero up to half a unit, and its weight is :math:`2^{y + 52}`: the
smallest weights stay normal numbers, and a common factor cancels in every probability. Weights
below 2^-1074 of the largest are zero, as in a float64 softmax. Numba has no vector version of exp:
powers of two are computed here.

Logits of up to 32 bits can be weighed in float32 arithmetic, twice as fast. Rounding is kept to
that of the weight itself (relative error below 1e-7, unbiased): with k the integer nearest to S l,
the remainder r = S l - k comes out of one fused multiplication and addition, and 2^r is 1 + r g(r).
It is not the largest logit that is subtracted, which would round, but its integer M from k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Row, Vector
from mdsd_opt.base.distributions import SMALLEST_PROBABILITY
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.sum_kernels import BLOCK, range_sum

Singles = NDArray[np.float32]

#: Least exponent; the weight of a clamped exponent is exactly zero.
LOWEST_EXPONENT = -1075.0

#: Number whose sum with a small float64 has the nearest integer in the lowest bits.
_TO_INTEGER = 6755399441055744.0  # 1.5 * 2**52

# 2**r on [-1/2, 1/2], Chebyshev interpolation of degree 10: relative error 3e-16.
_C0 = 1.0
_C1 = 0.69314718055995
_C2 = 0.24022650695910097
_C3 = 0.05550410866444772
_C4 = 0.009618129107606888
_C5 = 0.0013333558230164974
_C6 = 0.0001540353044173605
_C7 = 1.5252657260200837e-05
_C8 = 1.321544258792169e-06
_C9 = 1.0208690299958306e-07
_C10 = 7.072585949269223e-09


@kernel(contract=True, inner=True)
def scaled_exp2(y: float) -> float:
    """Power 2**(y + 52) for y in [-1075, 0], and zero at -1075 (and up to half a unit above it)."""
    shifted = y + _TO_INTEGER
    r = y - (shifted - _TO_INTEGER)
    f = _C10
    f = f * r + _C9
    f = f * r + _C8
    f = f * r + _C7
    f = f * r + _C6
    f = f * r + _C5
    f = f * r + _C4
    f = f * r + _C3
    f = f * r + _C2
    f = f * r + _C1
    f = f * r + _C0
    # The integer's bits, with the bias 1023 + 52, become the exponent of the power of two.
    return f * np.int64((np.float64(shifted).view(np.int64) + 1075) << 52).view(np.float64)


#: Largest shift at which an exponent's integer fits into the lowest bits of a float32.
LARGEST_SHIFT = 2.0**20

_LANES = 256


@kernel(inner=True)
def largest_logit(row: Row, lanes: Row) -> float:
    """Return the largest logit; any number of the row, or NaN, if the row has a NaN.

    `lanes` has room for as many numbers as the row, or 256: independent maxima, so that one
    comparison need not wait for another. Of the row's own precision they take half the time.
    """
    width = min(_LANES, row.size)
    for lane in range(width):
        lanes[lane] = row[lane]
    for start in range(width, row.size, width):
        block = row[start : start + width]
        for lane in range(block.size):
            value = block[lane]
            lanes[lane] = value if value > lanes[lane] else lanes[lane]
    largest = lanes[0]
    for lane in range(width):
        largest = lanes[lane] if lanes[lane] > largest else largest
    return np.float64(largest)


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


#: Ratio of the weights of double precision to those of single precision.
SINGLE_UNIT = 2.0**29

#: Exponent below which the weight is exactly zero.
_LOWEST_SINGLE_EXPONENT = -149.75

_SINGLE_TO_INTEGER = np.float32(12582912.0)  # 1.5 * 2**23, see `_TO_INTEGER`
_ONE = np.float32(1.0)

# (2**r - 1) / r on [-1/2, 1/2], Chebyshev interpolation of degree 5: 2**r to 5e-9.
_G0 = np.float32(0.6931471880262288)
_G1 = np.float32(0.24022650760568126)
_G2 = np.float32(0.05550357114219078)
_G3 = np.float32(0.009618082557277852)
_G4 = np.float32(0.0013390863364671234)
_G5 = np.float32(0.0001545316294512069)


@intrinsic
def _fused(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Value a * b + c in float32, rounded once."""
    signature = types.float32(types.float32, types.float32, types.float32)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return signature, generate


@kernel(inner=True)
def weigh_single(row: Singles, largest: float, scale: float, weights: Singles) -> None:
    """Write the weights of a row or a part of one. A NaN stays a NaN."""
    is_exact = abs(largest * scale) < LARGEST_SHIFT
    exact_shift = np.rint(largest * scale) if is_exact else 0.0
    base = np.float32(0.0 if is_exact else largest)
    factor = np.float32(scale)
    factor_rest = np.float32(scale - np.float64(factor))
    bias = np.int32(150) - np.int32(exact_shift)
    lowest = np.float32((exact_shift + _LOWEST_SINGLE_EXPONENT) / scale)
    for i in range(row.size):
        logit = row[i] - base
        logit = lowest if logit < lowest else logit
        shifted = _fused(logit, factor, _SINGLE_TO_INTEGER)
        k = shifted - _SINGLE_TO_INTEGER
        r = _fused(logit, factor_rest, _fused(logit, factor, -k))
        g = _fused(_G5, r, _G4)
        g = _fused(g, r, _G3)
        g = _fused(g, r, _G2)
        g = _fused(g, r, _G1)
        g = _fused(g, r, _G0)
        # The integer's lowest bits, with the bias 127 + 23, become the exponent of the power.
        power = np.int32((np.float32(shifted).view(np.int32) + bias) << np.int32(23))
        weights[i] = _fused(g, r, _ONE) * power.view(np.float32)


def weigh_block(row: Any, largest: float, scale: float, exponents: Any, weights: Any) -> None:
    """Run `weigh`, or its float32 twin, which needs no room for exponents, on a float32 row."""
    raise NotImplementedError("only called from compiled code")


@overload(weigh_block)
def _weigh_as_stored(row: Any, largest: Any, scale: Any, exponents: Any, weights: Any) -> Any:
    def double(row: Any, largest: Any, scale: Any, exponents: Any, weights: Any) -> Any:
        weigh(row, largest, scale, exponents, weights)

    def single(row: Any, largest: Any, scale: Any, exponents: Any, weights: Any) -> Any:
        weigh_single(row, largest, scale, weights)

    return single if row.dtype == types.float32 else double


@kernel(inner=True)
def drop_impossible(weights: Vector, total: float) -> int:
    """Set weights of probability below 1e-300 to zero; return how many tokens are left."""
    smallest = total * SMALLEST_PROBABILITY
    support = 0
    for i in range(weights.size):
        possible = weights[i] >= smallest
        weights[i] = weights[i] if possible else 0.0
        support += possible
    return support


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
    """Convert float16 given by its bits to float32, several times as fast as NumPy."""
    for i in range(bits.size):
        stored = np.uint32(bits[i])
        # Put exponent and fraction where float32 has them, and mend the exponent's bias (15 against
        # 127) by a multiplication, which is exact and takes subnormal numbers along.
        shifted = np.uint32((stored & np.uint32(0x7FFF)) << np.uint32(13)).view(np.float32)
        value = shifted * np.float32(2.0**112)
        if value >= np.float32(65536.0):  # infinity, or NaN where the fraction is not zero
            value = np.float32(np.inf) if value == np.float32(65536.0) else np.float32(np.nan)
        numbers[i] = -value if stored >= np.uint32(0x8000) else value
