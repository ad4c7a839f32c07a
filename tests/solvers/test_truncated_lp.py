from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracles
from support.strategies import distributions

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput
from mdsd_opt.solvers import highs_backend
from mdsd_opt.solvers.highs_backend import Programme
from mdsd_opt.solvers.truncated_lp import stable_order

F = Fraction
Rational = list[Fraction]

solve = partial(mo.solve, method="truncated_lp")


@st.composite
def two_drafts(draw: st.DrawFn, max_vocab: int = 5) -> tuple[Rational, Rational, Rational]:
    """Target, q1 and q2; the models are often the same."""
    size = draw(st.integers(1, max_vocab))
    p, q1 = draw(distributions(size)), draw(distributions(size))
    return p, q1, draw(st.one_of(st.just(q1), distributions(size)))


def problem_of(p: Rational, q1: Rational, q2: Rational) -> mo.TransportProblem:
    if q1 == q2:
        return mo.TransportProblem(p, mo.WithReplacement(q1, 2))
    return mo.TransportProblem(p, mo.IndependentDrafts([q1, q2]))


def random_problem(vocab_size: int, seed: int = 0) -> mo.TransportProblem:
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.standard_normal(vocab_size)
    return mo.TransportProblem.from_logits(logits, logits + rng.standard_normal(vocab_size), 2)


def surplus_order(p: Rational, q1: Rational, q2: Rational) -> list[int]:
    """Tokens by p - q1 q2 descending, in floats: which of two equal ones is first is rounding."""
    a, b, c = (np.array(list(map(float, x))) for x in (p, q1, q2))
    return sorted(range(len(p)), key=lambda i: (b[i] * c[i] - a[i], i))


def value_by_definition(p: Rational, q1: Rational, q2: Rational, size: int, rule: str) -> Fraction:
    """The truncated problem as a transport problem of its own, solved by enumeration of its cuts.

    In a fixed pair only the winner may be selected, so the pair becomes the draft set {winner}.
    """
    order = surplus_order(p, q1, q2)
    free = set(order[:size])

    def strength(i: int) -> Any:
        if rule == "published":
            return -order.index(i)
        drafted = float(q1[i]) + float(q2[i])
        return (float(p[i]) / drafted if drafted else np.inf, i)

    sets: oracles.Law = {}
    for i, j in product(range(len(p)), repeat=2):
        members = (i, j) if {i, j} <= free else (max(i, j, key=strength),)
        key = tuple(sorted(set(members)))
        sets[key] = sets.get(key, F(0)) + q1[i] * q2[j]
    return oracles.optimum_over_subsets(p, sets)


@given(two_drafts(), st.sampled_from(["published", "ratio"]), st.data())
def test_value_marginal_and_bounds(
    models: tuple[Rational, Rational, Rational], rule: str, data: st.DataObject
) -> None:
    p, q1, q2 = models
    problem = problem_of(p, q1, q2)
    size = data.draw(st.integers(1, len(p)), label="size")
    solution = solve(problem, size=size, rule=rule)
    optimum = oracles.optimum_over_subsets(p, oracles.independent([q1, q2]))

    assert list(solution.stats["tokens"]) == surplus_order(p, q1, q2)[:size]
    expected = value_by_definition(p, q1, q2, size, rule)
    assert solution.acceptance_rate == pytest.approx(float(expected), abs=1e-12)
    assert solution.selection is not None
    assert solution.selection.sum() == pytest.approx(1, abs=1e-12)
    assert solution.selection.min() >= 0
    assert solution.lower_bound - 1e-12 <= optimum <= solution.upper_bound + 1e-12
    certificate = mo.certify(problem, solution)
    assert certificate.valid
    assert certificate.lower == pytest.approx(solution.lower_bound, abs=1e-12)
    if rule == "published":
        loss = optimum - expected
        assert loss <= solution.stats["loss_bound_tighter"] + 1e-15
        assert solution.stats["loss_bound_tighter"] <= solution.stats["loss_bound"] + 1e-15
    if size == len(p):
        assert solution.status is mo.Status.OPTIMAL
        assert certificate.gap < 1e-12
    else:
        assert solution.status is mo.Status.BOUND


@given(two_drafts(max_vocab=6), st.sampled_from(["surplus", "mass"]))
def test_published_rule_is_monotone_and_ends_at_the_optimum(
    models: tuple[Rational, Rational, Rational], order: str
) -> None:
    problem = problem_of(*models)
    optimum = float(oracles.optimum_over_subsets(models[0], oracles.independent(models[1:])))
    values = []
    for size in range(1, problem.vocab_size + 1):
        solution = solve(problem, size=size, order=order, rule="published")
        assert optimum - solution.acceptance_rate <= solution.stats["loss_bound_tighter"] + 1e-12
        values.append(solution.acceptance_rate)
    assert all(b >= a - 1e-12 for a, b in pairwise(values))
    assert values[-1] == pytest.approx(optimum, abs=1e-12)


def test_loss_bounds_by_hand() -> None:
    # p - q1 q2 = (.38, .4, .1): token 1 is free
    p, q1, q2 = [F(1, 2), F(2, 5), F(1, 10)], [F(3, 10), F(7, 10), F(0)], [F(2, 5), F(0), F(3, 5)]
    solution = solve(problem_of(p, q1, q2), size=1, rule="published")
    assert solution.stats["tokens"] == (1,)
    assert solution.stats["loss_bound"] == pytest.approx(0.38 + 0.1)
    # token 0 is in pairs with .3 + .4 - .24, token 2 with .6: more than they lack
    assert solution.stats["loss_bound_tighter"] == pytest.approx(0.38 + 0.1)
    q = [F(9, 10), F(1, 20), F(1, 20)]
    solution = solve(problem_of([F(0), F(1, 2), F(1, 2)], q, q), size=1, rule="published")
    assert solution.stats["loss_bound"] == pytest.approx(0.5 - 0.0025)
    assert solution.stats["loss_bound_tighter"] == pytest.approx(2 * 0.05 * 0.95)


def test_the_ratio_rule_has_no_such_bound() -> None:
    # Token 0 is full (25/49 against 21/49) and still wins the pair {0, 2}.
    p, q = [F(3, 7), F(3, 7), F(1, 7)], [F(5, 7), F(0), F(2, 7)]
    problem = problem_of(p, q, q)
    published = solve(problem, size=2, rule="published")
    assert published.stats["loss_bound"] == 0
    assert published.acceptance_rate == pytest.approx(4 / 7, abs=1e-14)
    ratio = solve(problem, size=2, rule="ratio")
    assert ratio.acceptance_rate == pytest.approx(25 / 49, abs=1e-14)
    assert "loss_bound" not in ratio.stats
    assert ratio.upper_bound >= 4 / 7


def test_two_models_come_with_a_plan() -> None:
    rng = np.random.default_rng(1)
    p, q1, q2 = rng.dirichlet(np.ones(30), 3)
    problem = mo.TransportProblem(p, mo.IndependentDrafts([q1, q2]))
    solution = solve(problem, size=8)
    assert solution.plan is not None
    assert solution.plan.value == pytest.approx(solution.lower_bound, abs=1e-14)
    assert mo.certify(problem, solution).lower == pytest.approx(solution.lower_bound, abs=1e-14)
    # the same pairs, told apart or not, decided alike
    same = mo.TransportProblem(p, mo.IndependentDrafts([q1, q1]))
    twice = mo.TransportProblem(p, mo.WithReplacement(q1, 2))
    assert solve(same, size=8).acceptance_rate == pytest.approx(
        solve(twice, size=8).acceptance_rate, abs=1e-14
    )


def test_default_size_and_a_large_vocabulary() -> None:
    problem = random_problem(131_072, seed=1)
    solution = mo.solve(problem, method="truncated_lp")
    assert (solution.rule, solution.size, solution.stages) == ("ratio", 100, 1)
    assert "variant='rule ratio, size 100, stages 1'" in repr(solution)
    papers = solve(problem, rule="published", size=5)
    assert "variant='rule published, size 5, stages 1'" in repr(papers)
    assert papers.acceptance_rate < solution.acceptance_rate
    assert len(papers.stats["tokens"]) == 5
    certificate = mo.certify(problem, solution)
    assert certificate.valid
    assert certificate.lower == pytest.approx(solution.lower_bound, abs=1e-11)
    optimum = mo.solve(problem).acceptance_rate
    assert solution.lower_bound <= optimum <= solution.upper_bound
    assert optimum - papers.lower_bound <= papers.stats["loss_bound_tighter"]
    assert solve(random_problem(3)).stats["size"] == 3


def test_out_of_time_leaves_a_lower_bound() -> None:
    problem = random_problem(400)
    solution = solve(problem, size=400, time_limit=0)
    assert solution.status is mo.Status.LIMIT
    assert mo.certify(problem, solution).valid
    assert solution.lower_bound <= mo.solve(problem).acceptance_rate <= solution.upper_bound


@pytest.mark.parametrize(
    ("drafts", "advice"),
    [
        (mo.WithReplacement([0.5, 0.5], 1), "two independent drafts or more.*subset_selection"),
        (mo.WithoutReplacement([0.5, 0.5], 2), "subset_selection"),
        (mo.GreedyDrafts([0.5, 0.5], 2), "subset_selection"),
        (mo.IndependentDrafts([[0.5, 0.5]]), "max_flow"),
        (mo.DraftSetLaw(2, {(0, 1): 1.0}), "max_flow"),
    ],
)
def test_other_drafts_are_refused_with_advice(drafts: Any, advice: str) -> None:
    with pytest.raises(mo.MdsdError, match=advice):
        solve(mo.TransportProblem([0.5, 0.5], drafts))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"size": 11}, "V=10"),
        ({"rule": "ration"}, "Did you mean 'ratio'"),
        ({"order": "pq"}, "surplus"),
        ({"size": 10, "max_variables": 54}, "max_variables"),
        ({"size": 10, "max_bytes": 54}, "max_bytes"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(mo.MdsdError, match=message):
        solve(random_problem(10), **options)


def test_a_model_that_highs_refuses_is_an_error() -> None:
    entry = (np.ones(1), np.array([7]), np.array([0, 1]))  # there is no such row
    programme = Programme(
        c=-np.ones(1),
        A_ub=SimpleNamespace(
            shape=(1, 1), format="csc", data=entry[0], indices=entry[1], indptr=entry[2]
        ),
        b_ub=np.ones(1),
        bounds=np.array([[0.0, 1.0]]),
    )
    with pytest.raises(mo.MdsdError, match="HiGHS refused the model"):
        highs_backend.solve(programme)


@pytest.mark.parametrize("size", [0, 1, 2, 40, 3000])
@pytest.mark.parametrize("distinct", [1, 3, 50, 10**9])
def test_an_order_of_ties_is_that_of_a_stable_sort(size: int, distinct: int) -> None:
    rng = np.random.default_rng(size)
    for _ in range(5):
        values = rng.integers(0, distinct, size) / 7.0 - 0.1
        values[rng.random(size) < 0.3] = rng.choice([np.inf, 0.0])
        values[rng.random(size) < 0.1] = -0.0
        last_places = rng.random(size) < 0.1
        values[last_places] = 1.0 + rng.integers(9, size=last_places.sum()) * 2.0**-52
        np.testing.assert_array_equal(stable_order(values), np.argsort(values, kind="stable"))


@given(
    st.integers(2, 4).flatmap(
        lambda size: st.tuples(*[distributions(size)] * 4, st.integers(1, size), st.booleans())
    )
)
def test_three_drafts_go_in_stages_that_reach_what_they_say(
    case: tuple[Rational, Rational, Rational, Rational, int, bool],
) -> None:
    """The rate is that of the rule played out on every draft tuple, and never above the optimum."""
    p, q1, q2, q3, size, is_one = case
    laws = [q1] * 3 if is_one else [q1, q2, q3]
    drafts = mo.WithReplacement(q1, 3) if is_one else mo.IndependentDrafts(laws)
    problem = mo.TransportProblem(p, drafts)
    solution = solve(problem, size=size, rule="published")
    certificate = mo.certify(problem, solution)
    assert certificate.valid, certificate.violations
    assert certificate.lower == pytest.approx(solution.acceptance_rate, abs=1e-9)
    assert solution.acceptance_rate <= mo.solve(problem, "max_flow").upper_bound + 1e-9
    assert solution.stats["stages"] == 2
    bound = mo.verifiers.get("importance_sampling", size=size).acceptance_bound(problem)
    assert solution.acceptance_rate == pytest.approx(bound, abs=1e-12)
    # each stage is the truncated LP of two drafts: what the first selects meets the third draft
    first = solve(problem_of(p, *laws[:2]), size=size, rule="published").selection
    assert first is not None
    last = mo.TransportProblem(p, mo.IndependentDrafts([first, np.array(laws[2], dtype=float)]))
    assert solve(last, size=size, rule="published").acceptance_rate == pytest.approx(
        bound, abs=1e-9
    )


def test_several_sizes_in_one_call() -> None:
    problem = random_problem(30)
    alone = {size: solve(problem, size=size).acceptance_rate for size in (3, 10, 30)}
    found = solve(problem, size=[30, 3, 10])
    assert found.stats["by_size"] == alone
    assert found.acceptance_rate == max(alone.values())
    assert found.acceptance_rate == pytest.approx(mo.solve(problem).acceptance_rate, abs=1e-9)
    for size in ([], [0, 3], [3, 31], 2.5):
        with pytest.raises(InvalidInput, match="size is"):
            solve(problem, size=size)
