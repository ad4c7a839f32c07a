r"""Selection plans of one decision: of groups of tokens, of single tokens, and of closed bins.

Without sorting the vocabulary, tokens are collected in buckets of p/q, and what the rule asks for
(the cut, the water levels, the block of the topmost draft) is computed on the buckets as if each
were a tie. Buckets for which that could be wrong are opened, and it is computed again: usually a
few hundred tokens are ever looked at one by one. `SortedPlan`, in which every token is a group of
its own, is the reference.

`BinPlan` never opens a bin: one pass, an exact law, a certified loss of acceptance. The marginal of
the selected draft has one ratio :math:`\rho_b` to q in every bin. The output follows the target r p
whatever :math:`\rho` is, as long as it rises and its prefix sums stay above those of Q. Inside the
optimal subset it is raised to the bin's largest p/q, outside it is lowered to the least one, as far
as the room that acceptance leaves allows: then nothing is lost, for all of r p, or all of p_I, is
accepted. Each token is accepted with min(1, p/p_I) by its own p; what the bins lose is what
`acceptance_rate` reports as its `gap`. `mdsd_opt.trees.device_laws` reads the marginal from the
sums over bins alone; the docstring of `mdsd_opt.verifiers.optimal` says what each of them loses.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, TypeGuard

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Numbers, Tokens, Vector
from mdsd_opt.drafts import DraftScheme, PrefixDraftScheme, WithoutReplacement, WithReplacement
from mdsd_opt.prefix_search import (
    EDGES,
    MAX_TOKENS,
    NEVER_DRAFTED,
    NUM_BINS,
    NUM_BUCKETS,
    RATIO_ERROR,
    BinGroups,
    Bins,
    CutSearch,
    RandomDraws,
    groups_of,
    is_searchable,
    race_sums_of_row,
    ratio_keys,
    ratios_at,
    row_table,
    steps_of,
)
from mdsd_opt.problem import TransportProblem, fill
from mdsd_opt.solvers import best_length
from mdsd_opt.verifiers.base import Remembered, Verifier, draw, target_of
from mdsd_opt.verifiers.optimal import acceptance_rule_kernels as kernels
from mdsd_opt.verifiers.optimal.acceptance_rule import (
    BlockRule,
    Drawn,
    RuleOfDraws,
    SelectionPlan,
    TokenPlan,
    acceptance_probabilities,
    block_rule,
    mixed_rule,
    output_token,
    undisputed_draft,
)
from mdsd_opt.verifiers.rejection import residual_law
from mdsd_opt.verifiers.verdicts import CertifiedRate, Decision, Uniforms, Verdict, verdict

#: Least mass left for the last draft: sums over prefixes lose tokens that are small beside those
#: before them. Their rounding error is 1e-16, which below this mass would show in the law.
_LEAST_MASS_LEFT = 1e-7


def applies_to(draws: RandomDraws | None) -> TypeGuard[RandomDraws]:
    """Whether drafts are drawn at random from one q, over few enough tokens for packed keys."""
    return is_searchable(draws) and draws.q.size <= MAX_TOKENS


def resolves(draws: RandomDraws, tokens: Tokens) -> bool:
    """Whether sums over prefixes can tell these drafts apart.

    Beside q = 1, tokens of q = 1e-20 are lost in them, but without replacement the second draft is
    one of those.
    """
    if draws.is_replaced:
        return True
    return bool(1.0 - draws.q[tokens[:-1]].sum() > _LEAST_MASS_LEFT)


class GroupedPlan(TokenPlan):
    """Plan whose groups are buckets of p/q, and single tokens where that makes a difference.

    The cut and the water levels are those of the tokens. A block is certain at the one level that
    was asked for: that may open more groups, which changes their places. So a plan serves one
    decision, and not the mean over all levels. If the drafts are given with that level (`ahead`),
    what their block needs is opened along with the rest.
    """

    def __init__(
        self, p: Vector, draws: RandomDraws, ahead: tuple[Tokens, float] | None = None
    ) -> None:
        self.is_replaced, self.target, self.q = draws.is_replaced, p, draws.q
        self._search = CutSearch(p, draws)
        self._asked = self._keys = np.empty(0, np.int64)
        self._fill()
        while self._is_doubtful():
            if ahead is not None and undisputed_draft(self, ahead[0]) is None:
                self._doubted_block(*ahead)
            ahead = None
            self._open()

    def _fill(self) -> None:
        """Compute the marginal on the groups, as if each were a tie."""
        ends, self.split = self._search.groups.ends, self._search.split
        filled = np.empty((kernels.ROWS, ends.shape[1]))
        self.raised, c, self.capped, cap = kernels.fill_groups(ends, self.split, filled)
        self._levels = c, cap
        self.x, self.w, self.gains = filled[: kernels.TOP_P, :-1]
        self.above = filled[kernels.TOP_W, ::-1]

    def _is_doubtful(self) -> bool:
        """Whether cut and water levels may lie inside groups, which have to be opened."""
        search = self._search
        is_cut_doubtful = search.doubts_cut(search.containment.slack)
        return is_cut_doubtful | kernels.doubt_levels(
            search.groups.table, EDGES, self.split, *self._levels, search.is_doubtful
        )

    def _open(self) -> None:
        self._search.open()
        self._fill()

    def places(self, tokens: Tokens) -> Tokens:
        if tokens is not self._asked:  # the drafts are asked for again after every opening
            self._asked = tokens
            self._keys = ratio_keys(self.target, self.q, tokens, packed=True)
        return self._search.groups.places(self._keys)

    def selected(self, token: int) -> float:
        c, cap = self._levels
        p, q = float(self.target[token]), float(self.q[token])
        place = int(self.places(np.array([token]))[0])
        return max(p, c * q) if place < self.split else min(p, cap * q)

    def block(self, tokens: Tokens, level: float) -> tuple[int, int]:
        while True:
            block, is_doubtful = self._doubted_block(tokens, level)
            if not is_doubtful:
                return block
            self._open()
            while self._is_doubtful():
                self._open()

    def _doubted_block(self, tokens: Tokens, level: float) -> tuple[tuple[int, int], bool]:
        """Block on the groups as they are, and whether some of them have to be opened for it."""
        search = self._search
        start, stop = super().block(tokens, level)
        c, cap = self._levels
        is_doubtful = kernels.doubt_block(
            search.groups.table, search.groups.ends, search.containment.sums,
            *search.ratio_bounds, search.containment.exponent, search.containment.slack, level,
            self.split, self.raised, c, self.capped, cap, start, stop, np.empty(self.above.size),
            search.is_doubtful,
        )  # fmt: skip
        return (start, stop), is_doubtful

    def residual_token(self, uniform: float) -> int:
        ratio = np.full(NUM_BUCKETS, self._levels[1])
        if self.split > 0:  # nothing is left inside the cut, whatever level the rest is capped at
            groups, last = self._search.groups, self.split - 1
            bucket, token = int(groups.buckets[last]), int(groups.tokens[last])
            ratio[: max(bucket, ~bucket) + 1] = np.inf
            if bucket < 0:  # the cut lies inside this bucket
                highest = self.target[token] / self.q[token] * (1.0 + RATIO_ERROR)
                ratio[~bucket] = max(self._levels[1], highest)
        ratio[NEVER_DRAFTED] = 0.0
        return token_above(self.target, self.q, self._search.containment.buckets, ratio, uniform)


def token_above(
    p: Vector, q: Vector, buckets: NDArray[np.uint16], ratio: Vector, uniform: float
) -> int:
    """Draw from the positive part of p - ratio q; from p if only rounding can ask for it.

    p, q and buckets have shape (V,), and the ratio of all tokens of a bucket shape (NUM_BUCKETS,).
    """
    room = np.empty(-(-p.size // kernels.BLOCK))
    token = kernels.excess_token(p, q, buckets, ratio, uniform, room)
    return (
        token
        if token >= 0
        else kernels.excess_token(p, q, buckets, np.zeros(ratio.size), uniform, room)
    )


class SortedPlan(TokenPlan):
    """Plan in which every token is a group of its own.

    Made of the target, in float64 or Fractions, the `fixed` tokens that are drafted anyway (the
    others have the target without them), and drafts without such tokens. `order`, shape (n,), holds
    the token of each group, `position`, shape (V,), the group of each token, -1 for tokens that are
    never drafted, and p the target of each group; `selection` is p_I of every token and `residual`
    the law of the output after a rejection, shape (V,) both.
    """

    def __init__(self, target: Numbers, fixed: Tokens, drafts: PrefixDraftScheme) -> None:
        exact = target.dtype == object
        self.drafts, draws = drafts.law(exact), drafts.random_draws
        self.is_replaced = draws is not None and draws.is_replaced
        self._whole, self.target = target, target.copy()
        self.target[fixed] = target[:1].sum() * 0
        self.q = self.drafts.weights
        if exact:
            self.order, contained = drafts.ordered(self.target)
            self.w, self.gains = self.q[self.order], np.diff(contained)
        else:
            self.order = drafts.prefix_order(self.target)
            contained, slopes = drafts.prefix_containment_and_slopes(self.order)
            self.w = self.q[self.order]
            self.gains = self.w * slopes
        self.p = self.target[self.order]
        self.split, _ = best_length(self.p, contained)
        inside = contained[self.split]
        filled = fill(self.p, self.w, self.split, inside, 1 - inside)
        self.x, self.raised, _, self.capped, _ = filled
        self.above = np.append(np.cumsum(self.w[::-1])[::-1], [inside * 0])
        self.position = np.full(target.size, -1, dtype=np.int64)
        self.position[self.order] = np.arange(self.order.size)
        self.selection = self.target * 0
        self.selection[self.order] = self.x

    @cached_property
    def residual(self) -> Numbers:
        return residual_law(self._whole, np.minimum(self.target, self.selection))

    def block_rule(self, drawn: Drawn, rule_of: RuleOfDraws = block_rule) -> BlockRule:
        if self.drafts.random_draws is None:
            return mixed_rule(self.drafts, drawn, rule_of)
        return super().block_rule(drawn, rule_of)

    def places(self, tokens: Tokens) -> Tokens:
        return self.position[tokens]

    def selected(self, token: int) -> Any:
        return self.selection[token]

    def residual_token(self, uniform: float) -> int:
        return draw(self.residual, uniform)


def plan_of(problem: TransportProblem, exact: bool = False) -> SortedPlan | None:
    """Plan of a problem; None if its drafts are certain, so that there is nothing to select.

    A rejection may land among the tokens that are always drafted.
    """
    beside = problem.drafts.beside_fixed
    if beside is None:
        return None
    assert beside.prefix_form is not None
    target, fixed = target_of(problem, exact), problem.drafts.always_drafted
    return SortedPlan(target, fixed, beside.prefix_form)


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
