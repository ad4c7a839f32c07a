"""Solvers and their certificates, against alpha* over all subsets."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from support.solver_table import TABLE, two_independent_drafts

import mdsd_opt as mo
from mdsd_opt.problem import Solution, Status
from stress.problems import BUILDERS, Case, draw_case
from stress.tally import Tally, Trial

#: Of a closed form; and of a linear programme, a flow or a routine that stops where its bounds are
#: 1e-9 apart, with the rounding of that.
CLOSED_FORM, PROGRAMME = 1e-12, 1e-9 + 1e-14

#: A problem in this many also goes through CVXPY, which takes some tens of milliseconds.
_SLOW_SHARE = 0.01


def check(rng: np.random.Generator, tally: Tally) -> None:
    """One problem of each scheme by every method that takes it."""
    for name in BUILDERS:
        case = draw_case(rng, name)
        for solution in _solutions(rng, tally, case):
            honest(tally, case, solution)


def _solutions(rng: np.random.Generator, tally: Tally, case: Case) -> list[Solution]:
    found = []
    for method, entry in TABLE.items():
        if (entry.slow and rng.random() >= _SLOW_SHARE) or not entry.takes(case.problem):
            continue
        with tally.trial(f"solve: {method}", lambda: str(case)) as trial:
            solution = entry.solve(case.problem)
            tolerance = CLOSED_FORM if solution.method == "subset_selection" else PROGRAMME
            trial.near(solution.acceptance_rate, case.optimum, tolerance, "acceptance rate")
            trial.near(solution.lower_bound, case.optimum, tolerance, "lower bound")
            trial.near(solution.upper_bound, case.optimum, tolerance, "upper bound")
            trial.that(solution.status is Status.OPTIMAL, f"ended with {solution.status}")
            found.append(solution)
    if two_independent_drafts(case.problem):
        rule = ("published", "ratio")[rng.integers(2)]
        order = ("surplus", "mass")[rng.integers(2)]
        size = int(rng.integers(1, case.problem.vocab_size + 1))
        options = {"size": size, "rule": rule, "order": order}
        with tally.trial("solve: truncated_lp, bounds", lambda: f"{options} {case}") as trial:
            solution = mo.solve(case.problem, "truncated_lp", **options)
            low, high = solution.lower_bound, solution.upper_bound
            trial.between(low, case.optimum, high, PROGRAMME, f"bounds, {options}")
            found.append(solution)
    return found


def honest(tally: Tally, case: Case, solution: Solution) -> None:
    """Both bounds contain alpha*; a solution that is right is valid, and proven if optimal."""
    for exact in (False, True):
        kind = f"certify: {'exactly' if exact else 'in floats'}"
        with tally.trial(kind, lambda: f"{solution!r} of {case}") as trial:
            certificate = mo.certify(case.problem, solution, exact=exact)
            _contains(trial, certificate, case.optimum, exact)
            trial.that(certificate.valid, f"violations {certificate.violations}")
            if solution.status is Status.OPTIMAL:
                trial.near(certificate.gap, Fraction(0), PROGRAMME, "gap")


def _contains(trial: Trial, certificate: Any, optimum: Fraction, exact: bool) -> None:
    slack = 0.0 if exact else CLOSED_FORM
    trial.between(certificate.lower, optimum, certificate.upper, slack, "bounds")
