"""Forged evidence: whatever a solution brings along, no certificate believes anything false."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
from support import forging

import mdsd_opt as mo
from stress.problems import BUILDERS, Case, draw_case
from stress.tally import Tally

#: Of each honest solution.
FORGERIES = 12

#: A problem in this many is of a few thousand tokens, whose masses leave low precisions behind.
_LARGE_SHARE = 0.05


def check(rng: np.random.Generator, tally: Tally) -> None:
    """One problem of each scheme, all that proves something about it, and forgeries of that."""
    foreign = None
    for name in BUILDERS:
        case = draw_case(rng, name)
        solutions = forging.honest(case.problem)
        for solution in solutions:
            foreign = foreign or solution
            _tried(rng, tally, case, solution, foreign)
        foreign = solutions[rng.integers(len(solutions))]
    if rng.random() < _LARGE_SHARE:
        _large(rng, tally)


def _tried(
    rng: np.random.Generator, tally: Tally, case: Case, solution: mo.Solution, foreign: mo.Solution
) -> None:
    problem, optimum = case.problem, case.optimum
    with tally.trial("honest", lambda: f"{forging.shown(solution)} of {case}") as trial:
        for exact in (False, True):
            trial.complaints += forging.complaints(problem, optimum, solution, exact)
            trial.that(mo.certify(problem, solution, exact=exact).valid, "called a lie")
    for _ in range(FORGERIES):
        done, forged = forging.forge(rng, solution, foreign)
        exact = bool(rng.random() < 0.5)
        tolerance = float(rng.choice([forging.CLAIM, 0.0, 1e-6]))
        given = f"exact={exact}, tolerance={tolerance}"
        described = f"{given}, {done}: {forging.shown(forged)} of {case}"
        with tally.trial(f"{done[0].kind}.{done[0].field}", lambda text=described: text) as trial:
            trial.complaints += forging.complaints(problem, optimum, forged, exact, tolerance)


def _large(rng: np.random.Generator, tally: Tally) -> None:
    """Selections of low precision, in floats, beside the optimum of an honest certificate."""
    size, flat = int(rng.integers(500, 4000)), float(rng.choice([0.3, 3.0]))
    p, q = rng.dirichlet(np.full(size, flat), size=2)
    once, more = mo.WithReplacement(q, 2), mo.WithReplacement(q, 3)
    mixed = mo.MixtureDrafts([(0.5, once), (0.5, more)])
    drafts = (once, mo.WithoutReplacement(q, 2), mo.FixedPlusDrafts([3], once), mixed)
    problem = mo.TransportProblem(p, drafts[rng.integers(len(drafts))])
    solution = mo.solve(problem)
    optimum = Fraction(float(mo.certify(problem, solution).upper))
    claims = replace(solution, acceptance_rate=1.0, lower_bound=1.0, upper_bound=1.0, subset=None)
    for x in (p, q, 0.5 * (p + q)):
        for dtype in (np.float16, np.float32):
            described = f"{np.dtype(dtype)} of {size} tokens, {problem}"
            with tally.trial("low precision", lambda text=described: text) as trial:
                forged = replace(claims, selection=x.astype(dtype))
                trial.complaints += forging.complaints(problem, optimum, forged, False)
