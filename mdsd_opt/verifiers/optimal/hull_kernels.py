"""Numba kernels of the hull rule in float64; `hull` explains what they compute."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.concave_kernels import pool

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]


@kernel
def block_around(
    x: Vector, w: Vector, gains: Vector, level: float, split: int, raised: int, capped: int,
    top: int, starts: Integers, mass: Vector, weight: Vector,
) -> tuple[int, int]:  # fmt: skip
    """Block [start, stop) of place `top` at one level: pool adjacent violators on its side.

    The end of H is a boundary at every level, so one side of it is enough. `starts` is room for one
    place more than x has, `mass` and `weight` for as many.

    The places below `raised`, and those from `capped` on, stand on a water level and enter as one:
    R is straight there and -s Q concave, so no boundary among them is ever a vertex. Where Q is
    straight as well, or s is 0, they are tied, and so are equal ratios elsewhere: all points lie on
    one line, and a block may end at any of them without a change in the law of the returned token,
    which asks only for the chord. Taken one by one, rounding would cut such ties at random.
    """
    first, last = (0, split) if top < split else (split, x.size)
    height = 0
    i = first
    while i < last:
        stop = i + 1
        if i < raised:
            stop = raised
        elif i >= capped:
            stop = last
        block_mass = 0.0
        block_weight = 0.0
        for j in range(i, stop):
            block_mass += x[j] - level * gains[j]
            block_weight += w[j]
        height = pool(height, i, block_weight, -block_mass, starts, weight, mass)
        i = stop
    starts[height] = last
    while starts[height - 1] > top:
        height -= 1
    return starts[height - 1], starts[height]


@kernel
def death_levels(
    blocks: Matrix, links: Integers, keys: Vector, entries: Integers, levels: Vector
) -> None:
    """Merge neighbouring blocks in the order in which they meet, with a heap: O(n log n).

    Parameters
    ----------
    blocks : ndarray, shape (3, n)
        x, w and the part of Q in each; blocks are named by their first token.
    links : ndarray, shape (3, n)
        Room: the blocks before and after, and a number that grows with every change of a block, by
        which entries of the heap that have gone stale are known.
    keys, entries : ndarray, shapes (3 n,) and (2, 3 n)
        Room for the heap.
    levels : ndarray, shape (n + 1,)
        All ones; the result.
    """
    n = blocks.shape[1]
    before, after, stamp = links[0], links[1], links[2]
    for i in range(n):
        before[i] = i - 1
        after[i] = i + 1  # n: none
        stamp[i] = 0
    size = 0
    for low in range(n - 1):
        size = _push(keys, entries, size, _meeting_level(blocks, low, low + 1), low, 0)
    reached = 0.0
    while size > 0:
        key, low, seen = keys[0], entries[0, 0], entries[1, 0]
        size = _pop(keys, entries, size)
        if stamp[low] < 0 or after[low] >= n:
            continue
        high = after[low]
        if stamp[low] + stamp[high] != seen:
            continue
        if key >= 1.0:
            break
        reached = max(reached, key)  # rounding must not let a parent die before its child
        levels[high] = reached
        for r in range(3):
            blocks[r, low] += blocks[r, high]
        stamp[low] += stamp[high] + 1
        stamp[high] = -1
        after[low] = after[high]
        for side in range(2):  # the pairs that the merged block makes with its neighbours
            left = low if side else before[low]
            right = after[low] if side else low
            if left < 0 or right >= n:
                continue
            before[right] = left
            key = _meeting_level(blocks, left, right)
            size = _push(keys, entries, size, key, left, stamp[left] + stamp[right])


@kernel(inner=True)
def _meeting_level(blocks: Matrix, low: int, high: int) -> float:
    w_low, w_high = blocks[1, low], blocks[1, high]
    rise = blocks[0, high] * w_low - blocks[0, low] * w_high
    fall = blocks[2, high] * w_low - blocks[2, low] * w_high
    if rise <= 0.0:
        return 0.0
    if fall <= rise:
        return 1.0
    return rise / fall


@kernel(inner=True)
def _push(keys: Vector, entries: Integers, size: int, key: float, item: int, stamp: int) -> int:
    child = size
    while child > 0:
        parent = (child - 1) // 2
        if keys[parent] <= key:
            break
        _put(keys, entries, child, keys[parent], entries[0, parent], entries[1, parent])
        child = parent
    _put(keys, entries, child, key, item, stamp)
    return size + 1


@kernel(inner=True)
def _pop(keys: Vector, entries: Integers, size: int) -> int:
    """Drop the root; the caller has read it."""
    size -= 1
    key = keys[size]
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        _put(keys, entries, parent, keys[child], entries[0, child], entries[1, child])
        parent = child
    _put(keys, entries, parent, key, entries[0, size], entries[1, size])
    return size


@kernel(inner=True)
def _put(keys: Vector, entries: Integers, place: int, key: float, item: int, stamp: int) -> None:
    keys[place] = key
    entries[0, place] = item
    entries[1, place] = stamp


@kernel
def spans_of_blocks(levels: Vector, spans: Integers, life: Vector) -> None:
    """The block that is born where boundary j dies: its ends, and how long it lives.

    It spans to the nearest boundaries that die later (ties: to the left first, so that equal levels
    make one chain of blocks, all but the last living for no time) and lives until one of them dies.

    Parameters
    ----------
    levels : ndarray, shape (n + 1,)
    spans : ndarray, shape (3, n + 1)
        Left and right ends; the last row is room.
    life : ndarray, shape (n + 1,)
    """
    n = levels.size - 1
    left, right, stack = spans[0], spans[1], spans[2]
    height = 0
    for j in range(n + 1):
        while height > 0 and stack[height - 1] > 0 and levels[stack[height - 1]] <= levels[j]:
            height -= 1
        left[j] = stack[height - 1] if height > 0 else 0
        stack[height] = j
        height += 1
    height = 0
    for j in range(n, -1, -1):
        while height > 0 and stack[height - 1] < n and levels[stack[height - 1]] < levels[j]:
            height -= 1
        right[j] = stack[height - 1] if height > 0 else n
        stack[height] = j
        height += 1
    life[0] = 0.0
    life[n] = 0.0
    for j in range(1, n):
        until = 1.0
        if left[j] > 0:
            until = min(until, levels[left[j]])
        if right[j] < n:
            until = min(until, levels[right[j]])
        life[j] = until - levels[j]
