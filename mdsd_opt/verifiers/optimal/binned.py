"""Optimal rule on closed bins of p/q: one pass, an exact law, a certified loss of acceptance.

Each token is accepted with min(1, p/p_I) by its own p, at one ratio p_I/q in every bin
(`bin_plan`). What the bins lose is what `acceptance_rate` reports as its `gap`.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Integers, Tokens, Vector
from mdsd_opt.drafts import DraftScheme, WithoutReplacement, WithReplacement
from mdsd_opt.prefix_search import (
    NUM_BINS,
    Bins,
    RandomDraws,
    is_searchable,
    race_sums_of_row,
    ratios_at,
    row_table,
    steps_of,
)
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Remembered, Verifier
from mdsd_opt.verifiers.optimal.acceptance_rule import (
    TokenPlan,
    acceptance_probabilities,
    output_token,
)
from mdsd_opt.verifiers.optimal.bin_plan import BinPlan
from mdsd_opt.verifiers.optimal.grouped_plan import token_above
from mdsd_opt.verifiers.rates import CertifiedRate
from mdsd_opt.verifiers.rejection import residual_law
from mdsd_opt.verifiers.verdicts import Decision, Uniforms, Verdict, verdict

#: Bounds of all bins but the last.
_EDGES = ratios_at(np.arange(NUM_BINS) / (NUM_BINS - 1))


class BinnedPlan(BinPlan, TokenPlan):
    """Plan on bins, with the tokens at hand: one pass over them finds their bins."""

    def __init__(self, p: Vector, draws: RandomDraws) -> None:
        self.target, self.q = p, draws.q
        bins, self.bins = _bins_of(p, draws)
        super().__init__(bins, draws.num_drafts, draws.is_replaced)

    @property
    def selection(self) -> Vector:
        """Selection probability p_I of every token."""
        return self.ratio[self.bins] * self.q

    @property
    def passed(self) -> float:
        return min(float(np.minimum(self.target, self.selection).sum()), 1.0)

    @property
    def residual(self) -> Vector:
        """Law of the output after a rejection; the target if only rounding can reject."""
        return residual_law(self.target, self.selection)

    def places(self, tokens: Tokens) -> Tokens:
        return self.groups.place[self.bins[tokens]]

    def selected(self, token: int) -> float:
        return float(self.ratio[self.bins[token]] * self.q[token])

    def residual_token(self, uniform: float) -> int:
        return token_above(self.target, self.q, self.bins, self.ratio, uniform)


def _bins_of(p: Vector, draws: RandomDraws) -> tuple[Bins, NDArray[np.uint16]]:
    """Sums over the bins of a row, and the bin of every token."""
    q, bins, table = draws.q, np.empty(p.size, np.uint16), np.zeros((NUM_BINS, 2))
    row_table(p, q, steps_of(NUM_BINS, np.float64), bins, np.empty((0, 2)), table)
    sums = np.ascontiguousarray(table.T)
    drafted = sums[1, :-1] > 0.0
    lowest, highest = np.zeros((2, NUM_BINS))
    lowest[:-1] = np.where(drafted, _EDGES[:-1], np.inf)
    highest[:-1] = np.where(drafted, _EDGES[1:], 0.0)
    race = partial(race_sums_of_row, q, bins, draws.num_drafts, NUM_BINS)
    return Bins(sums[0], sums[1], lowest, highest, sums[1], race), bins


class BinnedOptimal(Verifier):
    """Same as `optimal`, on bins of p/q: exactly lossless, next to optimal, one pass over tokens.

    Lossless for drafts with and without replacement. Where these are certain, the `exact` rule
    decides. Cost: O(V) once for each problem and for each rejection; else O(number of bins).
    Source: this package.
    """

    name: ClassVar[str] = "optimal"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (WithReplacement, WithoutReplacement)
    rational: ClassVar[bool] = False

    def __init__(self, exact: Verifier) -> None:
        self._exact = exact
        self._plan = Remembered(_plan_of)

    def acceptance_rate(self, problem: TransportProblem) -> CertifiedRate:
        """Probability of accepting a draft; the optimum is at most its `gap` higher.

        The rare residual draws that hit a draft come on top, at most `gap` of them.
        """
        self.check(problem)
        if not is_searchable(problem.drafts.random_draws):
            return CertifiedRate(float(self._exact.acceptance_rate(problem)), 0.0)
        plan = self._plan(problem)
        rate = plan.passed
        return CertifiedRate(rate, max(plan.most - rate, 0.0))

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
        if not is_searchable(problem.drafts.random_draws):
            return self._exact.decide(problem, drafts, exact)
        plan = self._plan(problem)
        return Decision(acceptance_probabilities(plan, drafts), plan.residual)

    def _verify(self, problem: TransportProblem, tokens: Integers, uniforms: Uniforms) -> Verdict:
        if not is_searchable(problem.drafts.random_draws):
            return self._exact._verify(problem, tokens, uniforms)
        return verdict(output_token(self._plan(problem), tokens, uniforms), tokens)


def _plan_of(problem: TransportProblem) -> BinnedPlan:
    draws = problem.drafts.random_draws
    assert draws is not None
    return BinnedPlan(problem.target, draws)
