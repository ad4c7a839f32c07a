"""The plan of any LP or flow solver, turned into a verifier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Integers, Numbers
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem import Solution, TransportPlan, TransportProblem
from mdsd_opt.verifiers.base import Remembered, Verifier
from mdsd_opt.verifiers.rejection import nothing_accepted, residual_law
from mdsd_opt.verifiers.verdicts import Decision

#: Options of methods; this formulation ends in a basis, which gives the plan without rounding.
_OPTIONS: dict[str, dict[str, Any]] = {"full_lp": {"formulation": "supports"}}


@dataclass(frozen=True, slots=True, eq=False)
class _Rule:
    """Probability to accept each token of a set that accepts any; output law after a rejection."""

    shares: dict[tuple[int, ...], dict[int, Any]]
    residual: Numbers


class LinearProgramme(Verifier):
    r"""Accept token i of draft set S with probability C(i, S) / W_S, C the plan.

    Otherwise draw from the residual :math:`p - \sum_S C(\cdot, S)`, normalised; any feasible plan
    is lossless so, and a plan that is not feasible is scaled down until it is. Optimal if the plan
    is. For every scheme, at vocabularies the plan can be computed for: solved once for each problem
    and remembered. Cost of the plan: see the method of that name; of a decision: O(K + V).
    ``exact=True`` takes the plan from its basis or its integer flow, without rounding; a plan
    without them is read as exact dyadic numbers and scaled down to be feasible.

    Parameters
    ----------
    solution : Solution, optional
        Use the plan of this solution, whatever the problem.
    method : str, optional
        Solver of the plan if none is given, such as "full_lp" or "max_flow".
    """

    name: ClassVar[str] = "lp"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (DraftScheme,)
    rates_any_batch: ClassVar[bool] = False  # an LP a position, for the rate of `optimal`

    def __init__(self, solution: Solution | None = None, method: str = "full_lp") -> None:
        if solution is not None and solution.plan is None:
            raise InvalidInput(
                f"the solution of method {solution.method!r} has no plan: full_lp, dual_lp and "
                "max_flow give one"
            )
        self._fixed_plan = None if solution is None else solution.plan
        self._method = method
        self._plan = Remembered(self._plan_of)
        self._rule = Remembered(partial(self._planned_rule, exact=False))
        self._exact_rule = Remembered(partial(self._planned_rule, exact=True))

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
        rule = (self._exact_rule if exact else self._rule)(problem)
        accept = nothing_accepted(drafts, rule.residual)
        members = tuple(np.unique(drafts[drafts >= 0]).tolist())
        order = drafts.tolist()
        for token, share in rule.shares.get(members, {}).items():
            accept[order.index(token)] = share
        return Decision(accept, rule.residual)

    def acceptance_rate(self, problem: TransportProblem) -> float:
        """Value of the plan, and residual hits if it is not optimal."""
        rule = self._rule(problem)
        rate = 0.0
        for members, drawn in problem.drafts.support_law().masses().items():
            accepted = sum(rule.shares.get(members, {}).values())
            hit = float(rule.residual[list(members)].sum())
            rate += drawn * (accepted + max(1.0 - accepted, 0.0) * hit)
        return min(rate, 1.0)

    def _planned_rule(self, problem: TransportProblem, exact: bool) -> _Rule:
        return _rule_of(problem, self._plan(problem), exact)

    def _plan_of(self, problem: TransportProblem) -> TransportPlan:
        if self._fixed_plan is not None:
            if self._fixed_plan.tokens.max(initial=0) >= problem.vocab_size:
                raise InvalidInput(
                    f"the given plan is of a larger vocabulary than the {problem.vocab_size} "
                    "tokens of the problem: give a solution of the same problem"
                )
            return self._fixed_plan
        from mdsd_opt.solvers import solve

        solution = solve(problem, self._method, **_OPTIONS.get(self._method, {}))
        if solution.plan is None:
            raise InvalidInput(
                f"method {self._method!r} gives no plan for {problem!r}: full_lp, dual_lp and "
                "max_flow do"
            )
        return solution.plan


def _rule_of(problem: TransportProblem, plan: TransportPlan, exact: bool) -> _Rule:
    from mdsd_opt.problem import feasible_mass, feasible_masses

    law = problem.law(exact)
    drawn, p = law.drafts.support_law().masses(), law.target
    masses: list[Any] = (
        feasible_masses(problem, plan) if exact else feasible_mass(problem, plan).tolist()
    )
    taken = p * 0
    shares: dict[tuple[int, ...], dict[int, Any]] = {}
    tokens = plan.tokens.tolist()
    for start, stop in pairwise(plan.offsets.tolist()):
        members = tuple(sorted(tokens[start:stop]))
        for token, mass in zip(tokens[start:stop], masses[start:stop], strict=True):
            if mass > 0:
                shares.setdefault(members, {})[token] = mass / drawn[members]
                taken[token] += mass
    return _Rule(shares, residual_law(p, taken))


VERIFIER = LinearProgramme()
