"""Which closed groups of tokens could still change what the optimal rule does.

The tokens of a bucket, in order of their ratio, draw a convex curve of p against q between the
bucket's ends, nowhere below the tangents there, whose slopes are the bucket's extreme ratios. They
meet in the kink. Q is a power of q, so that -Q is concave, or it is q-convex and below its chord.
Either way, whatever P - s Q takes below a line it takes there at a group's ends or at its kink: a
kink that is not low enough closes the group for good.

Everywhere `exponent` is the K of that power, or zero for the chord.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.numba_cache import kernel
from mdsd_opt.prefix_search.bucket_kernels import kink, power
from mdsd_opt.verifiers.optimal.ratio_groups_kernels import EDGES, Groups

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: What rounding may feign, in a power and in the race; a group is not opened for less.
_SLACK = 1e-15
_RACE_SLACK = 2e-13

#: Ratios are rounded before they are put into buckets.
_RATIO_ERROR = 6e-11


@kernel
def _kink(groups: Groups, g: int) -> tuple[float, float]:
    """(p, q) from the start of a closed group to where its end tangents meet."""
    bucket = groups.buckets[g]
    p_inside = groups.sums_p[g + 1] - groups.sums_p[g]
    q_inside = groups.sums_q[g + 1] - groups.sums_q[g]
    return kink(EDGES[bucket], EDGES[bucket + 1], p_inside, q_inside, _RATIO_ERROR)


@kernel
def _contained_at_kink(groups: Groups, g: int, q_kink: float, exponent: int) -> float:
    """At least Q where the tangents meet."""
    if exponent > 0:
        return power(groups.sums_q[g] + q_kink, exponent)
    share = q_kink / (groups.sums_q[g + 1] - groups.sums_q[g])
    return groups.contained[g] + share * (groups.contained[g + 1] - groups.contained[g])


@kernel
def _slack(exponent: int) -> float:
    return _SLACK if exponent > 0 else _RACE_SLACK


@kernel
def best_cut(groups: Groups) -> int:
    """First number of groups that minimises P - Q."""
    best = 0.0
    split = 0
    for j in range(1, groups.sums_p.size):
        difference = groups.sums_p[j] - groups.contained[j]
        if difference < best:
            best = difference
            split = j
    return split


@kernel
def doubt_cut(groups: Groups, exponent: int, split: int, is_open: Flags) -> bool:
    """Open the groups inside which a better cut may lie; return whether there are any."""
    best = groups.sums_p[split] - groups.contained[split] - _slack(exponent)
    found = False
    for g in range(groups.keys.size):
        if groups.buckets[g] >= 0:
            p_kink, q_kink = _kink(groups, g)
            inside = _contained_at_kink(groups, g, q_kink, exponent)
            if groups.sums_p[g] + p_kink - inside < best:
                is_open[groups.buckets[g]] = True
                found = True
    return found


@kernel
def doubt_levels(
    groups: Groups, split: int, raise_level: float, cap_level: float, is_open: Flags
) -> bool:
    """Open the groups that a water level runs through; return whether there are any."""
    found = False
    for g in range(groups.keys.size):
        bucket = groups.buckets[g]
        level = raise_level if g < split else cap_level
        if bucket >= 0 and EDGES[bucket] < level < EDGES[bucket + 1]:
            is_open[bucket] = True
            found = True
    return found


@kernel
def selected_mass(
    groups: Groups, split: int, raised: int, c: float, capped: int, cap: float, above: bool
) -> Vector:
    """R at the ends of the groups on one side of the cut, up to a constant; of no use elsewhere.

    It follows p, but for the groups that are raised to c q or capped to c' q.
    """
    mass = groups.sums_p.copy()
    if above:
        for j in range(capped + 1, mass.size):
            mass[j] = mass[capped] + cap * (groups.sums_q[j] - groups.sums_q[capped])
    else:
        for j in range(split + 1):
            if j <= raised:
                mass[j] = c * groups.sums_q[j]
            else:
                mass[j] = mass[raised] + (groups.sums_p[j] - groups.sums_p[raised])
    return mass


@kernel
def doubt_block(
    groups: Groups, selected: Vector, exponent: int, level: float,
    first: int, last: int, start: int, stop: int, is_open: Flags,
) -> bool:  # fmt: skip
    """Open the groups in first .. last that may cut the block [start, stop); are there any?

    The block is one edge of the lower hull of R - s Q if nothing on its side of the cut lies below
    the line through its ends.
    """
    sums_q = groups.sums_q
    low = selected[start] - level * groups.contained[start]
    high = selected[stop] - level * groups.contained[stop]
    slope = (high - low) / (sums_q[stop] - sums_q[start])
    low -= _slack(exponent)
    found = False
    for g in range(first, last):
        if groups.buckets[g] >= 0:
            p_kink, q_kink = _kink(groups, g)
            inside = _contained_at_kink(groups, g, q_kink, exponent)
            height = selected[g] + p_kink - level * inside
            if height < low + slope * (sums_q[g] + q_kink - sums_q[start]):
                is_open[groups.buckets[g]] = True
                found = True
    return found
