"""The frontier where the draft scheme has a prefix order: one sort, then one hull a law."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from mdsd_opt.drafts import PrefixDraftScheme
from mdsd_opt.frontier.base import Frontier, Vector
from mdsd_opt.frontier.concave import falling_blocks
from mdsd_opt.problem import TransportProblem


class PrefixFrontier(Frontier):
    r"""Closed form: p times the slopes of a least concave majorant.

    With the tokens in prefix order, P_j and F_j the target's mass and Q of the first j,
    :math:`p_a / p` is the slope of the least concave majorant of the points
    :math:`(P_j, (F_j - c)_+)`, :math:`j < V`, and (1, 1). Tokens that are never drafted come last,
    as one step. Tokens of p = 0 that come first have an infinite slope: they share their block's
    mass in proportion to the weights of the scheme, which is the limit of small equal ratios p/w.
    """

    def __init__(self, problem: TransportProblem, exact: bool = False) -> None:
        super().__init__(problem, exact)
        drafts = problem.drafts
        assert isinstance(drafts, PrefixDraftScheme)
        weights: Vector
        if exact:
            exact_order = drafts.exact_prefix_order(problem.exact_target)
            self._order = np.array(exact_order, dtype=np.int64)
            self._contained = np.array(drafts.exact_prefix_containment(exact_order), dtype=object)
            weights = np.array(drafts.exact_weights, dtype=object)
        else:
            self._order = drafts.prefix_order(self.p)
            self._contained = drafts.prefix_containment(self._order)
            weights = drafts.weights
        p = self.p[self._order]
        undrafted = np.ones(self.p.size, dtype=np.bool_)
        undrafted[self._order] = False
        self._widths = np.append(p, self.p[undrafted].sum())
        #: How many tokens come before the first of positive mass, and how they share mass.
        positive = np.flatnonzero(p > 0)
        self._massless = int(positive[0]) if positive.size else p.size
        first = weights[self._order[: self._massless]]
        self._massless_weights = np.where(first > 0, first, first * 0 + 1)
        self.least = 1 + self._smallest_difference(p)
        self.most = 1 - self._contained[0]
        self.most_finite = 1 - self._contained[self._massless]

    def _smallest_difference(self, p: Vector) -> Any:
        if self.exact:
            inside = np.array([Fraction(0), *p.cumsum()], dtype=object)
            return (inside - self._contained).min()
        from mdsd_opt.solvers.prefix_scan_kernels import smallest_prefix_difference

        return smallest_prefix_difference(p, self._contained)[0]

    def law(self, acceptance_rate: Any) -> Vector:
        heights = self._contained - (1 - acceptance_rate)
        one = acceptance_rate * 0 + 1
        heights = np.append(np.where(heights > 0, heights, heights * 0), one)
        gains = np.diff(heights)
        gains = np.where(gains > 0, gains, gains * 0)  # Q of a quadrature may fall by 1e-16
        blocks = falling_blocks(self._widths, gains)
        slopes = blocks.slopes()
        x: Vector = self.p * slopes[-1]
        x[self._order] = self.p[self._order] * slopes[:-1]
        first = self._massless
        if first and blocks.widths[0] == 0:
            shares = falling_blocks(self._massless_weights, gains[:first]).slopes()
            x[self._order[:first]] = self._massless_weights * shares
        return x
