r"""Optimal rule on closed bins of p/q: one pass, an exact law, a certified loss of acceptance.

Each token is accepted with min(1, p/p_I) by its own p, at one ratio p_I/q in every bin
(`BinPlan`). What the bins lose is what `acceptance_rate` reports as its `gap`.

Plan on bins of p/q, which are never opened: one marginal, and two ways to accept by it.

The marginal of the selected draft has one ratio :math:`\rho_b` to q in every bin. The output
follows the target r p whatever :math:`\rho` is, as long as it rises and its prefix sums stay above
those of Q. Inside the optimal subset it is raised to the bin's largest p/q, outside it is lowered
to the least one, as far as the room that acceptance leaves allows: then nothing is lost, for all of
r p, or all of p_I, is accepted.

The rule reads it token by token, `mdsd_opt.trees.device_laws` from the sums over bins alone;
the docstring of `mdsd_opt.verifiers.optimal` says what each of them loses.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Integers, Tokens, Vector
from mdsd_opt.drafts import DraftScheme, WithoutReplacement, WithReplacement
from mdsd_opt.prefix_search import (
    NUM_BINS,
    BinGroups,
    Bins,
    RandomDraws,
    groups_of,
    is_searchable,
    race_sums_of_row,
    ratios_at,
    row_table,
    steps_of,
)
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Remembered, Verifier
from mdsd_opt.verifiers.optimal.acceptance_rule import (
    SelectionPlan,
    TokenPlan,
    acceptance_probabilities,
    output_token,
)
from mdsd_opt.verifiers.optimal.grouped_plan import token_above
from mdsd_opt.verifiers.rejection import residual_law
from mdsd_opt.verifiers.verdicts import CertifiedRate, Decision, Uniforms, Verdict, verdict


class BinPlan(SelectionPlan):
    """Plan whose groups are bins, or runs of them, with a marginal constant relative to q.

    Made for K drafts with replacement, or without if they leave something, and a target r p of mass
    r = `demand` > 0. `ratio`, shape (B,), is p_I / q in every bin; no rule passes more than `most`
    on average.
    """

    def __init__(self, bins: Bins, num_drafts: int, is_replaced: bool, demand: float = 1.0) -> None:
        self.is_replaced = is_replaced
        self.groups = groups = groups_of(bins, num_drafts, is_replaced)
        marginal = bin_marginal(groups, demand)
        self.x, self.w, self.gains = marginal.x, groups.q, np.diff(groups.contained)
        self.above, self.split, self.most = groups.above, marginal.split, marginal.most
        self.raised, self.capped = 0, self.x.size
        self.ratio = self.by_bin(marginal.ratio)

    def by_bin(self, of_groups: Vector) -> Vector:
        """Numbers of the groups by bins; zero in the bin of tokens that are never drafted."""
        return np.append(of_groups, 0.0)[self.groups.place]

    @property
    @abstractmethod
    def passed(self) -> float:
        """Mean accepted mass of the selected drafts."""

    @property
    def gap(self) -> float:
        """Upper bound of the difference between `most` and what this plan passes."""
        return max(self.most - self.passed, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class BinMarginal:
    r"""Marginal p_I of groups of bins, x, for a target r p, and :math:`\rho`, its ratio to q there.

    Both have shape (n,); `split` groups are in the optimal prefix; no rule passes more than `most`
    on average.
    """

    x: Vector
    ratio: Vector
    split: int
    most: float


def bin_marginal(groups: BinGroups, demand: float = 1.0) -> BinMarginal:
    """Marginal for a target of mass r = `demand`, positive and at most one."""
    from mdsd_opt.verifiers.optimal.acceptance_rule_kernels import fill_bins

    size = groups.q.size
    x, room, starts = np.empty(size), np.empty((3, size + 1)), np.empty(size + 1, np.int64)
    split, least = fill_bins(
        demand * groups.p, groups.q, demand * groups.lowest, demand * groups.highest,
        groups.contained, room, starts, x,
    )  # fmt: skip
    return BinMarginal(x, x / groups.q, split, min(max(1.0 + least, 0.0), 1.0))


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
