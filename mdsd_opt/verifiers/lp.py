"""The plan of any LP or flow solver, turned into a verifier."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme
from mdsd_opt.errors import InvalidInput
from mdsd_opt.plan_check import feasible_mass
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solution import Solution, TransportPlan
from mdsd_opt.verifiers.base import Decision, Verifier, normalised, positive_part, target_of

SetShares = dict[tuple[int, ...], dict[int, Any]]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """For each draft set, Pr(accept token | set); and the law of the output after a rejection."""

    shares: SetShares
    residual: NDArray[Any] | None


class LinearProgramme(Verifier):
    r"""Accept token i of draft set S with probability C(i, S) / W_S, C the plan.

    Otherwise draw from the residual :math:`p - \sum_S C(\cdot, S)`, normalised; any feasible plan
    is lossless so. Optimal if the plan is. For every scheme, at vocabularies the plan can be
    computed for: solved once for each problem and remembered.

    Parameters
    ----------
    solution : Solution, optional
        Use the plan of this solution, whatever the problem.
    method : str, optional
        Solver for the others: "full_lp" unless given.
    """

    name: ClassVar[str] = "lp"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (DraftScheme,)

    def __init__(self, solution: Solution | None = None, method: str = "full_lp") -> None:
        if solution is not None and solution.plan is None:
            raise InvalidInput(
                f"the solution of method {solution.method!r} has no plan: full_lp, dual_lp and "
                "max_flow give one"
            )
        self._solution = solution
        self._method = method
        self._prepared: WeakKeyDictionary[TransportProblem, dict[bool, _Prepared]] = (
            WeakKeyDictionary()
        )
        self._plans: WeakKeyDictionary[TransportProblem, TransportPlan] = WeakKeyDictionary()

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        prepared = self._prepare(problem, exact)
        members = drafts.tolist()
        shares = prepared.shares.get(tuple(sorted({*members} - {-1})), {})
        zero: Any = Fraction(0) if exact else 0.0
        accept = np.zeros(drafts.size, dtype=object if exact else np.float64) + zero
        for token, share in shares.items():
            accept[members.index(token)] = share
        return Decision(accept, prepared.residual)

    def acceptance_rate(self, problem: TransportProblem) -> float:
        """Value of the plan, and residual hits if it is not optimal."""
        plan = self._plan(problem)
        mass = feasible_mass(problem, plan)
        residual = normalised(
            positive_part(
                problem.target
                - TransportPlan(plan.tokens, plan.offsets, mass).token_mass(problem.vocab_size)
            )
        )
        rate = float(mass.sum())
        if residual is not None:
            law = problem.drafts.support_law()
            plan = TransportPlan(plan.tokens, plan.offsets, mass)
            accepted = dict(zip(_sets(plan), plan.support_mass().tolist(), strict=True))
            for members, drawn in zip(law.sets(), law.mass.tolist(), strict=True):
                hit = float(residual[list(members)].sum())
                rate += max(drawn - accepted.get(members, 0.0), 0.0) * hit
        return min(rate, 1.0)

    def _plan(self, problem: TransportProblem) -> TransportPlan:
        if self._solution is not None:
            assert self._solution.plan is not None
            return self._solution.plan
        if problem not in self._plans:
            from mdsd_opt.solvers import solve

            plan = solve(problem, self._method).plan
            assert plan is not None
            self._plans[problem] = plan
        return self._plans[problem]

    def _prepare(self, problem: TransportProblem, exact: bool) -> _Prepared:
        known = self._prepared.setdefault(problem, {})
        if exact not in known:
            known[exact] = _prepare(problem, self._plan(problem), exact)
        return known[exact]


def _prepare(problem: TransportProblem, plan: TransportPlan, exact: bool) -> _Prepared:
    drawn: dict[tuple[int, ...], Any]
    if exact:
        drawn = dict(problem.drafts.exact_support_law())
        mass: Any = _exactly_feasible(problem, plan)
    else:
        law = problem.drafts.support_law()
        drawn = dict(zip(law.sets(), law.mass.tolist(), strict=True))
        mass = feasible_mass(problem, plan)
    left = target_of(problem, exact).copy()
    shares: SetShares = {}
    bounds = plan.offsets.tolist()
    for members, (start, stop) in zip(_sets(plan), pairwise(bounds), strict=True):
        total = drawn.get(members, 0)
        for arc in range(start, stop):
            if mass[arc] > 0 and total > 0:
                token = int(plan.tokens[arc])
                shares.setdefault(members, {})[token] = mass[arc] / total
                left[token] -= mass[arc]
    return _Prepared(shares, normalised(positive_part(left)))


def _exactly_feasible(problem: TransportProblem, plan: TransportPlan) -> list[Fraction]:
    """The plan's masses as Fractions, each scaled down by what its token or set exceeds."""
    law = problem.drafts.exact_support_law()
    p = problem.exact_target
    mass = [Fraction(max(x, 0.0)) for x in plan.mass.tolist()]
    tokens = plan.tokens.tolist()
    by_token = [Fraction(0)] * problem.vocab_size
    for i, x in zip(tokens, mass, strict=True):
        by_token[i] += x
    result = []
    for members, (start, stop) in zip(_sets(plan), pairwise(plan.offsets.tolist()), strict=True):
        used = sum(mass[start:stop], Fraction(0))
        kept = min(Fraction(1), law.get(members, Fraction(0)) / used) if used else Fraction(0)
        result += [
            mass[arc] * min(kept, p[tokens[arc]] / by_token[tokens[arc]])
            if mass[arc]
            else Fraction(0)
            for arc in range(start, stop)
        ]
    return result


def _sets(plan: TransportPlan) -> list[tuple[int, ...]]:
    tokens = plan.tokens.tolist()
    return [tuple(sorted(tokens[a:b])) for a, b in pairwise(plan.offsets.tolist())]


VERIFIER = LinearProgramme()
