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
from mdsd_opt.prefix_search.sum_kernels import accurate_sum

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
