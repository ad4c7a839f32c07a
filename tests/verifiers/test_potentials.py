"""Verification by fitted rules and by ratio hull: exact laws, certified gaps, any draft law."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.strategies import UNSORTED_SCHEMES, Case, cases

import mdsd_opt as mo
from mdsd_opt.drafts import DraftScheme, DraftSetLaw, PrefixDraftScheme, SupportLaw
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.verifiers import Uniforms
from mdsd_opt.verifiers.optimal import Optimal, fitted
from mdsd_opt.verifiers.optimal.potentials import fit, leagues_of, win_probabilities
from mdsd_opt.verifiers.ratio_hull import RatioHull, hull_of
from mdsd_opt.verifiers.verdicts import CertifiedRate


@cache
def full_vocabulary(num_drafts: int) -> tuple[mo.TransportProblem, mo.Solution]:
    """Noise on the logits of one model, and the optimum of it."""
    rng = np.random.default_rng(num_drafts)
    logits = 2.5 * rng.standard_normal(131_072)
    models = [mo.softmax(logits + rng.standard_normal(logits.size)) for _ in range(num_drafts)]
    problem = mo.TransportProblem(mo.softmax(logits), mo.IndependentDrafts(models))
    return problem, mo.solve(problem, "submodular")


class TestNoisyChoice:
    @given(st.lists(st.fractions(-2, 2, max_denominator=6), min_size=1, max_size=5))
    def test_exact_probabilities(self, theta: list[Fraction]) -> None:
        wins = win_probabilities(theta)
        assert sum(wins) == 1
        floats = win_probabilities([float(x) for x in theta])
        assert floats == pytest.approx([float(x) for x in wins], abs=1e-14)
        for x, win in zip(theta, wins, strict=True):
            assert (win == 0) == (x + 1 <= max(theta) and x != max(theta))

    def test_against_the_noise_itself(self) -> None:
        theta = np.array([0.0, 0.3, -0.4, 0.3, -1.5])
        noisy = theta + np.random.default_rng(0).random((200_000, 5))
        shares = np.bincount(noisy.argmax(axis=1), minlength=5) / len(noisy)
        assert win_probabilities(theta.tolist()) == pytest.approx(shares, abs=0.006)


class TestLeagues:
    @settings(max_examples=60)
    @given(case=cases(("independent", "set_law"), max_vocab=5), data=st.data())
    def test_laws_by_enumeration(self, case: Case, data: st.DataObject) -> None:
        """Both leagues against the rule itself, summed over the law of the draft sets."""
        size = case.problem.vocab_size
        numbers = st.lists(
            st.sampled_from([-1.5, -0.5, 0.0, 0.25, 1.0]), min_size=size, max_size=size
        )
        theta = np.array(data.draw(numbers))
        bits = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
        subset = np.array(bits)
        expected = np.zeros(size)
        for drafts, mass in case.law.items():
            listed = tuple(set(drafts))
            rivals = [i for i in listed if not subset[i]] or list(listed)
            if rivals:
                for i, win in zip(rivals, win_probabilities(theta[rivals].tolist()), strict=True):
                    expected[i] += float(mass) * win
        law = np.zeros(size)
        for league in leagues_of(case.drafts, subset):
            if league.members.size:
                law[league.members] = league.evaluate(theta[league.members])[1]
        np.testing.assert_allclose(law, expected, rtol=0, atol=1e-13)

    @pytest.mark.parametrize("num_drafts", [1, 2, 3, 5])
    def test_the_law_is_the_gradient_of_the_value(self, num_drafts: int) -> None:
        rng = np.random.default_rng(num_drafts)
        models = list(rng.dirichlet(np.ones(12), size=num_drafts))
        for league in leagues_of(mo.IndependentDrafts(models), rng.random(12) < 0.5):
            theta = rng.standard_normal(league.members.size)
            _, law = league.evaluate(theta)
            for i in range(theta.size):
                step = 1e-5 * (np.arange(theta.size) == i)
                rise = league.evaluate(theta + step)[0] - league.evaluate(theta - step)[0]
                assert rise / 2e-5 == pytest.approx(law[i], abs=1e-8)


class TestOptimal:
    @settings(max_examples=150)
    @given(case=cases(UNSORTED_SCHEMES, max_vocab=6, max_drafts=4))
    def test_reaches_the_optimum(self, case: Case) -> None:
        solution = mo.solve(case.problem, "submodular")
        assert solution.subset is not None
        optimum = solution.acceptance_rate
        potentials = fit(case.problem, 1e-6, solution.subset, solution.upper_bound)
        assert potentials.gap <= 1.1e-6
        assert potentials.bound == pytest.approx(optimum, abs=1.1e-6)
        fixed = potentials.fixed.size
        nothing = sum(mass for drafts, mass in case.law.items() if len(drafts) == fixed)
        total = potentials.selection.sum() + float(nothing)
        assert total == pytest.approx(1.0, abs=1e-12)

    @settings(max_examples=40)
    @given(case=cases(UNSORTED_SCHEMES, max_vocab=5))
    def test_lossless_at_any_potentials(self, case: Case) -> None:
        """A descent that stops where it starts gives a worse rule, and the same output."""
        lazy = Optimal(gap=2.0)
        target = [float(x) for x in case.problem.exact_target]
        np.testing.assert_allclose(lazy.output_law(case.problem), target, rtol=0, atol=1e-12)
        rate = lazy.acceptance_rate(case.problem)
        if isinstance(case.drafts, PrefixDraftScheme):
            return
        assert isinstance(rate, CertifiedRate)
        optimum = mo.solve(case.problem, "submodular").upper_bound
        assert rate <= optimum + 1e-12
        assert rate + rate.gap >= optimum - 1e-12  # by a subset that need not be the best

    @pytest.mark.parametrize("num_drafts", [2, 3, 8])
    def test_full_vocabulary(self, num_drafts: int) -> None:
        problem, solution = full_vocabulary(num_drafts)
        rng = np.random.default_rng(num_drafts)
        verifier = Optimal()
        rate = verifier.acceptance_rate(problem)
        assert isinstance(rate, CertifiedRate)
        assert rate.gap <= 1.1e-6
        selection = fitted(problem, 1e-6).selection
        assert selection.sum() == pytest.approx(1.0, abs=1e-12)
        # The certificate knows nothing of potentials: its bounds enclose the optimum.
        certificate = mo.certify(problem, solution)
        rounding = 1e-12  # of sums over the vocabulary
        assert certificate.lower - 1.1e-6 <= rate <= certificate.upper + rounding
        assert rate + rate.gap >= certificate.lower - rounding
        # Drafts are accepted with the rate on average: Hoeffding, one false alarm in a million.
        count = 2000
        sampled = problem.drafts.sample(rng, count)
        accepted = np.array([verifier.decide(problem, row).accept.sum() for row in sampled])
        assert abs(accepted.mean() - rate) <= np.sqrt(np.log(2e6) / (2 * count))
        for row, mass in zip(sampled[:60], accepted, strict=False):
            below = Uniforms(0.5, 0.5, mass * (1.0 - 1e-9), 0.5)
            assert verifier.verify(problem, row, below).accepted == (mass > 0.0)


class NeighbourDrafts(DraftScheme):
    """A user's own law: a random token with the next one round the circle."""

    scheme: ClassVar[str] = "neighbours"

    def __init__(self, weights: NDArray[np.float64]) -> None:
        self.weights = weights / weights.sum()
        self.vocab_size = weights.size
        self.num_drafts = 2

    def in_fractions(self) -> DraftSetLaw:
        return DraftSetLaw(self.vocab_size, self._masses()).law(True)

    def _containment(self, subset: NDArray[np.bool_]) -> float:
        return float(self.weights[subset & np.roll(subset, -1)].sum())

    def _sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        first = rng.choice(self.vocab_size, size=size, p=self.weights)
        return np.sort(np.stack([first, (first + 1) % self.vocab_size], axis=1))

    def count_supports(self) -> tuple[int, int]:
        return self.vocab_size, 2 * self.vocab_size

    def _masses(self) -> dict[tuple[int, ...], float]:
        sets: dict[tuple[int, ...], float] = {}
        for i, mass in enumerate(self.weights.tolist()):
            pair = tuple(sorted({i, (i + 1) % self.vocab_size}))
            sets[pair] = sets.get(pair, 0.0) + mass
        return sets

    def support_law(self) -> SupportLaw:
        return SupportLaw.from_sets(self.vocab_size, self._masses())


class TestUsersOwnSchemes:
    def test_everything_works_from_the_interface(self) -> None:
        rng = np.random.default_rng(0)
        problem = mo.TransportProblem(rng.dirichlet(np.ones(7)), NeighbourDrafts(rng.random(7)))
        solution = mo.solve(problem, "submodular")
        assert mo.certify(problem, solution, exact=True).gap < 2e-9
        assert solution.acceptance_rate == pytest.approx(
            mo.solve(problem, "full_lp").acceptance_rate, abs=1e-9
        )
        verifier = mo.verifiers.get("optimal")
        np.testing.assert_allclose(verifier.output_law(problem), problem.target, atol=1e-12)
        assert list(verifier.output_law(problem, exact=True)) == list(problem.exact_target)
        assert verifier.acceptance_rate(problem) == pytest.approx(
            solution.acceptance_rate, abs=1.1e-6
        )
        assert mo.audit("optimal", problem, rng=0, num_trials=2000).clean

    def test_exact_laws_have_one_form(self) -> None:
        class Without(NeighbourDrafts):
            in_fractions = DraftScheme.in_fractions

        class Old(NeighbourDrafts):
            def exact_containment(self, subset: Any) -> Fraction:
                return Fraction(1)

        for kind, said in ((Without, "has no laws in"), (Old, "exact_containment is not")):
            problem = mo.TransportProblem(np.ones(3) / 3, kind(np.ones(3)))
            solution = mo.solve(problem, "full_lp")
            assert mo.certify(problem, solution).valid
            with pytest.raises(UnsupportedScheme, match=rf"{said}.*define in_fractions\(\)"):
                mo.certify(problem, solution, exact=True)
        with pytest.raises(AttributeError, match=r"use law\(exact=True\)\.tuple_law\(\)"):
            problem.drafts.exact_tuple_law()


class TestRatioHull:
    @settings(max_examples=100)
    @given(case=cases(("independent",), max_vocab=6))
    def test_its_law_is_the_law_of_its_selection(self, case: Case) -> None:
        rule = RatioHull()
        hull = hull_of(case.problem)
        law = np.zeros(case.problem.vocab_size)
        for drafts, mass in case.law.items():
            row = np.array(drafts)
            accept = rule.decide(case.problem, row).accept
            for token, share in zip(drafts, accept, strict=True):
                law[token] += float(mass) * share
        np.testing.assert_allclose(
            law, np.minimum(case.problem.target, hull.selection), rtol=0, atol=1e-13
        )

    @pytest.mark.parametrize("num_drafts", [2, 3, 8])
    def test_nearly_optimal_at_full_vocabulary(self, num_drafts: int) -> None:
        problem, solution = full_vocabulary(num_drafts)
        rule = RatioHull()
        bound = rule.acceptance_bound(problem)
        assert hull_of(problem).selection.sum() == pytest.approx(1.0, abs=1e-12)
        optimum = solution.acceptance_rate
        assert optimum - 0.02 < bound <= optimum + 1e-12
