"""The frontier of acceptance against distance: feasible, optimal, and attained by the verifier."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracles
from support.strategies import PREFIX_SCHEMES, SCHEMES, Case, cases

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path
from mdsd_opt.errors import InvalidInput
from mdsd_opt.solvers import CostCurve, distances, frontier_of, survey_frontier
from mdsd_opt.solvers.frontier import curve as chains

shares = st.sampled_from(
    [Fraction(0), Fraction(1, 7), Fraction(1, 2), Fraction(9, 10), Fraction(1)]
)


def most(law: oracles.Law) -> Fraction:
    """No output is a draft where nothing is drafted."""
    return 1 - law.get((), Fraction(0))


def assert_closest(
    p: list[Fraction], x: tuple[Fraction, ...], law: oracles.Law, rate: Fraction
) -> None:
    """x allows the rate, and every set where x/p is large is as light as it may be.

    Laws that allow the rate have x(H) >= s(H); if the level sets of x/p hold with equality, x
    minimises sum p f(x/p) for every convex f.
    """
    lost = 1 - rate
    assert sum(x) == 1
    assert min(x) >= 0
    for h in oracles.subsets(len(p)):
        assert sum((x[i] for i in h), Fraction(0)) >= oracles.containment(law, h) - lost
    massless = [i for i in range(len(p)) if p[i] == 0]
    levels = sorted({x[i] / p[i] for i in range(len(p)) if p[i]}, reverse=True)
    for level in [math.inf, *levels[:-1]]:
        h = massless + [i for i in range(len(p)) if p[i] and x[i] / p[i] >= level]
        required = max(oracles.containment(law, h) - lost, Fraction(0))
        assert sum((x[i] for i in h), Fraction(0)) == required


@given(cases(SCHEMES), shares)
def test_is_feasible_and_closest(case: Case, share: Fraction) -> None:
    least = oracles.optimum_over_subsets(case.target, case.law)
    rate = least + (most(case.law) - least) * share
    found = mo.relax(case.problem, acceptance_rate=rate, exact=True)
    x = found.problem.exact_target

    assert found.acceptance_rate == rate
    assert found.lossless_acceptance_rate == least
    assert found.tv == rate - least
    assert oracles.optimum_over_subsets(x, case.law) == rate
    assert_closest(case.target, x, case.law, rate)


@settings(max_examples=25)
@given(cases(PREFIX_SCHEMES, max_vocab=4, max_drafts=2), shares)
def test_the_optimal_verifier_attains_it(case: Case, share: Fraction) -> None:
    least = oracles.optimum_over_subsets(case.target, case.law)
    found = mo.relax(
        case.problem, acceptance_rate=least + (most(case.law) - least) * share, exact=True
    )
    optimal = mo.verifiers.get("optimal")
    output = optimal.output_law(found.problem, exact=True)
    assert tuple(output) == found.problem.exact_target
    rate = optimal.enumerated_acceptance_rate(found.problem, exact=True)
    assert rate == found.acceptance_rate


@given(cases(SCHEMES), shares)
def test_floats_are_near_the_fractions(case: Case, share: Fraction) -> None:
    least = oracles.optimum_over_subsets(case.target, case.law)
    rate = least + (most(case.law) - least) * share
    exact = mo.relax(case.problem, acceptance_rate=rate, exact=True)
    found = mo.relax(case.problem, acceptance_rate=float(rate))
    np.testing.assert_allclose(found.target, exact.target, atol=1e-13)
    assert found.acceptance_rate == pytest.approx(float(rate), abs=1e-14)
    assert found.tv == pytest.approx(float(exact.tv), abs=1e-13)
    if exact.chi2 == np.inf:  # mass where the target has none: rounding may lose it near zero
        assert exact.kl == np.inf
        return
    assert found.kl == pytest.approx(exact.kl, abs=1e-12)
    assert found.chi2 == pytest.approx(float(exact.chi2), rel=1e-9, abs=1e-12)


KINDS: dict[str, Callable[[Any], Any]] = {
    "one": lambda q: mo.WithReplacement(q, 1),
    "with": lambda q: mo.WithReplacement(q, 3),
    "without": lambda q: mo.WithoutReplacement(q, 2),
    "greedy": lambda q: mo.GreedyDrafts(q, 2),
    "mixture": lambda q: mo.MixtureDrafts(
        [(0.4, mo.WithReplacement(q, 1)), (0.6, mo.WithoutReplacement(q, 3))]
    ),
    "fixed": lambda q: mo.FixedPlusDrafts([1], mo.WithReplacement(q, 2)),
    "different": lambda q: mo.IndependentDrafts([q, q[::-1], (q + 0.2) / 2]),
    "set_law": lambda q: mo.DraftSetLaw(
        5, {(0, 1): q[0], (1, 2): q[1], (2, 3, 4): q[2], (3,): q[3], (0, 4): q[4]}
    ),
    "fixed_different": lambda q: mo.FixedPlusDrafts([2], mo.IndependentDrafts([q, q[::-1]])),
}


class TestBudgets:
    problem = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 2))

    def test_by_hand(self) -> None:
        # H = {2}: Q = 1/4, and at a = .95 x must hold 1/4 - 1/20 there, and .64 - .05 on {1, 2}
        found = mo.relax(self.problem, acceptance_rate=0.95)
        np.testing.assert_allclose(found.target, [0.41, 0.354, 0.236], atol=1e-15)
        assert found.tv == pytest.approx(0.09, abs=1e-15)
        assert found.chi2 == pytest.approx(0.09**2 / 0.5 * 2, abs=1e-15)

    @pytest.mark.parametrize("name", ["kl", "chi2", "tv"])
    @pytest.mark.parametrize("budget", [1e-10, 1e-3, 0.02])
    def test_are_used_up(self, name: str, budget: float) -> None:
        found = mo.relax(self.problem, **{name: budget})
        assert getattr(found, name) == pytest.approx(budget, rel=1e-4)
        exact = mo.relax(self.problem, exact=True, **{name: budget})
        assert float(exact.acceptance_rate) == pytest.approx(found.acceptance_rate, abs=1e-12)

    @pytest.mark.parametrize("exact", [False, True])
    @pytest.mark.parametrize(
        ("p", "q", "num_drafts", "budget"),
        [
            # the last unit of acceptance below the next float costs 645
            (np.exp([0.0, -1, -2, -80, -83]), [0.4, 0.3, 0.1, 0.1, 0.1], 2, {"chi2": 0.01}),
            # the largest rate of a finite distance is no float
            ([0, 1e-29, 1 - 1e-7, 1e-7], [1e-5, 1e-8, 1 - 1e-5, 1e-17], 3, {"kl": 1.6e-7}),
            ([0, 1, 1e-17, 1e-17], [1e-12, 1 - 1.2e-11, 1e-12, 1e-11], 1, {"kl": 1.6e-7}),
            # costs of 1e118 and of 1e-11 on one curve
            ([0.5, 0.05, 5e-151, 0.5, 5e-31, 5e-17], [1 / 6] * 6, 2, {"chi2": 4.4e-11}),
        ],
    )
    def test_are_promises(
        self, p: Any, q: Any, num_drafts: int, budget: dict[str, float], exact: bool
    ) -> None:
        p, q = (np.array(x) / np.sum(x) for x in (p, q))
        schemes = [mo.WithReplacement(q, num_drafts), mo.IndependentDrafts([q, q[::-1]])]
        if num_drafts == 2:
            schemes.append(mo.WithoutReplacement(q, 2))
        for drafts in schemes:
            problem = mo.TransportProblem(p, drafts)
            ((name, amount),) = budget.items()
            found = mo.relax(problem, exact=exact, **budget)
            assert getattr(found, name) <= amount
            assert getattr(distances(found.target, problem.target), name) <= amount * (1 + 1e-14)
            # no more acceptance is given away than floats can tell
            rate = Fraction(found.acceptance_rate) + Fraction(1, 10**12)
            if rate < 1:
                more = mo.relax(problem, acceptance_rate=rate, exact=True)
                assert getattr(more, name) > amount * (1 - 1e-9)

    @pytest.mark.parametrize("scheme", ["with", "without", "greedy", "mixture", "fixed",
                                        "different", "set_law", "fixed_different"])  # fmt: skip
    def test_are_promises_where_masses_are_far_apart(self, scheme: str) -> None:
        rng = np.random.default_rng([1, *scheme.encode()])
        for _ in range(40):
            powers = -rng.choice([0, 0, 1, 3, 8, 16, 17, 35, 80, 150, 299], (2, 5))
            powers[:, rng.integers(5)] = 0
            p, q = 10.0**powers * rng.integers(0, 4, (2, 5)).clip(0) + np.eye(5)[rng.integers(5)]
            problem = mo.TransportProblem(p / p.sum(), KINDS[scheme](q / q.sum()))
            for name in ("tv", "kl", "chi2"):
                budget = float(10.0 ** rng.uniform(-12, 0))
                found = mo.relax(problem, **{name: budget})
                assert getattr(found, name) <= budget
                assert found.gap < 1e-5

    @pytest.mark.parametrize("name", ["kl", "chi2", "tv"])
    @pytest.mark.parametrize("exact", [False, True])
    def test_that_buy_everything(self, name: str, exact: bool) -> None:
        found = mo.relax(self.problem, exact=exact, **{name: np.inf})
        assert found.acceptance_rate == 1
        assert found.tv == pytest.approx(0.14, abs=1e-15)

    @pytest.mark.parametrize("name", ["kl", "chi2", "tv", "acceptance_rate"])
    def test_of_nothing_is_the_target_itself(self, name: str) -> None:
        found = mo.relax(self.problem, **{name: 0})
        assert found.problem is self.problem
        assert (found.tv, found.kl, found.chi2) == (0, 0, 0)
        assert found.acceptance_rate == found.lossless_acceptance_rate

    @pytest.mark.parametrize(
        ("given_", "message"),
        [
            ({}, "no budget is given: give exactly one of acceptance_rate, tv, kl, chi2"),
            ({"tv": 0.1, "kl": 0.1}, "tv and kl are given"),
            ({"acceptance_rate": 1.2}, "no law allows more than 1"),
            ({"acceptance_rate": math.inf}, "no law allows more than 1"),
            ({"acceptance_rate": math.nan}, "acceptance_rate is nan"),
        ],
    )
    def test_that_make_no_sense(self, given_: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            mo.relax(self.problem, **given_)

    @pytest.mark.parametrize("exact", [False, True])
    def test_the_largest_rate_is_one_that_can_be_asked_for(self, exact: bool) -> None:
        """1 - 1/5 is no float, and 0.8 is a little more."""
        drafts = mo.DraftSetLaw(2, {(): Fraction(1, 5), (0,): Fraction(4, 5)})
        problem = mo.TransportProblem([Fraction(1, 2), Fraction(1, 2)], drafts)
        assert float(mo.relax(problem, acceptance_rate=0.8, exact=exact).acceptance_rate) == 0.8


class TestZeros:
    """q = (1/2, 1/2, 0), p = (0, 1/2, 1/2), K = 1: alpha* = 1/2 and Q({0}) = 1/2."""

    problem = mo.TransportProblem(
        [Fraction(0), Fraction(1, 2), Fraction(1, 2)],
        mo.WithReplacement([Fraction(1, 2), Fraction(1, 2), Fraction(0)], 1),
    )

    def test_mass_without_target_is_forced(self) -> None:
        found = mo.relax(self.problem, acceptance_rate=Fraction(3, 4), exact=True)
        assert found.problem.exact_target == (Fraction(1, 4), Fraction(1, 2), Fraction(1, 4))
        assert (found.tv, found.kl, found.chi2) == (Fraction(1, 4), np.inf, np.inf)
        assert found.reverse_kl == pytest.approx(math.log(2) / 2, abs=1e-14)

    @pytest.mark.parametrize("name", ["kl", "chi2"])
    def test_finite_budgets_stop_where_distances_become_infinite(self, name: str) -> None:
        found = mo.relax(self.problem, **{name: 100.0})
        assert found.acceptance_rate == 0.5
        assert getattr(found, name) == 0

    def test_finite_up_to_a_known_acceptance(self) -> None:
        p, q = [0.0, 0.6, 0.4], [0.2, 0.1, 0.7]
        problem = mo.TransportProblem(p, mo.WithReplacement(q, 2))
        found = mo.relax(problem, kl=1e6)
        assert found.acceptance_rate == 1 - 0.2**2
        assert 0 < found.kl < 1
        assert mo.relax(problem, acceptance_rate=found.acceptance_rate + 1e-9).kl == np.inf

    def test_rounding_makes_no_token_possible(self) -> None:
        """The float of 7/12 is larger than that of 1 - 5/12, the rate of the target itself."""
        q = [Fraction(5, 12), Fraction(7, 12)]
        problem = mo.TransportProblem([0.0, 1.0], mo.WithReplacement(q, 1))
        found = mo.relax(problem, acceptance_rate=7 / 12)
        assert (found.kl, found.chi2, found.tv) == (0, 0, 0)

    def test_several_are_shared_like_the_draft(self) -> None:
        p = [Fraction(0), Fraction(0), Fraction(1)]
        q = [Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)]
        found = mo.relax(
            mo.TransportProblem(p, mo.WithReplacement(q, 2)), acceptance_rate=1, exact=True
        )
        # Q({0, 1}) = 9/16, in the ratio 1 : 2
        assert found.problem.exact_target == (Fraction(3, 16), Fraction(6, 16), Fraction(7, 16))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("p", "drafts"),
    [
        ([1.0], mo.WithReplacement([1.0], 3)),
        ([0.3, 0.7], mo.WithReplacement([0.3, 0.7], 2)),
        ([0.0, 1.0], mo.WithoutReplacement([0.5, 0.5], 2)),
        ([0.0, 1.0, 0.0], mo.WithReplacement([0.0, 1.0, 0.0], 2)),
        ([0.1, 0.9], mo.TopKDrafts([0.3, 0.7], 5)),
    ],
)
def test_nothing_to_gain(p: list[float], drafts: Any, exact: bool) -> None:
    found = mo.relax(mo.TransportProblem(p, drafts), acceptance_rate=1, exact=exact)
    assert float(found.lossless_acceptance_rate) == pytest.approx(1, abs=1e-15)
    assert float(found.acceptance_rate) == 1
    assert found.kl == pytest.approx(0, abs=1e-15)
    np.testing.assert_allclose(found.target, p, atol=1e-15)


def test_one_hot_draft() -> None:
    """K copies of one token, which the target gives 1/10: the rest keeps its proportions."""
    problem = mo.TransportProblem([0.1, 0.6, 0.3], mo.WithReplacement([1.0, 0.0, 0.0], 4))
    found = mo.relax(problem, acceptance_rate=0.4)
    np.testing.assert_allclose(found.target, [0.4, 0.4, 0.2], atol=1e-15)
    assert mo.relax(problem, acceptance_rate=1.0).target.tolist() == [1.0, 0.0, 0.0]
    assert mo.relax(problem, acceptance_rate=1.0).reverse_kl == np.inf


def test_laws_of_one_target_in_float32() -> None:
    p, q = (np.array(x, dtype=np.float32) for x in ([0.7, 0.2, 0.1], [0.1, 0.3, 0.6]))
    found = mo.relax(mo.TransportProblem(p, mo.WithReplacement(q, 2)), tv=0.1)
    assert found.tv == pytest.approx(0.1, abs=1e-14)


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement", "greedy", "top_k"])
def test_full_vocabulary_is_certified(scheme: str) -> None:
    """The relaxed target really allows the rate, at the price the theorem names."""
    sample = np.load(sample_logits_path())
    problem = mo.TransportProblem.from_logits(sample["target"][3], sample["draft"][3], 2, scheme)
    found = mo.relax(problem, kl=0.01)
    assert found.kl == pytest.approx(0.01, abs=1e-9)
    assert found.tv == pytest.approx(
        found.acceptance_rate - found.lossless_acceptance_rate, abs=1e-12
    )
    solution = mo.solve(found.problem)
    certificate = mo.certify(found.problem, solution)
    assert certificate.valid
    assert certificate.lower == pytest.approx(found.acceptance_rate, abs=1e-11)
    assert certificate.upper == pytest.approx(found.acceptance_rate, abs=1e-11)


class TestDifferentModels:
    def problem(self, size: int = 40) -> mo.TransportProblem:
        rng = np.random.default_rng(5)
        p, *models = (rng.dirichlet(np.full(size, 0.3)) for _ in range(3))
        return mo.TransportProblem(p, mo.IndependentDrafts(models))

    def test_is_certified(self) -> None:
        found = mo.relax(self.problem(), kl=0.02)
        assert found.gap < 2e-6
        assert found.kl == pytest.approx(0.02, abs=1e-9)
        proven = mo.certify(found.problem, mo.solve(found.problem))
        assert proven.lower >= found.acceptance_rate - found.gap - 2e-9
        assert proven.upper <= found.acceptance_rate + 1e-12

    def test_the_gap_of_a_short_chain_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = mo.relax(self.problem(), tv=0.1)
        monkeypatch.setattr(chains.SetsOfChain, "tolerance", 0.02)
        short = mo.relax(self.problem(), tv=0.1)
        assert short.gap > 1e-4
        best = mo.solve(short.problem).lower_bound
        assert best == pytest.approx(short.acceptance_rate - short.gap, abs=2e-6)
        assert short.kl < whole.kl  # fewer sets ask for less: a lower bound for every such law

    def test_exact_arithmetic_has_its_limit(self) -> None:
        with pytest.raises(mo.ProblemTooLarge, match="all subsets of the 40 tokens"):
            mo.relax(self.problem(), tv=0.1, exact=True)

    def test_nothing_may_be_drafted(self) -> None:
        drafts = mo.DraftSetLaw(2, {(): Fraction(1, 4), (0,): Fraction(3, 4)})
        problem = mo.TransportProblem([Fraction(1, 2), Fraction(1, 2)], drafts)
        assert mo.relax(problem, tv=1, exact=True).acceptance_rate == Fraction(3, 4)
        with pytest.raises(InvalidInput, match=r"no law allows more than 0\.75"):
            mo.relax(problem, acceptance_rate=0.8)


class TestDistances:
    def test_small_changes_do_not_cancel(self) -> None:
        """All four to second order: t^2/2, t^2/2, t^2 at relative changes +-t."""
        for t in (1e-9, 1e-5, 9.9e-4, 1.01e-3):
            p = np.array([0.5, 0.5])
            found = distances(p * np.array([1 + t, 1 - t]), p)
            t = (p[0] * (1 + t) - p[0]) / p[0]  # as it was rounded
            kl = t**2 / 2 + t**4 / 12
            assert found.kl == pytest.approx(kl, rel=1e-9)
            assert found.reverse_kl == pytest.approx(t**2 / 2 + t**4 / 4, rel=1e-9)
            assert found.chi2 == pytest.approx(t**2, rel=1e-9)
            assert found.tv == pytest.approx(t / 2, rel=1e-9)

    def test_where_masses_vanish(self) -> None:
        p = np.array([0.5, 0.5, 0.0])
        assert distances(np.array([1.0, 0.0, 0.0]), p).kl == pytest.approx(math.log(2))
        assert distances(np.array([1.0, 0.0, 0.0]), p).reverse_kl == np.inf
        other = distances(np.array([0.25, 0.25, 0.5]), p)
        assert (other.kl, other.chi2, other.tv) == (np.inf, np.inf, 0.5)
        assert other.reverse_kl == pytest.approx(math.log(2))


@given(cases(SCHEMES), st.sampled_from([0.0, 1e-4, 0.3, 0.9, 1.0]), st.sampled_from(["kl", "chi2"]))
def test_costs_are_those_of_the_laws(case: Case, share: float, name: str) -> None:
    frontier = frontier_of(case.problem)
    costs = CostCurve.of(frontier)
    least, most = float(frontier.least), float(min(frontier.most, frontier.most_finite))
    rate = least + max(most - least, 0.0) * share
    law = frontier.law(rate) if rate > least else frontier.p
    expected = getattr(distances(law, frontier.p), name)
    assert costs.cost(name, rate) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    if expected > 1e-6:
        assert costs.rate_within(name, expected) == pytest.approx(rate, abs=1e-8)
    if frontier.most > frontier.most_finite:
        assert costs.cost(name, float(frontier.most)) == np.inf
    assert costs.rate_within(name, np.inf) == float(frontier.most)


@pytest.mark.parametrize("name", ["kl", "chi2"])
def test_slopes_are_derivatives(name: str) -> None:
    rng = np.random.default_rng(8)
    p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    for drafts in (mo.WithReplacement(q, 2), mo.IndependentDrafts([q, q[::-1]])):
        frontier = frontier_of(mo.TransportProblem(p, drafts))
        costs = CostCurve.of(frontier)
        for share in (0.21, 0.53, 0.86):
            rate = frontier.least + share * (1 - frontier.least)
            step = 1e-6
            up, down = (getattr(distances(frontier.law(rate + s), p), name) for s in (step, -step))
            slope = costs.slope(name, rate)
            assert slope == pytest.approx((up - down) / (2 * step), rel=1e-4)
            assert costs.rate_at_slope(name, slope) == pytest.approx(rate, abs=1e-9)


def test_equal_slopes_spend_a_mean_budget_best() -> None:
    rng = np.random.default_rng(9)
    problems = [
        mo.TransportProblem(
            rng.dirichlet(np.ones(6)), mo.WithReplacement(rng.dirichlet(np.ones(6)), 1)
        )
        for _ in range(5)
    ]
    lossless, point = survey_frontier(problems, [0.0, 0.4])
    assert lossless.kl == lossless.tv == 0
    assert lossless.acceptance_rate == pytest.approx(
        np.mean([mo.solve(problem).acceptance_rate for problem in problems])
    )
    assert point.tv == pytest.approx(point.acceptance_rate - lossless.acceptance_rate, abs=1e-12)
    equal = [mo.relax(problem, kl=point.kl) for problem in problems]
    assert np.mean([found.acceptance_rate for found in equal]) < point.acceptance_rate


@pytest.mark.parametrize(
    "scheme",
    [
        lambda q: mo.WithReplacement(q, 2),
        lambda q: mo.IndependentDrafts([q, [Fraction(3, 4), Fraction(1, 4), Fraction(0)]]),
    ],
)
def test_exact_laws_may_be_smaller_than_any_float(scheme: Callable[..., Any]) -> None:
    """Where others gain, a token of 1.5e-300 is left with less than the least float."""
    tiny = Fraction(15, 10**301)
    p = [Fraction(1, 2), Fraction(1, 2) - tiny, tiny]
    q = [Fraction(1), Fraction(0), Fraction(0)]
    problem = mo.TransportProblem(p, scheme(q))
    found = mo.relax(problem, acceptance_rate=Fraction(19, 20), exact=True)
    x = found.problem.exact_target
    assert 0 < x[2] < Fraction(1, 10**300)
    assert sum(x) == 1
    assert found.target[2] == 0
    assert found.tv == found.acceptance_rate - found.lossless_acceptance_rate
    optimal = mo.verifiers.get("optimal")
    assert tuple(optimal.output_law(found.problem, exact=True)) == x
    certificate = mo.certify(found.problem, mo.solve(found.problem), exact=True)
    assert certificate.valid
    assert certificate.upper == found.acceptance_rate


@pytest.mark.parametrize("tiny", [1e-150, 1e-30])
def test_steep_chains_are_found_where_no_order_is_known(tiny: float) -> None:
    """The sets of the chain lie at slopes of 1 / tiny; the rate that is told is reached."""
    drafts = mo.DraftSetLaw(6, {(): 0.25, (1,): 0.25, (4,): 0.5 - tiny, (2, 5): tiny})
    target = np.array([0.0, 2 * tiny, 1.0, tiny, tiny, 3 * tiny])
    problem = mo.TransportProblem(target, drafts)
    for rate in (0.3, 0.5, 0.7):
        found = mo.relax(problem, acceptance_rate=rate)
        assert found.gap < 1e-6
        exact = mo.relax(problem, acceptance_rate=rate, exact=True)
        np.testing.assert_allclose(found.target, exact.target, atol=1e-8)


def test_the_lossless_rate_is_the_optimum_where_no_order_is_known() -> None:
    """A set of the chain that would add a millionth to the hull decides alpha* itself."""
    models = [np.array([0.5, 0.5]), np.array([1.0 - 4e-7, 4e-7])]
    problem = mo.TransportProblem(np.array([1.0 - 1e-8, 1e-8]), mo.IndependentDrafts(models))
    expected = mo.solve(problem).acceptance_rate
    found = mo.relax(problem, tv=0).lossless_acceptance_rate
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("tiny", [1e-300, 1e-200, 1e-17])
def test_tiny_masses_of_the_target(tiny: float) -> None:
    """A token that the draft likes and the target hardly has: no overflow, a finite distance."""
    q = np.array([0.4, 0.3, 0.2, 0.1])
    for drafts in (mo.WithReplacement(q, 2), mo.IndependentDrafts([q, q[::-1]])):
        problem = mo.TransportProblem(np.array([tiny, 0.2, 0.3, 0.5]), drafts)
        found = mo.relax(problem, acceptance_rate=1)
        x = found.target[0]
        assert x == pytest.approx(drafts.containment(np.arange(4) == 0))
        assert found.chi2 == pytest.approx(x**2 / tiny, rel=1e-6)
        assert mo.relax(problem, kl=0.01).kl == pytest.approx(0.01)
