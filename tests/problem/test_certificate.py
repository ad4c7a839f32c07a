"""A certificate passes honest solutions and catches every kind of lie.

Soundness is checked by property: whatever a solution says, no certificate without violations
proves a lower bound above the optimum or an upper bound below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracles
from support.strategies import PREFIX_SCHEMES, Case, cases

from mdsd_opt import TransportProblem, WithoutReplacement, WithReplacement, certify, solve
from mdsd_opt.problem import Solution, Status, TransportPlan

EXACT = pytest.mark.parametrize("exact", [False, True])


def plan_of(sets: list[tuple[int, ...]], mass: list[float]) -> TransportPlan:
    """A plan over these sets, with the masses of their elements one after another."""
    return TransportPlan(
        tokens=np.array([i for s in sets for i in s], dtype=np.int32),
        offsets=np.cumsum([0, *map(len, sets)]),
        mass=np.array(mass, dtype=np.float64),
    )


def honest(p: list[Fraction], drafts: Any, law: oracles.Law) -> Solution:
    """The optimum of a small problem with plan and subset, from the oracles."""
    best = oracles.best_plan(p, law)
    sets = sorted(tuple(sorted(s)) for s in oracles.set_law(law))
    plan = plan_of(sets, [float(best[frozenset(s), i]) for s in sets for i in s])
    value = float(sum(best.values(), Fraction(0)))
    problem = TransportProblem(p, drafts)
    masks = [np.array([(h >> i) & 1 == 1 for i in range(len(p))]) for h in range(1 << len(p))]
    return Solution(
        acceptance_rate=value,
        lower_bound=value,
        upper_bound=value,
        status=Status.OPTIMAL,
        method="oracle",
        solve_seconds=0.0,
        subset=min(masks, key=problem.law(True).cut_value),
        plan=plan,
    )


@EXACT
@given(case=cases())
def test_honest_solutions_are_valid_and_meet(exact: bool, case: Case) -> None:
    optimum = oracles.optimum_over_subsets(case.target, case.law)
    solution = honest(case.target, case.drafts, case.law)
    certificate = certify(case.problem, solution, exact=exact)
    assert certificate.valid, certificate.violations
    assert certificate.exact is exact
    assert certificate.lower == pytest.approx(float(optimum), abs=1e-13)
    assert certificate.upper == pytest.approx(float(optimum), abs=1e-13)
    if exact:
        assert certificate.upper == optimum
        assert certificate.lower <= optimum
        assert isinstance(certificate.gap, Fraction)


# --- lies ------------------------------------------------------------------------------------

P = [Fraction(3, 5), Fraction(1, 10), Fraction(3, 10)]
Q = [Fraction(1, 5), Fraction(7, 10), Fraction(1, 10)]
SETS = [(0,), (0, 1), (0, 2), (1,), (1, 2), (2,)]  # of two draws with replacement, sorted
# H = {1}: its target is used up and the set (1,) has mass left; all other sets are used up.
PROBLEM = TransportProblem(P, WithReplacement(Q, 2))
TRUTH = honest(P, PROBLEM.drafts, oracles.with_replacement(Q, 2))
VALUE = TRUTH.acceptance_rate


def arc(members: tuple[int, ...], token: int) -> int:
    return [(s, i) for s in SETS for i in s].index((members, token))


def with_plan(change: Callable[[np.ndarray], Any]) -> Solution:
    """The honest solution with other masses."""
    assert TRUTH.plan is not None
    mass = TRUTH.plan.mass.copy()
    change(mass)
    return replace(TRUTH, plan=replace(TRUTH.plan, mass=mass))


def add(members: tuple[int, ...], token: int, amount: float) -> Solution:
    def change(mass: np.ndarray) -> None:
        mass[arc(members, token)] += amount

    return with_plan(change)


def with_sets(sets: list[tuple[int, ...]], mass: list[float]) -> Solution:
    """The honest solution with further draft sets in its plan."""
    assert TRUTH.plan is not None
    return replace(TRUTH, plan=plan_of(SETS + sets, [*TRUTH.plan.mass.tolist(), *mass]))


def with_arrays(**changes: Any) -> Solution:
    assert TRUTH.plan is not None
    return replace(TRUTH, plan=replace(TRUTH.plan, **changes))


def test_the_premises_of_the_lies() -> None:
    assert pytest.approx(1 + 0.1 - 0.49) == VALUE
    assert TRUTH.plan is not None
    assert TRUTH.subset is not None
    assert list(TRUTH.subset) == [False, True, False]
    used_up = TRUTH.plan.token_mass(3) >= np.array([0.6, 0.1, 0.3]) - 1e-12
    assert list(used_up) == [False, True, False]
    used = dict(zip(SETS, TRUTH.plan.support_mass(), strict=True))
    drafted = oracles.set_law(oracles.with_replacement(Q, 2))
    for members in SETS:
        tight = used[members] == pytest.approx(float(drafted[frozenset(members)]))
        assert tight == (members != (1,))


EPS = 1e-6
NAN, INF = float("nan"), float("inf")

#: Arrays of a plan that do not fit together, and draft sets through which nothing more can move.
MISFITS: dict[str, dict[str, Any]] = {
    "offsets that end early": {"offsets": np.array([0, 1, 3, 5, 6, 8])},
    "offsets that fall": {"offsets": np.array([0, 5, 3, 5, 6, 8, 9])},
    "offsets that start late": {"offsets": np.array([1, 3, 5, 6, 8, 9])},
    "no offsets": {"offsets": np.array([], dtype=int)},
    "arrays of different length": {"mass": np.zeros(3)},
    "a plan of two dimensions": {"mass": np.zeros((9, 1))},
    "tokens that are no integers": {"tokens": np.zeros(9)},
}
FULL_SETS: dict[str, tuple[int, ...]] = {
    "a set that is never drafted": (0, 1, 2),
    "a set listed twice": (0, 2),
    "a set listed twice in another order": (2, 0),
    "a token twice in one set": (0, 0),
}
LIES: dict[str, tuple[Solution, str]] = {
    "more than the target has": (add((1,), 1, EPS), "gives token 1 1e-06 more than the target"),
    "more than the drafts have": (
        add((0, 2), 2, EPS),
        r"moves 1e-06 more through draft set \[0, 2\]",
    ),
    "negative mass": (add((1, 2), 2, -0.2), "negative mass -0.06"),
    "mass that is not a number": (add((1,), 1, NAN), "a mass that is not finite"),
    "infinite mass": (add((1,), 1, INF), "a mass that is not finite"),
    "a token that does not exist": (with_sets([(3,)], [0.0]), "a token outside the vocabulary"),
    "a token below zero": (with_sets([(-1,)], [0.0]), "a token outside the vocabulary"),
    "a plan that moves less than claimed": (
        add((0, 1), 0, -EPS),
        "the plan proves .* not the claimed lower bound",
    ),
    "a subset of another value": (
        replace(TRUTH, subset=np.array([True, True, False])),
        "the subset proves 0.89, not the claimed upper bound 0.61",
    ),
    "a bound below the subset's": (
        replace(TRUTH, upper_bound=VALUE - EPS, acceptance_rate=VALUE - EPS, lower_bound=0.0),
        "the subset proves 0.61, not the claimed upper bound 0.609999",
    ),
    "a bound without a subset": (
        replace(TRUTH, subset=None),
        "nothing proves the claimed upper bound 0.61",
    ),
    "a bound below the plan's": (
        replace(TRUTH, subset=None, upper_bound=0.6, acceptance_rate=0.6, lower_bound=0.6),
        "upper_bound 0.6 is below the proven lower bound 0.61",
    ),
    "more than the bound": (
        replace(TRUTH, acceptance_rate=VALUE + EPS, upper_bound=1.0),
        "acceptance_rate 0.610001 exceeds the proven upper bound 0.61",
    ),
    "more than one": (
        replace(TRUTH, subset=None, plan=None, acceptance_rate=1.5, upper_bound=2.0),
        "acceptance_rate 1.5 exceeds the proven upper bound 1",
    ),
    "more than its own bound": (
        replace(TRUTH, subset=None, upper_bound=0.61, acceptance_rate=0.7),
        "acceptance_rate 0.7 exceeds the claimed upper bound 0.61",
    ),
    "a lower bound above the upper": (
        replace(TRUTH, lower_bound=0.7, upper_bound=0.61),
        "lower_bound 0.7 exceeds the proven upper bound 0.61",
    ),
    "less than its own bound": (
        replace(TRUTH, acceptance_rate=0.5),
        "acceptance_rate 0.5 is below the claimed lower bound 0.61",
    ),
    "an optimum below the plan": (
        replace(TRUTH, acceptance_rate=0.5, lower_bound=0.5),
        "claimed optimal, below the proven lower bound 0.61",
    ),
    "no number": (replace(TRUTH, acceptance_rate=NAN), "acceptance_rate is nan"),
    "no lower bound": (replace(TRUTH, lower_bound=-INF), "lower_bound is -inf"),
    "no upper bound": (replace(TRUTH, upper_bound=INF), "upper_bound is inf"),
    "a subset of another size": (
        replace(TRUTH, subset=np.ones(2, bool)),
        r"the subset has shape \(2,\)",
    ),
    "a subset of ids": (
        replace(TRUTH, subset=np.array([0, 1, 2])),
        "dtype int64: give a boolean mask",
    ),
    "a marginal that is too little": (
        replace(TRUTH, plan=None, selection=np.array([1.0, 0.0, 0.0])),
        "the selection marginal proves 0, not the claimed lower bound 0.61",
    ),
    "a marginal of another size": (
        replace(TRUTH, selection=np.ones(2) / 2),
        r"the selection marginal has shape \(2,\)",
    ),
    "a negative marginal": (
        replace(TRUTH, selection=np.array([1.0, 0.5, -0.5])),
        "masses that are negative or not finite",
    ),
}
LIES |= {name: (with_arrays(**x), "do not fit together") for name, x in MISFITS.items()}
LIES |= {
    name: (
        with_sets([members], [EPS, *[0.0] * (len(members) - 1)]),
        re.escape(f"moves 1e-06 more through draft set {[*members]}"),
    )
    for name, members in FULL_SETS.items()
}


@EXACT
@pytest.mark.parametrize("lie", LIES)
def test_lies_are_caught(lie: str, exact: bool) -> None:
    solution, message = LIES[lie]
    certificate = certify(PROBLEM, solution, exact=exact)
    assert not certificate.valid
    assert any(re.search(message, found) for found in certificate.violations), certificate
    assert certificate.lower <= VALUE + 1e-9  # what is left of the claim is true
    assert certificate.upper >= VALUE - 1e-9


def test_sets_never_drafted_without_replacement() -> None:
    """A single token is a draft set of repeated draws, but not without replacement."""
    problem = TransportProblem([0.5, 0.25, 0.25], WithoutReplacement([0.5, 0.25, 0.25], 2))
    solution = replace(TRUTH, plan=plan_of([(0,)], [0.5]), subset=None, lower_bound=0.5)
    certificate = certify(problem, solution)
    assert any(r"draft set [0]" in found for found in certificate.violations)
    assert certificate.lower == 0


def test_less_is_no_lie() -> None:
    """Bounds that do not meet are valid: the gap says how much is unknown."""
    solution = replace(
        TRUTH,
        plan=None,
        subset=None,
        status=Status.LIMIT,
        lower_bound=0.0,
        upper_bound=1.0,
        acceptance_rate=0.2,
    )
    certificate = certify(PROBLEM, solution)
    assert certificate.valid
    assert (certificate.lower, certificate.upper, certificate.gap) == (0.0, 1.0, 1.0)


def test_a_bad_subset_shows_in_the_gap() -> None:
    """The claim is not refuted, but nothing near it is proven."""
    everything = np.ones(3, dtype=bool)
    solution = replace(
        TRUTH, plan=None, subset=everything, acceptance_rate=1.0, lower_bound=1.0, upper_bound=1.0
    )
    assert certify(PROBLEM, solution).gap > 0.3


def test_the_tolerance_is_an_argument() -> None:
    assert certify(PROBLEM, LIES["more than the target has"][0], tolerance=1e-5).valid
    assert not certify(PROBLEM, add((1,), 1, 1e-11), tolerance=1e-12).valid


# --- soundness -------------------------------------------------------------------------------


@given(cases(), st.lists(st.integers(-2, 8), min_size=40, max_size=40), st.booleans())
def test_no_plan_proves_too_much(case: Case, noise: list[int], exact: bool) -> None:
    """Honest masses shifted by up to 8e-10, within the tolerance: what counts is feasible."""
    solution = honest(case.target, case.drafts, case.law)
    assert solution.plan is not None
    mass = solution.plan.mass + 1e-10 * np.resize(noise, solution.plan.mass.size)
    lie = replace(solution, plan=replace(solution.plan, mass=mass))
    certificate = certify(case.problem, lie, exact=exact)
    optimum = oracles.optimum_over_subsets(case.target, case.law)
    if exact:
        assert certificate.lower <= optimum
    else:
        assert certificate.lower <= float(optimum) + 1e-14


@given(cases(), st.lists(st.integers(0, 4), min_size=60, max_size=60))
def test_arbitrary_plans(case: Case, numbers: list[int]) -> None:
    sets = sorted(tuple(sorted(s)) for s in oracles.set_law(case.law))
    mass = [n / 32 for n in numbers][: sum(map(len, sets))]
    plan = plan_of(sets, mass)
    claim = replace(TRUTH, plan=plan, subset=None, status=Status.LIMIT)
    claim = replace(claim, lower_bound=0.0, upper_bound=1.0, acceptance_rate=0.0)
    certificate = certify(case.problem, claim, exact=True)
    p, law = case.target, oracles.set_law(case.law)
    feasible = all(plan.token_mass(len(p)) <= [float(x) + 1e-9 for x in p]) and all(
        used <= float(law[frozenset(s)]) + 1e-9
        for s, used in zip(sets, plan.support_mass(), strict=True)
    )
    assert certificate.valid == feasible
    assert certificate.lower <= oracles.optimum_over_subsets(p, case.law)
    if feasible:
        assert float(certificate.lower) == pytest.approx(sum(mass), abs=1e-7)


@EXACT
@given(
    cases(PREFIX_SCHEMES), st.integers(0, 31), st.lists(st.integers(0, 9), min_size=5, max_size=5)
)
def test_no_subset_or_marginal_proves_too_much(
    exact: bool, case: Case, members: int, weights: list[int]
) -> None:
    """Whatever the marginal, also on tokens never drafted, and also if it does not sum to one."""
    size, slack = len(case.target), 0 if exact else 1e-13
    optimum = oracles.optimum_over_subsets(case.target, case.law)
    subset = np.array([(members >> i) & 1 == 1 for i in range(size)])
    for evidence in ({"subset": subset}, {"selection": np.array(weights[:size]) / 16}):
        nothing = replace(TRUTH, plan=None, subset=None, lower_bound=0.0, acceptance_rate=0.0)
        certificate = certify(case.problem, replace(nothing, **evidence), exact=exact)
        assert certificate.lower <= optimum + slack
        assert certificate.upper >= optimum - slack


@EXACT
def test_a_rate_between_the_bounds_that_the_plan_does_not_reach(exact):
    problem = TransportProblem([0.5, 0.3, 0.2], WithReplacement([0.2, 0.3, 0.5], 2))
    found = replace(solve(problem, "full_lp"), status=Status.BOUND, subset=None, upper_bound=1.0)
    assert certify(problem, found, exact=exact).valid
    more = replace(found, acceptance_rate=found.acceptance_rate + 0.05)
    certificate = certify(problem, more, exact=exact)
    assert any("not the claimed acceptance_rate" in text for text in certificate.violations)
