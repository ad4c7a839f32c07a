"""Selection plan of one decision, without sorting the vocabulary.

Tokens are collected in buckets of p/q, and what the rule asks for (the cut, the water levels, the
block of the topmost draft) is computed on the buckets as if each were a tie. Buckets for which that
could be wrong are opened, and it is computed again: usually a few hundred tokens are ever looked at
one by one.

Reference among selection plans, in which every token is a group of its own.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Numbers, Tokens, Vector
from mdsd_opt.drafts import PrefixDraftScheme
from mdsd_opt.prefix_search import (
    EDGES,
    MAX_TOKENS,
    NEVER_DRAFTED,
    NUM_BUCKETS,
    RATIO_ERROR,
    CutSearch,
    RandomDraws,
    is_searchable,
    ratio_keys,
)
from mdsd_opt.problem import TransportProblem, fill
from mdsd_opt.solvers import best_length
from mdsd_opt.verifiers.base import draw, target_of
from mdsd_opt.verifiers.optimal import acceptance_rule_kernels as kernels
from mdsd_opt.verifiers.optimal.acceptance_rule import (
    BlockRule,
    Drawn,
    RuleOfDraws,
    TokenPlan,
    block_rule,
    mixed_rule,
    undisputed_draft,
)
from mdsd_opt.verifiers.rejection import residual_law

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
