"""What a solution can be asked for: prices, the plan arc by arc, the plan as one array."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from support.strategies import Case, cases

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnsupportedScheme

METHODS = ("full_lp", "dual_lp", "max_flow")

P, Q = [0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=20)
@given(case=cases())
def test_prices_are_feasible_and_worth_the_optimum(method: str, case: Case) -> None:
    problem = case.problem
    solution = mo.solve(problem, method)
    dual, plan = solution.dual, solution.plan
    assert dual is not None
    assert dual.sets is not None
    assert plan is not None
    assert (dual.tokens >= 0).all()
    assert (dual.sets >= 0).all()
    assert (dual.tokens[plan.tokens] + dual.sets[plan.arc_support] >= 1.0).all()
    worth = problem.target @ dual.tokens + problem.drafts.support_law().mass @ dual.sets
    assert worth == pytest.approx(solution.upper_bound, abs=1e-12)
    assert worth == pytest.approx(solution.acceptance_rate, abs=1e-8)


def test_subset_selection_prices_tokens_and_says_who_has_a_plan() -> None:
    solution = mo.solve(mo.TransportProblem(P, mo.WithReplacement(Q, 2)), "subset_selection")
    assert solution.plan is None
    assert "method='full_lp' has one" in repr(solution)
    assert solution.dual is not None
    assert solution.dual.sets is None
    assert solution.subset is not None
    assert solution.dual.tokens.tolist() == solution.subset.astype(float).tolist()
    listed = mo.solve(mo.TransportProblem(P, mo.WithReplacement(Q, 2)), "full_lp")
    assert "plan=16 arcs" in repr(listed)


@pytest.mark.parametrize("num_drafts", [1, 2, 3])
@pytest.mark.parametrize("scheme", [mo.WithReplacement, mo.WithoutReplacement, mo.GreedyDrafts])
def test_a_dense_plan_joins_drafts_and_target(scheme: type, num_drafts: int) -> None:
    problem = mo.TransportProblem(P, scheme(Q, num_drafts))
    solution = mo.solve(problem, "full_lp")
    assert solution.plan is not None
    joint = solution.plan.dense(problem)
    assert joint.shape == (4,) * (num_drafts + 1)
    tuples, mass = problem.drafts.tuple_law()
    law = np.zeros((4,) * num_drafts)
    for row, x in zip(tuples.tolist(), mass.tolist(), strict=True):
        law[tuple(row)] += x
    assert joint.sum(axis=-1) == pytest.approx(law, abs=1e-12)
    assert joint.sum(axis=tuple(range(num_drafts))) == pytest.approx(problem.target, abs=1e-9)
    accepted = sum(
        joint[*drafts, token]
        for drafts in product(range(4), repeat=num_drafts)
        for token in {*drafts}
    )
    assert accepted == pytest.approx(solution.acceptance_rate, abs=1e-9)


def test_dense_plans_say_what_they_cannot_hold() -> None:
    problem = mo.TransportProblem(P, mo.WithReplacement(Q, 2))
    plan = mo.solve(problem, "full_lp").plan
    assert plan is not None
    many = mo.TransportProblem(np.full(250, 1 / 250), mo.WithReplacement(np.full(250, 1 / 250), 2))
    with pytest.raises(ProblemTooLarge, match="V = 250, K = 2"):
        plan.dense(many)
    short = mo.TransportProblem([0.5, 0.5, 0.0], mo.WithoutReplacement([0.5, 0.5, 0.0], 3))
    whole = mo.solve(short, "full_lp").plan
    assert whole is not None
    with pytest.raises(UnsupportedScheme, match="fewer drafts than K"):
        whole.dense(short)


def test_one_token_and_equal_laws() -> None:
    problem = mo.TransportProblem([1.0], mo.WithReplacement([1.0], 2))
    plan = mo.solve(problem, "full_lp").plan
    assert plan is not None
    assert plan.dense(problem).tolist() == [[[1.0]]]
    assert list(plan.items()) == [((0,), 0, 1.0)]


@settings(max_examples=20)
@given(case=cases())
def test_the_matrix_of_a_plan_has_draft_sets_as_labels(case: Case) -> None:
    plan = mo.solve(case.problem, "full_lp").plan
    assert plan is not None
    matrix = plan.matrix(case.problem.vocab_size)
    assert matrix.labels == tuple(case.problem.drafts.support_law().sets())
    assert matrix.sum(axis=0) == pytest.approx(plan.token_mass(case.problem.vocab_size))
    assert matrix.sum(axis=1) == pytest.approx(plan.support_mass())
    for drafts, token, mass in plan.items():
        assert matrix[matrix.labels.index(drafts), token] == mass
    assert len(repr(plan)) < 80
    assert f"{plan.tokens.size:,} arcs" in repr(plan)


def test_a_matrix_too_large_for_memory_is_refused() -> None:
    plan = mo.solve(mo.TransportProblem(P, mo.WithReplacement(Q, 2)), "full_lp").plan
    assert plan is not None
    assert plan.matrix()[:2].labels == ()
    with pytest.raises(ProblemTooLarge, match="items"):
        plan.matrix(vocab_size=10**7)


def test_a_plan_is_of_its_problem() -> None:
    drafts = mo.WithReplacement([0.2, 0.3, 0.5], 2)
    plan = mo.solve(mo.TransportProblem([0.5, 0.3, 0.2], drafts), "full_lp").plan
    assert plan is not None
    others = (
        mo.TransportProblem([0.2, 0.3, 0.5], drafts),
        mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 1)),
        mo.TransportProblem([0.25] * 4, mo.WithReplacement([0.25] * 4, 2)),
        mo.TransportProblem([0.5, 0.5], mo.WithReplacement([0.5, 0.5], 2)),
    )
    for problem in others:
        with pytest.raises(InvalidInput, match="the plan"):
            plan.dense(problem)
    for size in (2, -1, 3.5, "3", True):
        with pytest.raises(InvalidInput, match=r"vocab_size is .* of at least 3"):
            plan.matrix(size)  # type: ignore[arg-type]
    assert plan.matrix(5).shape[1] == 5
