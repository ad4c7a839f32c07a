"""Selection by heights: exact laws at any heights, losslessness, and the optimum it reaches."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.small_problems import adversarial_problem, best_subset_value
from support.strategies import Case, cases

import mdsd_opt as mo
from mdsd_opt.drafts import ProductForm, product_form
from mdsd_opt.errors import InvalidInput
from mdsd_opt.solvers import threshold_subset
from mdsd_opt.verifiers.optimal import Optimal, fitted, ladder
from mdsd_opt.verifiers.optimal.ladder import (
    NUM_LEVELS,
    Ladder,
    Side,
    response_to,
    win_probabilities,
)
from mdsd_opt.verifiers.optimal.selection_rule import FittedRule

#: May hold product forms, and mixtures or fixed sets beside them.
_SCHEMES = ("independent", "mixed_models", "fixed_beside_any")

_HEIGHTS = st.fractions(-3, 3, max_denominator=8)


class TestLevelChoice:
    @given(st.lists(_HEIGHTS, min_size=1, max_size=5))
    def test_exact_probabilities(self, heights: list[Fraction]) -> None:
        wins = win_probabilities(heights)
        assert sum(wins) == 1
        floats = win_probabilities([float(x) for x in heights])
        assert floats == pytest.approx([float(x) for x in wins], abs=1e-14)
        for height, win in zip(heights, wins, strict=True):
            best = max(heights)
            surely = best.numerator // best.denominator
            highest = -(-height.numerator // height.denominator)
            assert (win > 0) == (highest >= surely)

    def test_against_the_play_itself(self) -> None:
        heights = np.array([0.25, 1.0, 0.8, -0.4, 1.6])
        rng = np.random.default_rng(0)
        level = np.floor(heights)
        played = level + (rng.random((200_000, 5)) < heights - level)
        winner = (played + rng.random(played.shape)).argmax(axis=1)
        shares = np.bincount(winner, minlength=5) / len(played)
        assert win_probabilities(heights.tolist()) == pytest.approx(shares, abs=0.006)


def with_any_heights(case: Case, data: st.DataObject) -> Ladder | None:
    """A rule for the case's drafts, on a subset and at heights that nothing has fitted."""
    problem = case.problem
    if not ladder.applies_to(problem):
        return None
    size = problem.vocab_size
    bits = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    heights = data.draw(st.lists(_HEIGHTS, min_size=size, max_size=size))
    scores = np.array([float(abs(h) if inside else -abs(h)) for h, inside in
                       zip(heights, bits, strict=True)])  # fmt: skip
    return replace(ladder.fit(problem, 1.0), subset=np.array(bits), scores=scores)


class TestLaws:
    @settings(max_examples=200)
    @given(case=cases(_SCHEMES, max_vocab=4, max_drafts=4), data=st.data())
    def test_lossless_at_any_heights(self, case: Case, data: st.DataObject) -> None:
        """In Fractions, over all draft tuples."""
        rule = with_any_heights(case, data)
        if rule is None:
            return
        decide = FittedRule(rule).decide
        output = [Fraction(0)] * case.problem.vocab_size
        for drafts, mass in case.law.items():
            row = np.full(case.problem.num_drafts, -1)
            row[: len(drafts)] = drafts
            law = decide(case.problem, row, True).law(row, case.problem.vocab_size)
            output = [x + mass * y for x, y in zip(output, law, strict=True)]
        assert output == case.target

    @settings(max_examples=200)
    @given(case=cases(_SCHEMES, max_vocab=5, max_drafts=4))
    def test_the_law_by_enumeration(self, case: Case) -> None:
        """p_Z as a sum over levels against p_Z over all draft tuples, at whatever is fitted."""
        if not ladder.applies_to(case.problem):
            return
        for tolerance in (1.0, 1e-6):
            rule = ladder.fit(case.problem, tolerance)
            law = np.zeros(case.problem.vocab_size)
            for drafts, mass in case.law.items():
                row = np.array(drafts)
                for place, share in rule.shares(row):
                    law[row[place]] += float(mass) * share
            np.testing.assert_allclose(rule.selection, law, rtol=0, atol=1e-13)

    @pytest.mark.parametrize("num_drafts", [2, 3, 8])
    @pytest.mark.parametrize("sign", [1.0, -1.0])
    def test_the_jacobian_against_differences(self, num_drafts: int, sign: float) -> None:
        rng = np.random.default_rng(num_drafts)
        form = product_form(mo.IndependentDrafts(rng.dirichlet(np.ones(60), size=num_drafts)))
        assert form is not None
        q = np.ascontiguousarray(form.q.T)
        nothing = np.zeros(num_drafts)
        base = np.full(num_drafts, 0.0 if sign > 0 else 1.2)
        p = rng.dirichlet(np.ones(60))
        side = Side(form, sign * p, q, nothing, base, sign)
        shares = rng.dirichlet([6, 3, 1], size=num_drafts).T
        masses = np.zeros((NUM_LEVELS, num_drafts))
        masses[:3] = shares
        jacobian = response_to(side, masses).jacobian
        size = len(jacobian)
        for place in range(min(size, 3 * num_drafts)):
            step = np.zeros(masses.size)
            step[place] = 1e-7
            moved = [response_to(side, masses + s * step.reshape(masses.shape)).masses
                     for s in (1.0, -1.0)]  # fmt: skip
            slope = (moved[0] - moved[1]).ravel()[:size] / 2e-7
            np.testing.assert_allclose(jacobian[:, place], slope, rtol=1e-4, atol=1e-5)


class TestOptimum:
    @pytest.mark.parametrize("kind", ["different", "mixture"])
    def test_adversarial_problems_against_all_subsets(self, kind: str) -> None:
        rng = np.random.default_rng(7)
        for _ in range(300):
            problem = adversarial_problem(rng, kind)
            optimum = best_subset_value(problem)
            rule = fitted(problem, 1e-6)
            assert rule.gap <= 1e-6
            assert optimum - 1e-6 <= rule.bound <= optimum + 1e-12
            assert rule.upper >= optimum - 1e-12

    @settings(max_examples=150)
    @given(case=cases(_SCHEMES, max_vocab=6, max_drafts=4))
    def test_ties_and_zeros(self, case: Case) -> None:
        rule = fitted(case.problem, 1e-6)
        optimum = float(best_subset_value(case.problem))
        assert rule.gap <= 1.1e-6
        assert rule.bound == pytest.approx(optimum, abs=1.1e-6)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_single_precision_and_one_hot(self, dtype: type) -> None:
        rng = np.random.default_rng(1)
        p, *models = rng.dirichlet(np.full(500, 0.3), size=4).astype(dtype)
        models[1] = np.eye(500, dtype=dtype)[7]
        problem = mo.TransportProblem(p, mo.IndependentDrafts(models))
        rule = fitted(problem, 1e-6)
        assert isinstance(rule, Ladder)
        assert rule.gap <= 1e-6
        assert rule.selection.sum() == pytest.approx(1.0, abs=1e-12)

    @pytest.mark.parametrize("num_models", [17, 40])
    def test_many_models_are_selected_by_heights(self, num_models: int) -> None:
        rng = np.random.default_rng(2)
        models = rng.dirichlet(np.ones(8), size=num_models)
        problem = mo.TransportProblem(rng.dirichlet(np.ones(8)), mo.IndependentDrafts(models))
        assert isinstance(fitted(problem, 1e-6), Ladder)
        assert Optimal().acceptance_rate(problem) == pytest.approx(
            mo.solve(problem, "submodular").acceptance_rate, abs=1.1e-6
        )

    def test_a_bad_subset_gives_a_gap(self) -> None:
        rng = np.random.default_rng(3)
        p, *models = rng.dirichlet(np.full(50, 0.5), size=3)
        problem = mo.TransportProblem(p, mo.IndependentDrafts(models))
        solution = mo.solve(problem)
        assert solution.subset is not None
        wrong = solution.subset.copy()
        wrong[np.flatnonzero(wrong)[:2]] = False
        rule = ladder.fit(problem, 1e-6, wrong)
        optimum = solution.acceptance_rate
        assert rule.upper == pytest.approx(problem.cut_value(wrong), abs=1e-12)
        assert rule.bound <= optimum + 1e-12
        assert optimum + 1e-3 < rule.upper < 1.0


class TestThresholdSubset:
    @staticmethod
    def problem(num_drafts: int, seed: int) -> tuple[NDArray[np.float64], ProductForm]:
        rng = np.random.default_rng(seed)
        logits = 2.5 * rng.standard_normal(5000)
        models = [mo.softmax(logits + rng.standard_normal(5000)) for _ in range(num_drafts)]
        form = product_form(mo.IndependentDrafts(models))
        assert form is not None
        return mo.softmax(logits), form

    @pytest.mark.parametrize("num_drafts", [2, 3, 8])
    def test_finds_the_optimum_of_noisy_logits(self, num_drafts: int) -> None:
        for seed in range(3):
            p, form = self.problem(num_drafts, seed)
            found = threshold_subset(p, form)
            problem = mo.TransportProblem(p, mo.IndependentDrafts(list(form.q)))
            assert 1.0 + found.value == pytest.approx(problem.cut_value(found.subset), abs=1e-12)
            assert 1.0 + found.value == pytest.approx(mo.solve(problem).upper_bound, abs=1e-9)

    def test_its_value_is_that_of_its_subset(self) -> None:
        rng = np.random.default_rng(11)
        close = 0
        for _ in range(200):
            problem = adversarial_problem(rng, "different")
            form = product_form(problem.drafts)
            assert form is not None
            found = threshold_subset(problem.target, form)
            value = 1.0 + found.value
            assert value == pytest.approx(problem.cut_value(found.subset), abs=1e-12)
            optimum = best_subset_value(problem)
            assert value >= optimum - 1e-12
            close += value <= optimum + 1e-9
        assert close >= 180


class TestBatches:
    @pytest.mark.parametrize("shape", [(2, 4), (2, 0, 4), (3, 2, 4), (2, 2, 5)])
    def test_shapes_that_do_not_fit_are_told(self, shape: tuple[int, ...]) -> None:
        rows = np.full((2, 4), 0.25)
        with pytest.raises(InvalidInput, match=r"draft as \(N, K, V\)"):
            Optimal().verify_batch(
                rows, np.full(shape, 0.25), [[0, 1]] * 2, np.zeros((2, 4)), scheme="independent"
            )

    def test_more_drafts_than_models_are_told(self) -> None:
        rows = np.full((2, 4), 0.25)
        with pytest.raises(InvalidInput, match="row 0"):
            Optimal().verify_batch(
                rows, np.full((2, 2, 4), 0.25), [[0, 1, 2]] * 2, np.zeros((2, 4)),
                scheme="independent",
            )  # fmt: skip
