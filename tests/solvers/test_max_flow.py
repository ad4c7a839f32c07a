from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from support import oracles
from support.strategies import Case, cases

import mdsd_opt as mo
from mdsd_opt.solvers import exact_optimum, integer_masses
from mdsd_opt.solvers.max_flow import SCALE, largest_remainder

solve = partial(mo.solve, method="max_flow")


def random_problem(vocab_size: int, num_drafts: int, seed: int = 0) -> mo.TransportProblem:
    """Logits 2.5 N(0, 1), the draft's one standard deviation away."""
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.standard_normal(vocab_size)
    return mo.TransportProblem.from_logits(
        logits, logits + rng.standard_normal(vocab_size), num_drafts
    )


def chain(size: int, seed: int) -> mo.TransportProblem:
    """Pairs that overlap: mass has to be passed on from token to token."""
    pairs = {(i, i + 1): 1 / (size - 1) for i in range(size - 1)}
    target = np.random.default_rng(seed).dirichlet(np.full(size, 5.0))
    return mo.TransportProblem(target, mo.DraftSetLaw(size, pairs))


@given(cases())
def test_small_rational_problems_are_solved_and_proved_without_rounding(case: Case) -> None:
    optimum = oracles.optimum_over_subsets(case.target, case.law)
    solution = solve(case.problem)
    certificate = mo.certify(case.problem, solution, exact=True)
    assert certificate.valid
    assert solution.stats["exact"]
    assert certificate.lower == certificate.upper == optimum
    assert solution.acceptance_rate == float(optimum)
    assert solution.lower_bound == solution.upper_bound == solution.acceptance_rate
    assert solution.status is mo.Status.OPTIMAL


@given(cases(max_vocab=6))
def test_floats_are_solved_within_the_reported_rounding(case: Case) -> None:
    # thirds and sevenths as floats have no small common denominator
    target = [float(x) for x in case.target]
    problem = mo.TransportProblem(target, case.drafts)
    solution = solve(problem)
    optimum = oracles.optimum_over_subsets(problem.exact_target, case.law)
    assert solution.lower_bound - 1e-15 <= optimum <= solution.upper_bound + 1e-15
    assert solution.upper_bound - solution.lower_bound < 1e-14
    assert mo.certify(problem, solution, tolerance=1e-14).valid


@pytest.mark.parametrize(
    ("vocab_size", "num_drafts"), [(300, 2), (60, 3), (25, 4), (10, 7), (50, 1)]
)
def test_larger_vocabularies_agree_with_exact_subset_selection(
    vocab_size: int, num_drafts: int
) -> None:
    problem = random_problem(vocab_size, num_drafts)
    solution = solve(problem)
    optimum, _ = exact_optimum(problem)
    assert abs(solution.acceptance_rate - optimum) < 1e-14
    certificate = mo.certify(problem, solution)
    assert certificate.valid
    assert certificate.gap < 1e-13
    assert solution.stats["arcs"] == problem.drafts.count_supports()[1]


@pytest.mark.parametrize("seed", range(5))
def test_several_phases_are_needed_and_done(seed: int) -> None:
    problem = chain(300, seed)
    solution = solve(problem)
    assert solution.stats["phases"] > 2
    certificate = mo.certify(problem, solution, exact=True)
    assert certificate.valid
    assert certificate.gap < 1e-14


def test_the_subset_is_the_largest_minimum_cut() -> None:
    # every subset is a minimum cut here: what is left over reaches nothing, so H is everything
    q = [Fraction(1, 3)] * 3
    solution = solve(mo.TransportProblem(q, mo.WithReplacement(q, 1)))
    assert solution.subset is not None
    assert solution.subset.all()
    # H = {0}: token 1 has mass to spare, token 0 has not
    p = [Fraction(1, 10), Fraction(9, 10)]
    problem = mo.TransportProblem(p, mo.WithReplacement([Fraction(1, 2)] * 2, 2))
    solution = solve(problem)
    assert solution.subset is not None
    assert solution.subset.tolist() == [True, False]
    assert solution.acceptance_rate == float(1 + p[0] - Fraction(1, 4))


def test_a_draft_set_without_tokens_accepts_nothing() -> None:
    law = {(): Fraction(1, 3), (0, 1): Fraction(2, 3)}
    problem = mo.TransportProblem([Fraction(1, 2)] * 2, mo.DraftSetLaw(2, law))
    solution = solve(problem)
    certificate = mo.certify(problem, solution, exact=True)
    assert certificate.lower == certificate.upper == Fraction(2, 3)
    nothing = mo.TransportProblem([1.0], mo.DraftSetLaw(1, {(): 1.0}))
    assert solve(nothing).acceptance_rate == 0.0


def test_the_plan_follows_the_order_of_the_support_law() -> None:
    problem = random_problem(20, 3)
    law = problem.drafts.support_law()
    plan = solve(problem).plan
    assert plan is not None
    assert np.array_equal(plan.tokens, law.tokens)
    assert np.array_equal(plan.offsets, law.offsets)
    assert (plan.token_mass(20) <= problem.target + 1e-18).all()
    assert (plan.support_mass() <= law.mass + 1e-18).all()


def test_out_of_time_leaves_bounds_that_hold() -> None:
    problem = chain(400, 3)
    optimum = solve(problem).acceptance_rate
    solution = solve(problem, time_limit=0)
    assert solution.status is mo.Status.LIMIT
    assert solution.lower_bound < optimum < solution.upper_bound < 1
    certificate = mo.certify(problem, solution)
    assert certificate.valid
    assert certificate.lower == pytest.approx(solution.lower_bound, abs=1e-14)
    assert certificate.upper == pytest.approx(solution.upper_bound, abs=1e-14)
    assert "out of time" in solution.message


def test_the_budget_can_be_set() -> None:
    problem = random_problem(30, 2)
    arcs = problem.drafts.count_supports()[1]
    solve(problem, max_variables=arcs)
    with pytest.raises(mo.ProblemTooLarge, match="max_variables"):
        solve(problem, max_variables=arcs - 1)
    with pytest.raises(mo.ProblemTooLarge, match="max_bytes"):
        solve(problem, max_bytes=1000)


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 100_001])
def test_largest_remainder_is_the_best_rounding(size: int) -> None:
    masses = np.random.default_rng(size).dirichlet(np.full(size, 0.3))
    integers, added, removed = largest_remainder(masses)
    assert int(integers.sum()) == SCALE
    assert integers.min() >= 0
    changes = [int(n) - Fraction(x) * SCALE for n, x in zip(integers, masses.tolist(), strict=True)]
    assert float(sum(c for c in changes if c > 0) / SCALE) == pytest.approx(added, abs=1e-25)
    assert float(-sum(c for c in changes if c < 0) / SCALE) == pytest.approx(removed, abs=1e-25)
    # one unit each, and the deviation of the floats from a sum of one
    lacking = abs(1 - sum(map(Fraction, masses.tolist())))
    assert added + removed <= size / SCALE + lacking * (1 + 1e-9)


def test_largest_remainder_spreads_what_a_sum_lacks() -> None:
    masses = np.array([0.5, 0.25, 0.0, 0.25]) * (1 - 1e-10)
    integers, added, removed = largest_remainder(masses)
    assert int(integers.sum()) == SCALE
    assert integers[2] == 0
    assert added == pytest.approx(1e-10)
    assert removed == 0
    integers, added, removed = largest_remainder(masses / (1 - 1e-10) * (1 + 1e-10))
    assert int(integers.sum()) == SCALE
    assert integers[2] == 0
    assert removed == pytest.approx(1e-10)
    assert added == 0


def test_equal_remainders_are_rounded_up_from_the_first() -> None:
    integers, _, _ = largest_remainder(np.full(3, 1 / 3))
    assert integers.tolist() == sorted(integers.tolist(), reverse=True)
    assert integers[0] - integers[2] in (0, 1)


def test_common_denominators_up_to_the_scale_are_kept() -> None:
    def masses_of(denominator: int) -> tuple[int, bool]:
        p = [Fraction(1, denominator), 1 - Fraction(1, denominator)]
        problem = mo.TransportProblem(p, mo.WithReplacement(p, 1))
        masses = integer_masses(problem, problem.drafts.support_law())
        assert int(masses.target.sum()) == int(masses.supports.sum()) == masses.total
        return masses.total, masses.exact

    assert masses_of(SCALE) == (SCALE, True)
    assert masses_of(SCALE - 1) == (SCALE - 1, True)
    assert masses_of(SCALE + 1) == (SCALE, False)
