"""Decisions by a fitted rule: select a draft, then verify it alone against its exact law."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Decision, target_of
from mdsd_opt.verifiers.optimal import ladder, potentials
from mdsd_opt.verifiers.optimal.selection_rule import SelectionRule
from mdsd_opt.verifiers.rejection import accepted, nothing_accepted, residual_law

#: Draft tuples that p_Z may be summed over in exact arithmetic.
_MAX_EXACT_TUPLES = 20_000

Law = NDArray[Any]


def fitted(problem: TransportProblem, tolerance: float) -> SelectionRule:
    """The quickest rule whose gap is within `tolerance`, or the best there is.

    Heights on a subset that is found in a few passes; heights on a subset that is proven optimal;
    potentials on it.
    """
    rules: list[SelectionRule] = []
    if ladder.applies_to(problem):
        rules.append(ladder.fit(problem, tolerance))
        if rules[0].gap <= tolerance:
            return rules[0]
    upper, subset = _optimal_subset(problem)
    if rules and (subset != rules[0].subset).any():
        rules.append(ladder.fit(problem, tolerance, subset))
    best = max(rules, key=lambda rule: rule.bound, default=None)
    if best is None or best.bound < upper - tolerance:
        rules.append(potentials.fit(problem, tolerance, subset, upper))
        best = max(rules, key=lambda rule: rule.bound)
    return replace(best, upper=min(upper, best.upper))


def _optimal_subset(problem: TransportProblem) -> tuple[float, NDArray[np.bool_]]:
    from mdsd_opt.solvers import solve

    try:
        solution = solve(problem, "submodular")
    except ProblemTooLarge:
        solution = solve(problem)
    assert solution.subset is not None
    return solution.upper_bound, solution.subset


class FittedRule:
    """Decisions on one problem by its selection rule."""

    def __init__(self, rule: SelectionRule) -> None:
        self.rule = rule
        self._laws: dict[bool, tuple[Law, Law, Law]] = {}

    def decide(self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool) -> Decision:
        """Accept the selected z with probability min(1, p_z / p_Z(z)), else (p - p_Z)+."""
        p, selection, residual = self._law(problem, exact)
        accept = nothing_accepted(drafts, p)
        for place, share in self.rule.shares(drafts, exact):
            token = int(drafts[place])
            accept[place] = share * accepted(p[token], selection[token])
        return Decision(accept, residual)

    def _law(self, problem: TransportProblem, exact: bool) -> tuple[Law, Law, Law]:
        """The target without fixed tokens, p_Z, and the law of the output after a rejection."""
        if exact not in self._laws:
            target = target_of(problem, exact)
            p = target.copy()
            p[self.rule.fixed] = target[0] * 0
            selection = self._exact_selection(problem) if exact else np.array(self.rule.selection)
            taken = np.minimum(p, selection)
            self._laws[exact] = (p, selection, residual_law(target, taken))
        return self._laws[exact]

    def _exact_selection(self, problem: TransportProblem) -> Law:
        """p_Z of the same rule, summed over all draft tuples in Fractions."""
        count = problem.drafts.count_tuples()
        if count > _MAX_EXACT_TUPLES:
            raise ProblemTooLarge(
                f"exact=True sums the law of the selected draft over {count:,} draft tuples, more "
                f"than {_MAX_EXACT_TUPLES:,}: use exact=False, or a smaller vocabulary"
            )
        law = np.array([Fraction(0)] * problem.vocab_size, dtype=object)
        for members, mass in problem.drafts.exact_tuple_law().items():
            drafts = np.array(members, dtype=np.int64)
            for place, share in self.rule.shares(drafts, exact=True):
                law[drafts[place]] += mass * share
        return law
