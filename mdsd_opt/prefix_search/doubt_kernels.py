"""Which closed groups of tokens could still change what the optimal rule does.

Inside a group nothing lies lower than `bound_kernels` says. Everywhere `exponent` is the K of the
power that Q is, or zero for its chord, and `slack` what rounding may feign: a group is not opened
for less. `sums` are those of p and q over every bucket; `lowest` and `highest` bound its ratios.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.bound_kernels import contained_at, kink
from mdsd_opt.prefix_search.ratio_groups_kernels import BUCKET, CONTAINED, P, Q

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@kernel(inner=True)
def _lowest_in_group(
    sums: Vector, ends: Matrix, g: int, lowest: float, highest: float, exponent: int
) -> tuple[float, float, float]:
    """P, q and at least Q at the kink of a closed group, whose own sums are p and q.

    A difference of prefix sums would lose them, and Q may grow from 0 to 1 where q is 1e-30.
    """
    p_mass, q_mass, share = kink(lowest, highest, 0.0, ends[P, g], sums[P], ends[Q, g], sums[Q])
    contained = contained_at(exponent, q_mass, share, ends[CONTAINED, g], ends[CONTAINED, g + 1])
    return p_mass, q_mass, contained


@kernel
def doubt_cut(
    groups: Integers, ends: Matrix, sums: Matrix, lowest: Vector, highest: Vector, exponent: int,
    split: int, slack: float, is_doubtful: Flags,
) -> bool:  # fmt: skip
    """Flag the groups inside which a better cut may lie; return whether there are any."""
    best = ends[P, split] - ends[CONTAINED, split] - slack
    found = False
    for g in range(groups.shape[1]):
        bucket = groups[BUCKET, g]
        if bucket >= 0:
            p_mass, _, contained = _lowest_in_group(
                sums[bucket], ends, g, lowest[bucket], highest[bucket], exponent
            )
            if p_mass - contained < best:
                is_doubtful[bucket] = True
                found = True
    return found


@kernel
def doubt_levels(
    groups: Integers, edges: Vector, split: int, c: float, cap: float, is_doubtful: Flags
) -> bool:
    """Flag the groups that may hold ratios on both sides of the water level that is on their side
    of the cut; return whether there are any.
    """
    found = False
    for g in range(groups.shape[1]):
        bucket = groups[BUCKET, g]
        level = c if g < split else cap
        if bucket >= 0 and edges[bucket] < level and level < edges[bucket + 1]:
            is_doubtful[bucket] = True
            found = True
    return found


@kernel
def doubt_block(
    groups: Integers, ends: Matrix, sums: Matrix, lowest: Vector, highest: Vector, exponent: int,
    slack: float, mixing: float, split: int, raised: int, c: float, capped: int, cap: float,
    start: int, stop: int, selected: Vector, is_doubtful: Flags,
) -> bool:  # fmt: skip
    """Flag the groups that may cut the block [start, stop) at a mixing level; are there any?

    The block is one edge of the lower hull of R - s Q if nothing on its side of the cut lies below
    the line through its ends. `selected`, of shape (n + 1,), is room for R on that side, up to a
    constant: it follows p, but for the groups that are raised to c q or capped to c' q.
    """
    is_above = start >= split
    first = split if is_above else raised
    last = capped if is_above else split
    for j in range(first, last + 1):
        selected[j] = ends[P, j]
    if is_above:
        for j in range(capped + 1, selected.size):
            selected[j] = ends[P, capped] + cap * (ends[Q, j] - ends[Q, capped])
    else:
        for j in range(raised + 1):
            selected[j] = c * ends[Q, j]
        for j in range(raised + 1, split + 1):
            selected[j] = selected[raised] + (ends[P, j] - ends[P, raised])
    low = selected[start] - mixing * ends[CONTAINED, start]
    high = selected[stop] - mixing * ends[CONTAINED, stop]
    slope = (high - low) / (ends[Q, stop] - ends[Q, start])
    low -= slack
    found = False
    for g in range(first, last):
        bucket = groups[BUCKET, g]
        if bucket >= 0:
            p_mass, q_mass, contained = _lowest_in_group(
                sums[bucket], ends, g, lowest[bucket], highest[bucket], exponent
            )
            height = selected[g] + (p_mass - ends[P, g]) - mixing * contained
            if height < low + slope * (q_mass - ends[Q, start]):
                is_doubtful[bucket] = True
                found = True
    return found
