"""The frontier where the draft scheme has a prefix order: one sort."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Numbers
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers.frontier.curve import Frontier, Massless


def by_prefixes(problem: TransportProblem, exact: bool = False) -> Frontier:
    r"""Closed form: p times the slopes of a least concave majorant.

    With the tokens in prefix order, P_j and F_j the target's mass and Q of the first j,
    :math:`p_a / p` is the slope of the least concave majorant of the points
    :math:`(P_j, (F_j - c)_+)`, :math:`j < V`, and (1, 1). Tokens of p = 0 that come first share
    what falls to them in proportion to the weights of the scheme, which is the limit of small equal
    ratios p/w.
    """
    drafts = problem.drafts.prefix_form
    assert drafts is not None
    p: Numbers
    contained: Numbers
    weights: Numbers
    if exact:
        p, weights = (
            np.array(x, dtype=object) for x in (problem.exact_target, drafts.exact_weights)
        )
        listed = drafts.exact_prefix_order(problem.exact_target)
        order = np.array(listed, dtype=np.int64)
        contained = np.array(drafts.exact_prefix_containment(listed), dtype=object)
    else:
        p, weights = problem.target, drafts.weights
        order = drafts.prefix_order(p)
        contained = drafts.prefix_containment(order)
    masses = p[order]
    positive = np.flatnonzero(masses > 0)
    first = int(positive[0]) if positive.size else order.size
    first_weights = weights[order[:first]]
    massless = Massless(
        tokens=order[:first],
        contained=contained[: first + 1],
        weights=np.where(first_weights > 0, first_weights, first_weights * 0 + 1),
    )
    groups = np.full(p.size, order.size, dtype=np.int64)
    groups[order] = np.arange(order.size)
    rest = p[groups == order.size].sum() + p[0] * 0
    return Frontier(
        p=p,
        groups=groups,
        masses=np.append(masses, rest),
        contained=contained,
        massless=massless,
        least=1 + _smallest_difference(masses, contained),
    )


def _smallest_difference(masses: Numbers, contained: Numbers) -> Any:
    if contained.dtype == object:
        return (np.array([Fraction(0), *masses.cumsum()], dtype=object) - contained).min()
    from mdsd_opt.solvers.scan_kernels import smallest_prefix_difference

    return smallest_prefix_difference(masses, contained)[0]
