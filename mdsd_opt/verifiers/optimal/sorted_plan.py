"""Reference among selection plans, in which every token is a group of its own."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Numbers, Tokens
from mdsd_opt.drafts import PrefixDraftScheme
from mdsd_opt.problem import TransportProblem, fill
from mdsd_opt.solvers import best_length
from mdsd_opt.verifiers.base import draw, target_of
from mdsd_opt.verifiers.optimal.acceptance_rule import (
    BlockRule,
    Drawn,
    RuleOfDraws,
    TokenPlan,
    block_rule,
    mixed_rule,
)
from mdsd_opt.verifiers.rejection import residual_law


class SortedPlan(TokenPlan):
    """Plan in which every token is a group of its own.

    Made of the target, in float64 or Fractions, the `fixed` tokens that are drafted anyway (the
    others have the target without them), and drafts without such tokens. `order`, shape (n,), holds
    the token of each group, `position`, shape (V,), the group of each token, -1 for tokens that are
    never drafted, and p the target of each group; `selection` is p_I of every token and `residual`
    the law of the output after a rejection, shape (V,) both.
    """

    def __init__(self, target: Numbers, fixed: Tokens, drafts: PrefixDraftScheme) -> None:
        self.drafts, draws = drafts, drafts.random_draws
        self.is_replaced = draws is not None and draws.is_replaced
        self._whole, self.target = target, target.copy()
        self.target[fixed] = target[:1].sum() * 0
        exact = target.dtype == object
        self.q: Numbers = np.array(drafts.exact_weights, object) if exact else drafts.weights
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
