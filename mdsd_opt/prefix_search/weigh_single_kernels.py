r"""Weights of logits of up to 32 bits in float32 arithmetic: twice as fast as in float64.

Rounding is kept to that of the weight itself (relative error below 1e-7, unbiased): with
S = log2(e) / T and k the integer nearest to S l, the remainder r = S l - k comes out of one fused
multiplication and addition, and 2^r is 1 + r g(r). It is not the largest logit that is subtracted,
which would round, but its integer M from the integer k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.weigh_kernels import LARGEST_SHIFT, weigh

Singles = NDArray[np.float32]

#: Weights of single precision are this many times smaller than those of double precision.
SINGLE_UNIT = 2.0**29

#: Below this exponent the weight is exactly zero.
_LOWEST_EXPONENT = -149.75

_TO_INTEGER = np.float32(12582912.0)  # 1.5 * 2**23, see `exp2_kernels`
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
    """a * b + c in float32, rounded once."""
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
    lowest = np.float32((exact_shift + _LOWEST_EXPONENT) / scale)
    for i in range(row.size):
        logit = row[i] - base
        logit = lowest if logit < lowest else logit
        shifted = _fused(logit, factor, _TO_INTEGER)
        k = shifted - _TO_INTEGER
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
    """`weigh`, or its float32 twin, which needs no room for exponents, if the row is float32."""
    raise NotImplementedError("only called from compiled code")


@overload(weigh_block)
def _weigh_as_stored(row: Any, largest: Any, scale: Any, exponents: Any, weights: Any) -> Any:
    def double(row: Any, largest: Any, scale: Any, exponents: Any, weights: Any) -> Any:
        weigh(row, largest, scale, exponents, weights)

    def single(row: Any, largest: Any, scale: Any, exponents: Any, weights: Any) -> Any:
        weigh_single(row, largest, scale, weights)

    return single if row.dtype == types.float32 else double
