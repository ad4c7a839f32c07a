"""Water levels and the block of one token, on ordered tokens or groups of tokens.

Everything is given by sums over prefixes in ascending order of p/q.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.numba_cache import kernel

Vector = NDArray[np.float64]


@kernel
def raise_level(
    sums_p: Vector, sums_q: Vector, ratios: Vector, split: int, inside: float
) -> tuple[int, float]:
    """How many places of the prefix are raised to the water level c, and c.

    c with sum of max(p, c q) over the prefix equal to `inside`.
    """
    if split == 0:
        return 0, 0.0
    low, high = 1, split
    while low < high:  # raising the first m: right as soon as the level stays below the next ratio
        m = (low + high) // 2
        if inside - (sums_p[split] - sums_p[m]) <= ratios[m] * sums_q[m]:
            high = m
        else:
            low = m + 1
    return low, (inside - (sums_p[split] - sums_p[low])) / sums_q[low]


@kernel
def cap_level(
    sums_p: Vector, sums_q: Vector, ratios: Vector, split: int, outside: float
) -> tuple[int, float]:
    """First place that is capped to the water level c', and c' (infinite: none is capped).

    c' with sum of min(p, c' q) over the places from `split` on equal to `outside`.
    """
    n = ratios.size
    if split == n:
        return n, np.inf
    low, high = split, n - 1
    while low < high:  # capping from m on: right as soon as the level is not below the one before
        m = (low + high + 1) // 2
        if outside - (sums_p[m] - sums_p[split]) >= ratios[m - 1] * (sums_q[n] - sums_q[m]):
            low = m
        else:
            high = m - 1
    weight = sums_q[n] - sums_q[low]
    if weight <= 0.0:  # too little to show in the sums
        return low, 0.0
    return low, max((outside - (sums_p[low] - sums_p[split])) / weight, 0.0)


@kernel
def block_holding(starts: NDArray[np.int64], count: int, top: int) -> tuple[int, int]:
    """Block [start, stop) of a place, given where each of the blocks starts, and the last ends."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high + 1) // 2
        if starts[middle] <= top:
            low = middle
        else:
            high = middle - 1
    return starts[low], starts[low + 1]


@kernel
def pooled(
    starts: NDArray[np.int64], mass: Vector, weight: Vector, height: int,
    start: int, block_mass: float, block_weight: float,
) -> int:  # fmt: skip
    """Put a block on the stack of blocks, joined with those of no lower mass per weight."""
    while height > 0 and mass[height - 1] * block_weight >= block_mass * weight[height - 1]:
        height -= 1
        block_mass += mass[height]
        block_weight += weight[height]
        start = starts[height]
    starts[height] = start
    mass[height] = block_mass
    weight[height] = block_weight
    return height + 1


@kernel
def block_of(
    sums_p: Vector, sums_q: Vector, contained: Vector, level: float,
    split: int, raised: int, c: float, capped: int, cap: float, top: int,
) -> tuple[int, int]:  # fmt: skip
    """Block [start, stop) of the token at place `top`: pool adjacent violators on its side.

    Tokens on a common water level are tied, so they enter as one element.
    """
    n = sums_p.size - 1
    if top < split:
        first, last = raised, split
    else:
        first, last = split, capped
    size = last - first + 2
    starts = np.empty(size + 1, np.int64)
    mass = np.empty(size)
    weight = np.empty(size)
    height = 0
    if top < split and raised > 0:
        starts[0] = 0
        weight[0] = sums_q[raised]
        mass[0] = c * weight[0] - level * (contained[raised] - contained[0])
        height = 1
    stop = last
    for i in range(first, last + 1):
        if i < last:
            block_weight = sums_q[i + 1] - sums_q[i]
            block_mass = sums_p[i + 1] - sums_p[i] - level * (contained[i + 1] - contained[i])
        elif top >= split and capped < n:
            stop = n
            block_weight = sums_q[n] - sums_q[capped]
            block_mass = cap * block_weight - level * (contained[n] - contained[capped])
        else:
            break
        height = pooled(starts, mass, weight, height, i, block_mass, block_weight)
    starts[height] = stop
    return block_holding(starts, height, top)
