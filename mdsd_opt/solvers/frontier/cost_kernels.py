r"""Cost of acceptance along one frontier, in O(log n) for each of its points.

With H the concave hull of the points :math:`(P_j, F_j)` of a chain and :math:`c = 1 - a`, the
majorant of :math:`(F_j - c)_+` and (1, 1) is H - c between the two vertices where lines from (0, c)
and from (1, 1 + c) touch H, and these lines elsewhere. H does not depend on a. So a divergence is
that of two straight pieces and a difference of sums over edges of H.
"""

from __future__ import annotations

import numpy as np

from mdsd_opt.base.arrays import Integers, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search import pool_falling

KL, CHI2 = 0, 1  # divergences, as the kernels call them

# Rows of the table of a hull. Of its vertices: mass of the target before and after, and Q.
_BEFORE, _AFTER, _HEIGHT = 0, 1, 2
# Of its edges: slope, and where the line through an edge is at 0 and, less Q(V), at 1.
_SLOPE, _AT_ZERO, _AT_ONE = 3, 4, 5
# Cost of the edges between a vertex and that where slopes pass one in each divergence, two rows
# each, and what groups of tokens may hide. Sums from the first edge would drown in its cost.
_SUMS = 6
_DOUBTS = 8
ROWS = 10

#: Relative difference below which the logarithm is computed by its series.
_SMALL = 1e-3

#: Most steps of Newton's method and halvings, which are every third and would suffice alone: where
#: the cost bends sharply, Newton's steps are tiny.
_STEPS = 180

#: Least difference of rates that are told apart.
_LEAST_STEP = 1e-16


@kernel(inner=True)
def _excess(slope: float, divergence: int) -> float:
    """Compute f(r) for r = 1 + d: r log r - r + 1, or (r - 1)^2; no term of a sum is negative."""
    d = slope - 1.0
    if divergence == CHI2:
        return d * d
    if slope <= 0.0:
        return 1.0
    if abs(d) < _SMALL:
        return d * d * (0.5 - d * (1.0 / 6.0 - d * (1.0 / 12.0 - d / 20.0)))
    return slope * np.log(slope) - d


@kernel(inner=True)
def _steepness(slope: float, divergence: int) -> float:
    """Derivative f'(r)."""
    if divergence == CHI2:
        return 2.0 * (slope - 1.0)
    return np.log(slope) if slope > 0.0 else -np.inf


@kernel(inner=True)
def _first_beyond(values: Vector, count: int, bound: float, ascending: bool) -> int:
    """First place of ascending values that reach the bound, or of falling ones below it."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if (values[middle] >= bound) == ascending:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def build_hull(
    masses: Vector, gains: Vector, doubts: Vector, start: float, rest: float, ends: Integers,
    hull: Matrix,
) -> int:  # fmt: skip
    """Fill the table of a hull, shape (ROWS, n + 1); return its number of edges.

    The arguments hold, for the steps of a chain, the target's mass, the first not zero, what each
    adds to Q, and the KL that it may hide for each unit of acceptance gained in it, shape (n,)
    each; `start` is Q of the tokens without mass in the target, which come before, `rest` the
    target's mass behind, and `ends`, shape (n,), room.
    """
    n = masses.size
    count = pool_falling(masses, gains, ends, hull[_BEFORE, :n], hull[_HEIGHT, :n])
    after = rest
    for b in range(count - 1, -1, -1):
        width = hull[_BEFORE, b]
        hull[_SLOPE, b] = hull[_HEIGHT, b] / width if width > 0.0 else 0.0
        hull[_AFTER, b + 1] = after
        after += width
    hull[_AFTER, 0] = after
    before = 0.0
    height = start
    first = 0
    middle = _first_beyond(hull[_SLOPE], count, 1.0, False)
    for b in range(count):
        width, gain, slope = hull[_BEFORE, b], hull[_HEIGHT, b], hull[_SLOPE, b]
        hull[_BEFORE, b] = before
        hull[_HEIGHT, b] = height
        hull[_AT_ZERO, b] = height - slope * before
        hull[_AT_ONE, b] = height + slope * hull[_AFTER, b] - 1.0
        far = b if b < middle else b + 1  # the end of the edge that is farther from the middle
        hull[_SUMS + KL, far] = width * _excess(slope, KL)
        hull[_SUMS + CHI2, far] = width * _excess(slope, CHI2)
        hull[_DOUBTS + KL, far] = 0.0
        hull[_DOUBTS + CHI2, far] = 0.0
        for i in range(first, ends[b]):
            if gains[i] > 0.0 and doubts[i] > 0.0:
                hull[_DOUBTS + KL, far] += gains[i] * doubts[i]
                hull[_DOUBTS + CHI2, far] += gains[i] * doubts[i] * (gains[i] / masses[i])
        first = ends[b]
        before += width
        height += gain
    hull[_BEFORE, count] = before
    hull[_HEIGHT, count] = height
    for row in range(_SUMS, ROWS):
        hull[row, middle] = 0.0
        for v in range(middle - 1, -1, -1):
            hull[row, v] += hull[row, v + 1]
        for v in range(middle + 1, count + 1):
            hull[row, v] += hull[row, v - 1]
    return count


@kernel(inner=True)
def _cost(hull: Matrix, count: int, lost: float, divergence: int) -> tuple[float, float, float]:
    """Divergence at c = `lost`, its derivative by a, and the part of it that groups may hide."""
    if count == 0:
        return 0.0, 0.0, 0.0
    low = _first_beyond(hull[_AT_ZERO], count, lost, True)
    high = _first_beyond(hull[_AT_ONE], count, lost, False)
    doubts = hull[_DOUBTS + divergence]
    hidden = doubts[min(high + 1, count)] + doubts[max(low - 1, 0)]
    if low > high:
        return 0.0, 0.0, hidden
    first = hull[_SLOPE, 0]
    cost = hull[_SUMS + divergence, high] + hull[_SUMS + divergence, low]
    if hull[_BEFORE, low] > 0.0:
        first = (hull[_HEIGHT, low] - lost) / hull[_BEFORE, low]
        cost += hull[_BEFORE, low] * _excess(first, divergence)
    last = hull[_SLOPE, count - 1]
    if hull[_AFTER, high] > 0.0:
        last = ((1.0 - hull[_HEIGHT, high]) + lost) / hull[_AFTER, high]
        cost += hull[_AFTER, high] * _excess(last, divergence)
    slope = _steepness(first, divergence) - _steepness(last, divergence)
    return cost, max(slope, 0.0), hidden


@kernel
def point(
    hull: Matrix, count: int, acceptance_rate: float, divergence: int
) -> tuple[float, float, float]:
    """Divergence of p_a, its derivative, and how much larger the divergence may be."""
    return _cost(hull, count, 1.0 - acceptance_rate, divergence)


@kernel
def rate_within(
    hull: Matrix, count: int, least: float, most: float, budget: float, divergence: int
) -> float:
    """Largest acceptance rate from `least` to `most` that costs no more than the budget.

    Never one that costs more, were it by rounding.
    """
    if budget <= 0.0 or most <= least:
        return least
    short, over = 1.0 - least, 1.0 - most  # c that costs too little, and too much
    if _cost(hull, count, over, divergence)[0] <= budget:
        return most
    lost = over
    for n in range(_STEPS):
        cost, slope, _ = _cost(hull, count, lost, divergence)
        excess = cost - budget
        if excess > 0.0:
            over = lost
        else:
            short = lost
        if short - over <= 2.0 * _LEAST_STEP:
            break
        step = abs(excess) / slope if 0.0 < slope < np.inf else 0.0
        step = max(step, _LEAST_STEP)
        following = lost + step if excess > 0.0 else lost - step
        if n % 3 == 2 or not over < following < short:
            following = (over + short) / 2.0
        lost = following
    rate = 1.0 - short
    if 1.0 - rate < short:
        rate = np.nextafter(rate, 0.0)
    return min(max(rate, least), most)


@kernel
def rate_at_slope(
    hull: Matrix, count: int, least: float, most: float, slope: float, divergence: int
) -> float:
    """Largest acceptance rate up to which the divergence rises no faster than `slope`."""
    if slope <= 0.0 or most <= least:
        return least
    low, high = least, most
    if _cost(hull, count, 1.0 - high, divergence)[1] <= slope:
        return high
    while high - low > 1e-16:
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if _cost(hull, count, 1.0 - middle, divergence)[1] <= slope:
            low = middle
        else:
            high = middle
    return low
