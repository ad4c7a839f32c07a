"""Two sums at once, side by side in memory: one addition of vectors in place of two of numbers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_TWO = ir.VectorType(ir.DoubleType(), 2)
_INDEX = ir.IntType(64)
_SIZE_OF_A_NUMBER = 8


@intrinsic
def add_pair(typing_context: Any, sums: Any, row: Any, first: Any, second: Any) -> Any:
    """Add to sums[row, 0] and sums[row, 1]; float64, of shape (n, 2), contiguous, row >= 0."""
    if sums != types.Array(types.float64, 2, "C"):
        return None
    signature = types.void(sums, types.intp, types.float64, types.float64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums, row, *values = arguments
        data = context.make_array(signature.args[0])(context, builder, sums).data
        place = builder.gep(data, [builder.shl(row, _INDEX(1))])
        place = builder.bitcast(place, _TWO.as_pointer())
        added = _TWO(ir.Undefined)
        for lane, value in enumerate(values):
            added = builder.insert_element(added, value, ir.IntType(32)(lane))
        total = builder.fadd(builder.load(place, align=_SIZE_OF_A_NUMBER), added)
        builder.store(total, place, align=_SIZE_OF_A_NUMBER)
        return context.get_dummy_value()

    return signature, generate
