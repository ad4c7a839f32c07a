r"""Bounds on the optimum from a subset or a marginal, by search.

Any subset H bounds it from above by 1 + P(H) - Q(H). A selection marginal x with
:math:`x(G) \ge Q(G) - d` on every prefix G in order of x/q bounds it from below by
:math:`\sum_i \min(p_i, x_i) - d`; the least x(G) - Q(G) is what the search finds with x in place of
the target. Where Q is a quadrature, it is evaluated a second time from other, finer nodes, with
other tokens added one at a time, and bounds are widened by what the two differ by.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.prefix_search.containment import contained_in
from mdsd_opt.prefix_search.cut_search import CUT_SLACK, best_cut
from mdsd_opt.prefix_search.random_draws import RandomDraws
from mdsd_opt.prefix_search.water_levels import accurate_sum, cap_level, raise_level

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]


def upper_bound(p: Vector, draws: RandomDraws, subset: Flags) -> float:
    """1 + P(H) - Q(H), widened."""
    contained = contained_in(draws, subset)
    doubt = 0.0
    if draws.by_quadrature:
        doubt = abs(contained - contained_in(draws, subset, checks=True))
    return 1.0 + accurate_sum(p[subset]) - contained + doubt


def lower_bound(p: Vector, draws: RandomDraws, x: Vector) -> float:
    """The sum of min(p, x), less what x lacks of Q on some prefix and of a sum of one; widened."""
    cut = best_cut(x, draws)
    shortfall, doubt = -cut.difference, CUT_SLACK
    if draws.by_quadrature:
        again = best_cut(x, draws, checks=True)
        shortfall = max(shortfall, -again.difference)
        doubt += float(np.abs(cut.containment.contained - again.containment.contained).max())
    imbalance = abs(accurate_sum(x) - 1.0)
    return accurate_sum(np.minimum(p, x)) - shortfall - imbalance - doubt


def water_filled(p: Vector, draws: RandomDraws, subset: Flags) -> Vector:
    """The marginal of `water_filling.water_fill`."""
    x, q, inside = p.copy(), draws.q, contained_in(draws, subset)
    x[q <= 0.0] = 0.0
    raised, capped = np.flatnonzero(subset & (q > 0.0)), np.flatnonzero(~subset & (q > 0.0))
    x[raised] = np.maximum(x[raised], raise_level(x[raised], q[raised], inside) * q[raised])
    level = cap_level(x[capped], q[capped], 1.0 - inside)
    if level < np.inf:
        x[capped] = np.minimum(x[capped], level * q[capped])
    return x
