"""Solvers, their certificates, and forged solutions, against alpha* over all subsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
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

#: How far a claim may be from the truth before `certify` calls it violated: its default.
CLAIM = 1e-9

#: A problem in this many also goes through CVXPY, which takes some tens of milliseconds.
_SLOW_SHARE = 0.01


def check(rng: np.random.Generator, tally: Tally) -> None:
    """One problem of each scheme by every method that takes it."""
    previous: list[Solution] = []
    for name in BUILDERS:
        case = draw_case(rng, name)
        solutions = _solutions(rng, tally, case)
        for solution in solutions:
            honest(tally, case, solution)
        for solution in solutions:
            _forged(rng, tally, case, solution, previous)
        previous = solutions


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


# --- forgeries ------------------------------------------------------------------------------------

Forger = Callable[[np.random.Generator, Solution, Solution], Solution | None]


def _shift(rng: np.random.Generator) -> float:
    """Beyond the tolerance of a claim, up or down."""
    return float(rng.choice([-1, 1]) * rng.choice([1e-1, 1e-3, 1e-6, 1e-8]))


def _other_rate(rng, solution, other):
    return replace(solution, acceptance_rate=solution.acceptance_rate + _shift(rng))


def _other_lower_bound(rng, solution, other):
    return replace(solution, lower_bound=solution.lower_bound + _shift(rng))


def _other_upper_bound(rng, solution, other):
    return replace(solution, upper_bound=solution.upper_bound + _shift(rng))


def _other_numbers(rng, solution, other):
    by = _shift(rng)
    return replace(
        solution,
        acceptance_rate=solution.acceptance_rate + by,
        lower_bound=solution.lower_bound + by,
        upper_bound=solution.upper_bound + by,
    )


def _foreign_numbers(rng, solution, other):
    return replace(
        solution,
        acceptance_rate=other.acceptance_rate,
        lower_bound=other.lower_bound,
        upper_bound=other.upper_bound,
    )


def _foreign_plan(rng, solution, other):
    return None if other.plan is None else replace(solution, plan=other.plan)


def _scaled_plan(rng, solution, other):
    plan = solution.plan
    if plan is None or not plan.mass.any():
        return None
    factor = float(rng.choice([0.5, 0.999, 1.001, 2.0, -1.0]))
    forged = replace(plan, mass=plan.mass * factor, basis=None, numerators=None)
    return replace(solution, plan=forged)


def _foreign_proof(rng, solution, other):
    return None if other.proof is None else replace(solution, plan=None, proof=other.proof)


def _partial_proof(rng, solution, other):
    """A cover with a tile taken out, or orders with one order moved."""
    proof = solution.proof
    if proof is None:
        return None
    if hasattr(proof, "low"):
        keep = np.arange(len(proof.low)) != rng.integers(len(proof.low))
        return replace(solution, proof=replace(proof, low=proof.low[keep], high=proof.high[keep]))
    orders = rng.permuted(proof.orders, axis=1)
    return replace(solution, proof=replace(proof, orders=orders))


def _foreign_subset(rng, solution, other):
    return None if other.subset is None else replace(solution, subset=other.subset)


def _random_subset(rng, solution, other):
    if solution.subset is None:
        return None
    return replace(solution, subset=rng.random(solution.subset.size) < 0.5)


def _scaled_selection(rng, solution, other):
    if solution.selection is None:
        return None
    factor = float(rng.choice([0.5, 0.99, 1.01, 2.0]))
    return replace(solution, selection=solution.selection * factor)


def _foreign_selection(rng, solution, other):
    if other.selection is None:
        return None
    return replace(solution, plan=None, proof=None, selection=other.selection)


FORGERS: dict[str, Forger] = {
    "another rate": _other_rate,
    "another lower bound": _other_lower_bound,
    "another upper bound": _other_upper_bound,
    "all numbers moved": _other_numbers,
    "numbers of another problem": _foreign_numbers,
    "plan of another problem": _foreign_plan,
    "plan scaled": _scaled_plan,
    "proof of another problem": _foreign_proof,
    "proof mutilated": _partial_proof,
    "subset of another problem": _foreign_subset,
    "random subset": _random_subset,
    "selection scaled": _scaled_selection,
    "selection of another problem": _foreign_selection,
}


def _forged(
    rng: np.random.Generator,
    tally: Tally,
    case: Case,
    solution: Solution,
    others: list[Solution],
) -> None:
    """What must hold of the certificate of a forgery, whether it is called valid or not.

    Its bounds contain alpha*. And if it is valid, no number that the solution claims is false, up
    to the tolerance of a claim: the rate and the lower bound are not above alpha*, the upper bound
    is not below, and a rate that is claimed optimal is alpha*.
    """
    other = others[rng.integers(len(others))] if others else solution
    names = list(FORGERS)
    for name in rng.choice(names, 3, replace=False).tolist():
        forged = FORGERS[name](rng, solution, other)
        if forged is None:
            continue
        exact = bool(rng.random() < 0.5)
        text = partial(_text, exact, forged, case)
        with tally.trial(f"forge: {name}", text) as trial:
            certificate = mo.certify(case.problem, forged, exact=exact)
            _contains(trial, certificate, case.optimum, exact)
            if certificate.valid:
                _claims_hold(trial, forged, case)


def _claims_hold(trial: Trial, claimed: Solution, case: Case) -> None:
    slack = Fraction(CLAIM) + Fraction(CLOSED_FORM)
    optimum = case.optimum
    for name in ("acceptance_rate", "lower_bound"):
        value = getattr(claimed, name)
        trial.that(value <= optimum + slack, f"valid with {name} {value!r} > {float(optimum)!r}")
    trial.that(
        claimed.upper_bound >= optimum - slack,
        f"valid with upper_bound {claimed.upper_bound!r} < {float(optimum)!r}",
    )
    if claimed.status is Status.OPTIMAL:
        trial.that(
            claimed.acceptance_rate >= optimum - slack,
            f"valid with optimal rate {claimed.acceptance_rate!r} < {float(optimum)!r}",
        )


def _text(exact: bool, forged: Solution, case: Case) -> str:
    fields = ("acceptance_rate", "lower_bound", "upper_bound", "subset", "plan", "selection")
    shown = ", ".join(f"{f}={getattr(forged, f)!r}" for f in fields)
    return f"exact={exact} {forged!r} with {shown} of {case}"
