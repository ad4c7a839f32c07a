"""Slopes of a least concave majorant, by pooling neighbours; O(n)."""

from __future__ import annotations

from mdsd_opt.base.array_types import Integers, Vector
from mdsd_opt.base.numba_cache import kernel


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
