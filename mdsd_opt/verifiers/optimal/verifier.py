"""The optimal verifier: prepares a plan, decides by it."""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import (
    DraftScheme,
    FixedPlusDrafts,
    PrefixDraftScheme,
)
from mdsd_opt.errors import InvalidInput
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
from mdsd_opt.verifiers.estimate import CertifiedRate
from mdsd_opt.verifiers.optimal import sort_free_step
from mdsd_opt.verifiers.optimal.block_rules import block_rule
from mdsd_opt.verifiers.optimal.hull import blocks_around, death_levels
from mdsd_opt.verifiers.optimal.plan import SelectionPlan, plan_of
from mdsd_opt.verifiers.optimal.potential_rule import PotentialRule

#: Draft tuples up to which the acceptance rate of potentials is enumerated.
_MAX_TUPLES = 3000


class Optimal(Verifier):
    """Accepts as often as any lossless rule can.

    Where the drafts have a prefix order (with and without replacement, greedy, top-K, any of these
    beside a fixed set, mixtures over one draft model) by water levels, hull rule and residual, in
    closed form: O(V) for a decision with and without replacement, else O(V log V), and as much for
    `conditional_law`, which integrates over the mixing level. For all other draft laws by
    `potentials`, which are fitted once for each problem and remembered: lossless at any potentials,
    and at most `gap` below the optimum. That takes some tens of passes of O(K V log V) for
    different draft models at any V, or over the listed draft sets of other laws; a decision then
    costs O(K^3 + V).
    Source: this package, on the subset selection of [Hu25].

    Parameters
    ----------
    gap : float
        How far below the optimum the potentials may stay.
    """

    name: ClassVar[str] = "optimal"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (DraftScheme,)

    def __init__(self, gap: float = 1e-6) -> None:
        if not gap > 0:
            raise InvalidInput(f"gap is {gap!r}: give a positive number, such as 1e-6")
        self._gap = gap
        self._fitted: WeakKeyDictionary[TransportProblem, PotentialRule] = WeakKeyDictionary()

    def configured(self, **options: Any) -> Verifier:
        """With another `gap`, or with ``collapsed=True`` in one pass: exact law, certified gap."""
        return _form(self, **options)

    def acceptance_rate(self, problem: TransportProblem) -> float:
        """The optimum of the transport LP, alpha* = 1 + min_H [P(H) - Q(H)].

        Without a prefix order a `CertifiedRate`: the rate of the fitted potentials, which its
        ``gap`` tells from the optimum. Where there are too many draft tuples to enumerate, it
        leaves out the accepted part of the residual, which lies within the same gap.
        """
        self.check(problem)
        if not isinstance(problem.drafts, PrefixDraftScheme):
            potentials = self._rule(problem).potentials
            rate, optimum = potentials.bound, potentials.bound + potentials.gap
            if problem.drafts.count_tuples() <= _MAX_TUPLES:
                rate = min(float(self.enumerated_acceptance_rate(problem)), 1.0)
            return CertifiedRate(rate, max(optimum - rate, 0.0))
        from mdsd_opt.solvers import solve

        return solve(problem, "subset_selection").acceptance_rate

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        if not isinstance(problem.drafts, PrefixDraftScheme):
            return self._rule(problem).decide(problem, drafts, exact)
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

    def _rule(self, problem: TransportProblem) -> PotentialRule:
        if problem not in self._fitted:
            self._fitted[problem] = PotentialRule(problem, self._gap)
        return self._fitted[problem]

    def _verify(
        self, problem: TransportProblem, tokens: NDArray[np.int64], uniforms: Uniforms
    ) -> Verdict:
        if not isinstance(problem.drafts, PrefixDraftScheme):
            return super()._verify(problem, tokens, uniforms)
        drafts = problem.drafts
        if sort_free_step.applies_to(drafts) and sort_free_step.resolves(drafts, tokens):
            return verdict(sort_free_step.decide(problem.target, drafts, tokens, uniforms), tokens)
        plan = plan_of(problem)
        if plan is None:
            return verdict(draw(problem.target, uniforms.residual), tokens)
        places, positions = random_drafts(problem, plan, tokens)
        chosen = select(plan, positions, uniforms)
        if uniforms.acceptance < accepted_share(plan, positions[chosen]):
            return verdict(int(tokens[places[chosen]]), tokens)
        return verdict(draw(plan.residual, uniforms.residual), tokens)


def _form(usual: Verifier, *, collapsed: bool = False, gap: float | None = None) -> Verifier:
    if not collapsed:
        return usual if gap is None else Optimal(gap)
    if gap is not None:
        raise InvalidInput("collapsed=True has no gap to choose: it certifies the one it has")
    from mdsd_opt.verifiers.optimal.collapsed import CollapsedOptimal

    return CollapsedOptimal(usual)


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
