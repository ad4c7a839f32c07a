"""Water levels without sorting, for masses that are raised or capped to multiples of weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def accurate_sum(values: Vector) -> float:
    """Sum of non-negative numbers to the last place or two, however many there are."""
    from mdsd_opt.prefix_search.water_level_kernels import split_at

    return float(split_at(values, values, 0.0, True)[0])


def raise_level(p: Vector, q: Vector, mass: float) -> float:
    """c with the sum of max(p, c q) equal to `mass`; 0 if that of p is no less. q > 0.

    Newton's method on a function that is convex and linear in pieces: after one step the level
    falls until it has arrived [Michelot86].
    """
    from mdsd_opt.prefix_search.water_level_kernels import split_at

    if p.size == 0 or not accurate_sum(p) < mass:
        return 0.0
    level = mass / accurate_sum(q)
    while True:
        kept, weight = split_at(p, q, level, True)
        lower = (mass - kept) / weight if weight > 0.0 else level
        if not lower < level:
            return level
        level = lower


def cap_level(p: Vector, q: Vector, mass: float) -> float:
    """c' with the sum of min(p, c' q) equal to `mass`; infinite if that of p is no more. q > 0.

    As `raise_level`, from below.
    """
    from mdsd_opt.prefix_search.water_level_kernels import split_at

    if not accurate_sum(p) > mass:
        return np.inf
    level = max(mass, 0.0) / accurate_sum(q)
    while True:
        kept, weight = split_at(p, q, level, False)
        higher = (mass - kept) / weight if weight > 0.0 else level
        if not higher > level:
            return level
        level = higher
