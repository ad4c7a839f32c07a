"""Numba kernels of the hull rule in float64; `hull` explains what they compute."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.numba_cache import kernel
from mdsd_opt.verifiers.optimal.block_kernels import block_holding, pooled

Vector = NDArray[np.float64]


@kernel
def _meeting_level(
    x_low: float,
    w_low: float,
    g_low: float,
    x_high: float,
    w_high: float,
    g_high: float,
) -> float:
    rise = x_high * w_low - x_low * w_high
    fall = g_high * w_low - g_low * w_high
    if rise <= 0.0:
        return 0.0
    if fall <= rise:
        return 1.0
    return rise / fall


@kernel
def _push(
    keys: Vector, items: NDArray[np.int64], stamps: NDArray[np.int64], size: int,
    key: float, item: int, stamp: int,
) -> int:  # fmt: skip
    child = size
    while child > 0:
        parent = (child - 1) // 2
        if keys[parent] <= key:
            break
        keys[child] = keys[parent]
        items[child] = items[parent]
        stamps[child] = stamps[parent]
        child = parent
    keys[child] = key
    items[child] = item
    stamps[child] = stamp
    return size + 1


@kernel
def _pop(
    keys: Vector, items: NDArray[np.int64], stamps: NDArray[np.int64], size: int
) -> int:  # fmt: skip
    """Drop the root; the caller has read it."""
    size -= 1
    key = keys[size]
    item = items[size]
    stamp = stamps[size]
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[parent] = keys[child]
        items[parent] = items[child]
        stamps[parent] = stamps[child]
        parent = child
    keys[parent] = key
    items[parent] = item
    stamps[parent] = stamp
    return size


@kernel
def death_levels(x: Vector, w: Vector, f: Vector) -> Vector:
    """Merge neighbouring blocks in the order in which they meet, with a heap: O(n log n)."""
    n = x.size
    levels = np.ones(n + 1)
    if n < 2:
        return levels
    mass = x.copy()
    weight = w.copy()
    gain = w * f  # F over the block
    before = np.arange(-1, n - 1)  # neighbouring blocks, named by their first token
    after = np.arange(1, n + 1)  # n: none
    stamp = np.zeros(n, np.int64)  # bumped at every change of a block, to recognise stale entries
    keys = np.empty(3 * n + 4)
    items = np.empty(3 * n + 4, np.int64)
    stamps = np.empty(3 * n + 4, np.int64)
    size = 0
    for low in range(n - 1):
        high = low + 1
        key = _meeting_level(
            mass[low], weight[low], gain[low], mass[high], weight[high], gain[high]
        )
        size = _push(keys, items, stamps, size, key, low, 0)
    reached = 0.0
    while size > 0:
        key = keys[0]
        low = items[0]
        seen = stamps[0]
        size = _pop(keys, items, stamps, size)
        if stamp[low] < 0 or after[low] >= n:
            continue
        high = after[low]
        if stamp[low] + stamp[high] != seen:
            continue
        if key >= 1.0:
            break
        reached = max(reached, key)  # rounding must not let a parent die before its child
        levels[high] = reached
        mass[low] += mass[high]
        weight[low] += weight[high]
        gain[low] += gain[high]
        stamp[low] += stamp[high] + 1
        stamp[high] = -1
        after[low] = after[high]
        if after[low] < n:
            before[after[low]] = low
        if before[low] >= 0:
            b = before[low]
            key = _meeting_level(mass[b], weight[b], gain[b], mass[low], weight[low], gain[low])
            size = _push(keys, items, stamps, size, key, b, stamp[b] + stamp[low])
        if after[low] < n:
            a = after[low]
            key = _meeting_level(mass[low], weight[low], gain[low], mass[a], weight[a], gain[a])
            size = _push(keys, items, stamps, size, key, low, stamp[low] + stamp[a])
    return levels


@kernel
def spans_of_blocks(levels: Vector) -> tuple[NDArray[np.int64], NDArray[np.int64], Vector]:
    """The block that is born where boundary j dies: its ends, and how long it lives; (n + 1,).

    It spans to the nearest boundaries that die later (ties: to the left first, so that equal levels
    make one chain of blocks, all but the last living for no time) and lives until one of them dies.
    """
    n = levels.size - 1
    left = np.empty(n + 1, np.int64)
    right = np.empty(n + 1, np.int64)
    life = np.zeros(n + 1)
    stack = np.empty(n + 1, np.int64)
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
    for j in range(1, n):
        until = 1.0
        if left[j] > 0:
            until = min(until, levels[left[j]])
        if right[j] < n:
            until = min(until, levels[right[j]])
        life[j] = until - levels[j]
    return left, right, life


@kernel
def selection_law(w: Vector, f: Vector, levels: Vector) -> Vector:
    """w_i times the chord of F over the block of i, integrated over the level; O(n)."""
    n = w.size
    total_weight = np.empty(n + 1)
    total_gain = np.empty(n + 1)
    total_weight[0] = 0.0
    total_gain[0] = 0.0
    for i in range(n):
        total_weight[i + 1] = total_weight[i] + w[i]
        total_gain[i + 1] = total_gain[i] + w[i] * f[i]
    left, right, life = spans_of_blocks(levels)
    change = np.zeros(n + 1)
    for j in range(1, n):
        if life[j] > 0.0:
            a = left[j]
            b = right[j]
            chord = (total_gain[b] - total_gain[a]) / (total_weight[b] - total_weight[a])
            change[a] += life[j] * chord
            change[b] -= life[j] * chord
    law = np.empty(n)
    from_blocks = 0.0
    for i in range(n):
        from_blocks += change[i]
        alone = 1.0
        if i > 0:
            alone = min(alone, levels[i])
        if i + 1 < n:
            alone = min(alone, levels[i + 1])
        law[i] = w[i] * (from_blocks + alone * f[i])
    return law


@kernel
def block_at_level(
    x: Vector, w: Vector, f: Vector, level: float, first: int, last: int, top: int
) -> tuple[int, int]:
    """Block [start, stop) of token `top` among tokens [first, last): pool adjacent violators."""
    starts = np.empty(last - first + 1, np.int64)
    mass = np.empty(last - first + 1)
    weight = np.empty(last - first + 1)
    height = 0
    for i in range(first, last):
        height = pooled(starts, mass, weight, height, i, x[i] - level * w[i] * f[i], w[i])
    starts[height] = last
    return block_holding(starts, height, top)
