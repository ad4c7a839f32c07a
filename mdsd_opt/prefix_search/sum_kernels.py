"""Sums of long rows, each with a small error, and least concave majorants by pooling; O(n)."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mdsd_opt.base.arrays import Integers, Vector
from mdsd_opt.base.numba_cache import kernel

#: Number of tokens handled at once: a few float64 buffers of it stay in the first-level cache.
BLOCK = 1024


@kernel(reassociate=True, inner=True)
def block_sum(values: Vector, start: int, stop: int) -> float:
    """Sum of values[start:stop], a block or less, in several lanes."""
    here = values[start:stop]  # indexed from 0, so that the loop vectorises
    total = 0.0
    for i in range(here.size):
        total += here[i]
    return total


@kernel(inner=True)
def range_sum(values: Vector, start: int, stop: int) -> float:
    """Sum of values[start:stop] by blocks: runs of equal numbers gather little rounding error."""
    total = 0.0
    while start < stop:
        end = min(start + BLOCK, stop)
        total += block_sum(values, start, end)
        start = end
    return total


@kernel(inner=True)
def sum_of_others(values: Vector, places: Integers, count: int) -> float:
    """Sum of all values but those at the first `count` places, without a difference.

    These places are put in ascending order.
    """
    for i in range(1, count):
        place = places[i]
        j = i
        while j > 0 and places[j - 1] > place:
            places[j] = places[j - 1]
            j -= 1
        places[j] = place
    total = 0.0
    start = 0
    for i in range(count):
        total += range_sum(values, start, places[i])
        start = max(start, places[i] + 1)
    return total + range_sum(values, start, values.size)


@kernel(inner=True)
def add_carrying(total: float, value: float, lost: float) -> tuple[float, float]:
    """Sum of two numbers, and its rounding error, to be given to the next call.

    In a long run of equal numbers each addition rounds the same way.
    """
    value += lost
    result = total + value
    return result, min(total, value) - (result - max(total, value))


@kernel
def suffix_sums(values: Vector, after: float) -> Vector:
    """Sums of `after` and the values from each place to the end, shape (n + 1,)."""
    sums = np.empty(values.size + 1)
    sums[values.size] = after
    lost = 0.0
    for j in range(values.size - 1, -1, -1):
        sums[j], lost = add_carrying(sums[j + 1], values[j], lost)
    return sums


@kernel(reassociate=True, inner=True)
def _split(p: Vector, q: Vector, level: float, above: bool) -> tuple[float, float]:
    p_mass = 0.0
    q_mass = 0.0
    for i in range(p.size):
        stays = (p[i] >= level * q[i]) == above
        p_mass += p[i] if stays else 0.0
        q_mass += 0.0 if stays else q[i]
    return p_mass, q_mass


@kernel
def split_at(p: Vector, q: Vector, level: float, above: bool) -> tuple[float, float]:
    """Sum of p where p >= level q is `above`, and sum of q elsewhere; to the last place or two."""
    p_mass = 0.0
    q_mass = 0.0
    p_lost = 0.0
    q_lost = 0.0
    for start in range(0, p.size, BLOCK):
        here = _split(p[start : start + BLOCK], q[start : start + BLOCK], level, above)
        p_mass, p_lost = add_carrying(p_mass, here[0], p_lost)
        q_mass, q_lost = add_carrying(q_mass, here[1], q_lost)
    return p_mass + p_lost, q_mass + q_lost


def accurate_sum(values: Vector) -> float:
    """Sum of non-negative numbers to the last place or two, however many there are."""
    return float(split_at(values, values, 0.0, True)[0])


_TWO = ir.VectorType(ir.DoubleType(), 2)
_INDEX = ir.IntType(64)
_SIZE_OF_A_NUMBER = 8


@intrinsic
def add_to_columns(typing_context: Any, sums: Any, row: Any, first: Any, second: Any) -> Any:
    """Add to sums[row, 0] and sums[row, 1], by one addition of vectors instead of two of numbers.

    float64, of shape (n, 2), contiguous, row >= 0.
    """
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


@kernel
def pool_falling(widths: Vector, gains: Vector, ends: Integers, width: Vector, gain: Vector) -> int:
    """Form blocks of falling gain/width; return their number.

    Widths and gains, shape (n,), are not negative; there is as much room for the end, the width and
    the gain of each block.
    """
    count = 0
    for i in range(widths.size):
        count = pool(count, i, widths[i], gains[i], ends, width, gain)
    for b in range(1, count):  # where each block begins, the one before ends
        ends[b - 1] = ends[b]
    if count > 0:
        ends[count - 1] = widths.size
    return count


@kernel(inner=True)
def pool(
    count: int, start: int, width: float, gain: float, starts: Integers, widths: Vector,
    gains: Vector,
) -> int:  # fmt: skip
    """Put a block on a stack of blocks of falling gain/width, pooled with those that it outdoes.

    Returns the height of the stack: the starts, widths and gains of that many blocks.
    """
    while count > 0 and gains[count - 1] * width <= gain * widths[count - 1]:
        count -= 1
        width += widths[count]
        gain += gains[count]
        start = starts[count]
    starts[count] = start
    widths[count] = width
    gains[count] = gain
    return count + 1
