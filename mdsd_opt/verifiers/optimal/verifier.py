"""The optimal verifier: prepares a plan, decides by it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import (
    DraftScheme,
    FixedPlusDrafts,
    GreedyDrafts,
    MixtureDrafts,
    PrefixDraftScheme,
    TopKDrafts,
    WithoutReplacement,
    WithReplacement,
)
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import (
    Decision,
    Uniforms,
    Verdict,
    Verifier,
    draw,
    impossible_drafts,
    target_of,
    verdict,
)
from mdsd_opt.verifiers.optimal import sort_free_step
from mdsd_opt.verifiers.optimal.block_rules import block_rule
from mdsd_opt.verifiers.optimal.hull import blocks_around, death_levels
from mdsd_opt.verifiers.optimal.plan import SelectionPlan, plan_of


class Optimal(Verifier):
    """Water levels, hull rule, residual: accepts as often as any lossless rule can.

    Lossless and optimal for drafts with replacement, without replacement, greedy, top-K, any of
    these beside a fixed set, and mixtures over one draft model. Cost of a decision: O(V) with and
    without replacement, else O(V log V); `conditional_law`, which integrates over the mixing level,
    O(V log V).
    Source: this package, on the subset selection of [Hu25].
    """

    name: ClassVar[str] = "optimal"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (
        WithReplacement,
        WithoutReplacement,
        GreedyDrafts,
        TopKDrafts,
        FixedPlusDrafts,
        MixtureDrafts,
    )

    def configured(self, **options: Any) -> Verifier:
        """With ``collapsed=True`` the one-pass form: exact law, certified loss of acceptance."""
        return _form(self, **options)

    def acceptance_rate(self, problem: TransportProblem) -> float:
        """The optimum of the transport LP, alpha* = 1 + min_H [P(H) - Q(H)]."""
        self.check(problem)
        from mdsd_opt.solvers import subset_selection

        return subset_selection.solve(problem).acceptance_rate

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        plan = plan_of(problem, exact)
        if plan is None:  # the drafts are certain: the target itself is the best that can be done
            target = target_of(problem, exact)
            return Decision(np.zeros(drafts.size, dtype=target.dtype) + target[0] * 0, target)
        places, positions = random_drafts(problem, plan, drafts)
        levels = death_levels(plan.x, plan.w, plan.slopes)
        rule = block_rule(plan.drafts, positions, plan.w, plan.above)
        zero = plan.x[0] * 0
        shares = np.zeros(positions.size, dtype=plan.x.dtype) + zero
        for length, start, stop in blocks_around(int(positions.max()), levels):
            shares = shares + length * rule(start, stop)
        accept = np.zeros(drafts.size, dtype=plan.x.dtype) + zero
        for place, position, share in zip(places, positions, shares, strict=True):
            if share > 0:
                accept[place] = share * accepted_share(plan, position)
        return Decision(accept, plan.residual)

    def _verify(
        self, problem: TransportProblem, tokens: NDArray[np.int64], uniforms: Uniforms
    ) -> Verdict:
        if sort_free_step.applies_to(problem.drafts):
            token = sort_free_step.decide(problem.target, problem.drafts, tokens, uniforms)
            return verdict(token, tokens)
        plan = plan_of(problem)
        if plan is None:
            return verdict(draw(problem.target, uniforms.residual), tokens)
        places, positions = random_drafts(problem, plan, tokens)
        chosen = select(plan, positions, uniforms)
        if uniforms.acceptance < accepted_share(plan, positions[chosen]):
            return verdict(int(tokens[places[chosen]]), tokens)
        return verdict(draw(plan.residual, uniforms.residual), tokens)


def _form(usual: Verifier, *, collapsed: bool = False) -> Verifier:
    if not collapsed:
        return usual
    from mdsd_opt.verifiers.optimal.collapsed import CollapsedOptimal

    return CollapsedOptimal()


def random_drafts(
    problem: TransportProblem, plan: SelectionPlan, tokens: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of the drafts that were drawn at random: in the tuple, and in the prefix order."""
    assert isinstance(problem.drafts, PrefixDraftScheme)
    fixed = problem.drafts.always_drafted
    if isinstance(problem.drafts, FixedPlusDrafts):  # a random draft may hit a fixed token again
        places = fixed.size + np.flatnonzero(tokens[fixed.size :] >= 0)
    else:
        places = np.flatnonzero((tokens >= 0) & ~np.isin(tokens, fixed))
    positions = plan.position[tokens[places]]
    if positions.size == 0 or positions.min() < 0:
        raise impossible_drafts(problem.drafts, tokens)
    return places, positions


def accepted_share(plan: SelectionPlan, position: int) -> Any:
    """min(1, p / p_I) of the token at this place; a token of probability zero is never accepted."""
    p, x = plan.p[position], plan.x[position]
    return p / x if p < x else p * 0 + (1 if p > 0 else 0)


def select(plan: SelectionPlan, positions: NDArray[np.int64], uniforms: Uniforms) -> int:
    """Index of the selected draft at one mixing level."""
    from mdsd_opt.verifiers.optimal.hull_kernels import block_at_level

    top = int(positions.max())
    # The end of the optimal prefix is a boundary at every level: one side of it is enough.
    first, last = (0, plan.split) if top < plan.split else (plan.split, plan.order.size)
    start, stop = block_at_level(plan.x, plan.w, plan.slopes, uniforms.mixing, first, last, top)
    shares = block_rule(plan.drafts, positions, plan.w, plan.above)(start, stop)
    reached = np.cumsum(shares)
    k = int(np.searchsorted(reached, uniforms.draft * reached[-1], side="right"))
    return min(k, int(np.flatnonzero(shares > 0)[-1]))


VERIFIER = Optimal()
