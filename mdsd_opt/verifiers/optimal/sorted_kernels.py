"""Kernels of one decision on tokens sorted by p/q: packing, prefix sums, levels, block, residual.

Sorting is the dear part, so the key and the token are packed into one 64-bit integer: the upper 45
bits hold the ratio (as the bits of a non-negative float64, to a relative 6e-11), the lower 18 the
token. Tokens closer than that count as tied, which moves the law of the output by no more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.numba_cache import kernel

Vector = NDArray[np.float64]
Keys = NDArray[np.int64]

#: Tokens that fit beside a ratio in one key.
MAX_TOKENS = 1 << 18
_TOKEN_MASK = MAX_TOKENS - 1


@kernel
def packed_keys(p: Vector, q: Vector) -> Keys:
    """Keys of the tokens with q > 0, unsorted; they sort by p/q, then by token."""
    ratio = p / q
    keys = ratio.view(np.int64)
    drafted = 0
    for i in range(p.size):
        keys[i] = (keys[i] & ~_TOKEN_MASK) | i
        drafted += q[i] > 0.0
    if drafted < p.size:
        n = 0
        for i in range(p.size):
            if q[i] > 0.0:
                keys[n] = keys[i]
                n += 1
    return keys[:drafted]


@kernel
def prefix_sums(q: Vector, keys: Keys, num_drafts: int) -> tuple[Vector, Vector, int]:
    """Sums of p and of q over every prefix of the sorted tokens, and the best cut of P - A^K.

    p is read off the keys, whose token bits change the ratio by less than 6e-11 of it: fetching it
    by token would cost more than all the rest.
    """
    n = keys.size
    ratio = keys.view(np.float64)
    sums_p = np.empty(n + 1)
    sums_q = np.empty(n + 1)
    sums_p[0] = 0.0
    sums_q[0] = 0.0
    total_p = 0.0
    total_q = 0.0
    best = 0.0
    split = 0
    for j in range(n):
        weight = q[keys[j] & _TOKEN_MASK]
        total_p += ratio[j] * weight
        total_q += weight
        sums_p[j + 1] = total_p
        sums_q[j + 1] = total_q
        inside = min(total_q, 1.0)
        power = inside
        for _ in range(num_drafts - 1):
            power *= inside
        if total_p - power < best:
            best = total_p - power
            split = j + 1
    return sums_p, sums_q, split


@kernel
def powers(sums: Vector, first: int, last: int, exponent: int) -> Vector:
    """min(sums, 1) ** exponent for the places first to last, as an array of the same shape."""
    result = np.empty(sums.size)
    for j in range(first, last + 1):
        base = min(sums[j], 1.0)
        power = base
        for _ in range(exponent - 1):
            power *= base
        result[j] = power
    return result


@kernel
def split_of(sums_p: Vector, contained: Vector) -> int:
    """First prefix length that minimises P - Q."""
    best = -contained[0]
    split = 0
    for j in range(1, sums_p.size):
        difference = sums_p[j] - contained[j]
        if difference < best:
            best = difference
            split = j
    return split


@kernel
def raise_level(sums_p: Vector, sums_q: Vector, split: int, inside: float) -> tuple[int, float]:
    """How many tokens of the prefix are raised to the water level c, and c.

    c with sum of max(p, c q) over the prefix equal to `inside`.
    """
    if split == 0:
        return 0, 0.0
    low, high = 1, split
    while low < high:  # raising the first m: right as soon as the level stays below the next ratio
        m = (low + high) // 2
        level = (inside - (sums_p[split] - sums_p[m])) / sums_q[m]
        if level * (sums_q[m + 1] - sums_q[m]) <= sums_p[m + 1] - sums_p[m]:
            high = m
        else:
            low = m + 1
    return low, (inside - (sums_p[split] - sums_p[low])) / sums_q[low]


@kernel
def cap_level(sums_p: Vector, sums_q: Vector, split: int, outside: float) -> tuple[int, float]:
    """First place that is capped to the water level c', and c' (infinite: none is capped).

    c' with sum of min(p, c' q) over the places from `split` on equal to `outside`.
    """
    n = sums_p.size - 1
    if split == n:
        return n, np.inf
    low, high = split, n - 1
    while low < high:  # capping from m on: right as soon as the level is not below the one before
        m = (low + high + 1) // 2
        level = (outside - (sums_p[m] - sums_p[split])) / (sums_q[n] - sums_q[m])
        if level * (sums_q[m] - sums_q[m - 1]) >= sums_p[m] - sums_p[m - 1]:
            low = m
        else:
            high = m - 1
    level = (outside - (sums_p[low] - sums_p[split])) / (sums_q[n] - sums_q[low])
    return low, max(level, 0.0)


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
        start = i
        if i < last:
            block_weight = sums_q[i + 1] - sums_q[i]
            block_mass = sums_p[i + 1] - sums_p[i] - level * (contained[i + 1] - contained[i])
        elif top >= split and capped < n:
            stop = n
            block_weight = sums_q[n] - sums_q[capped]
            block_mass = cap * block_weight - level * (contained[n] - contained[capped])
        else:
            break
        while height > 0 and mass[height - 1] * block_weight >= block_mass * weight[height - 1]:
            height -= 1
            block_mass += mass[height]
            block_weight += weight[height]
            start = starts[height]
        starts[height] = start
        mass[height] = block_mass
        weight[height] = block_weight
        height += 1
    starts[height] = stop
    low, high = 0, height - 1
    while low < high:
        middle = (low + high + 1) // 2
        if starts[middle] <= top:
            low = middle
        else:
            high = middle - 1
    return starts[low], starts[low + 1]


@kernel
def residual_token(
    p: Vector, q: Vector, keys: Keys, sums_p: Vector, sums_q: Vector,
    capped: int, cap: float, uniform: float,
) -> int:  # fmt: skip
    """Draw from the positive part of p - c' q; -1 if it has no mass.

    It lives on the capped places and on the tokens that are never drafted.
    """
    n = keys.size
    drafted = 0.0
    if capped < n:
        drafted = sums_p[n] - sums_p[capped] - cap * (sums_q[n] - sums_q[capped])
    never = 0.0
    if n < p.size:
        for i in range(p.size):
            if q[i] <= 0.0:
                never += p[i]
    total = max(drafted, 0.0) + never
    if total <= 0.0:
        return -1
    point = uniform * total
    last = -1
    if point < drafted:
        low, high = capped, n - 1  # first place whose cumulated residual exceeds the point
        while low < high:
            m = (low + high) // 2
            reached = sums_p[m + 1] - sums_p[capped] - cap * (sums_q[m + 1] - sums_q[capped])
            if reached > point:
                high = m
            else:
                low = m + 1
        for j in range(low, n):  # rounding may land on a token without residual: take the next
            i = keys[j] & _TOKEN_MASK
            if p[i] > cap * q[i]:
                return i
        for j in range(low - 1, capped - 1, -1):
            i = keys[j] & _TOKEN_MASK
            if p[i] > cap * q[i]:
                return i
    reached = max(drafted, 0.0)
    for i in range(p.size):
        if q[i] <= 0.0 and p[i] > 0.0:
            reached += p[i]
            last = i
            if reached > point:
                return i
    return last
