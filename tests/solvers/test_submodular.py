"""Optima without a prefix order: both routines against all subsets, and the proofs they give."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.strategies import Case, cases, distributions

import mdsd_opt as mo
from mdsd_opt.drafts import DraftScheme, product_form
from mdsd_opt.problem import BoxCover, tile_bound
from mdsd_opt.problem.lower_bounds import cover_bound, order_marginal
from mdsd_opt.solvers.submodular import min_norm_point

CLOSE = np.array([5e-31, 0.4999999975, 5e-151, 5e-9, 0.4999999975, 5e-31])


def all_subsets(size: int) -> list[NDArray[np.bool_]]:
    return [np.array(bits) for bits in product([False, True], repeat=size)]


def optimum(problem: mo.TransportProblem) -> Fraction:
    return min(problem.law(True).cut_value(subset) for subset in all_subsets(problem.vocab_size))


@st.composite
def independent_problems(draw: st.DrawFn) -> mo.TransportProblem:
    """Ties and zeros; sometimes identical drafts, or a target that equals one of them."""
    size, num_drafts = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    models = [draw(distributions(size)) for _ in range(num_drafts)]
    if draw(st.booleans()):
        models[-1] = models[0]
    p = models[0] if draw(st.integers(0, 4)) == 0 else draw(distributions(size))
    return mo.TransportProblem(p, mo.IndependentDrafts(models))


class TestBoxes:
    @given(independent_problems())
    def test_meets_all_subsets_and_is_proved(self, problem: mo.TransportProblem) -> None:
        best = optimum(problem)
        solution = mo.solve(problem, "submodular")
        assert solution.status is mo.Status.OPTIMAL
        assert solution.acceptance_rate == pytest.approx(float(best), abs=1e-12)
        for exact in (False, True):
            certificate = mo.certify(problem, solution, exact)
            assert certificate.valid, certificate.violations
            assert certificate.lower <= best + (0 if exact else 1e-12)
            assert certificate.gap <= 1.1e-9

    @given(independent_problems(), st.data())
    def test_a_tile_bounds_the_optimal_subsets_inside_it(
        self, problem: mo.TransportProblem, data: st.DataObject
    ) -> None:
        p = np.array(problem.exact_target, dtype=object)
        form = product_form(problem.drafts.law(True))
        assert form is not None
        corner = st.lists(st.integers(0, 4), min_size=len(form.q), max_size=len(form.q))
        faces = [np.array([Fraction(x, 4) for x in data.draw(corner)]) for _ in range(2)]
        low, high = np.minimum(*faces), np.maximum(*faces)
        bound = tile_bound(p, form, low, high)
        best = optimum(problem) - 1
        for subset in all_subsets(p.size):
            value = problem.law(True).cut_value(subset) - 1
            point = form.q[:, subset].sum(axis=1) if subset.any() else low * 0
            if value == best and (low <= point).all() and (point <= high).all():
                assert bound is not None
                assert bound.lower <= value

    @pytest.mark.parametrize("num_drafts", [2, 3, 8])
    def test_identical_drafts_are_drafts_with_replacement(self, num_drafts: int) -> None:
        rng = np.random.default_rng(num_drafts)
        p, q = rng.dirichlet(np.full(2000, 0.3), size=2)
        same = mo.TransportProblem(p, mo.IndependentDrafts([q] * num_drafts))
        other = mo.TransportProblem(p, mo.WithReplacement(q, num_drafts))
        assert mo.solve(same).acceptance_rate == pytest.approx(
            mo.solve(other).acceptance_rate, abs=2e-9
        )

    def test_a_limit_leaves_honest_bounds(self) -> None:
        rng = np.random.default_rng(0)
        p, *models = rng.dirichlet(np.full(300, 0.5), size=5)
        problem = mo.TransportProblem(p, mo.IndependentDrafts(models))
        best = mo.solve(problem, "submodular")
        stopped = mo.solve(problem, "submodular", max_tiles=2)
        assert stopped.status is mo.Status.LIMIT
        assert stopped.lower_bound < best.acceptance_rate <= stopped.upper_bound + 1e-9
        assert mo.certify(problem, stopped).valid

    def test_the_options_are_checked(self) -> None:
        problem = mo.TransportProblem([1.0], mo.IndependentDrafts([[1.0]]))
        with pytest.raises(ValueError, match="tolerance is 0"):
            mo.solve(problem, "submodular", tolerance=0)


class TestMixedSchemes:
    """Fixed sets and mixtures at vocabularies where nothing can be listed."""

    @staticmethod
    def schemes() -> list[DraftScheme]:
        rng = np.random.default_rng(0)
        logits = 2.5 * rng.standard_normal(20_000)
        models = [mo.softmax(logits + rng.standard_normal(logits.size)) for _ in range(3)]
        different = mo.IndependentDrafts(models)
        random_number = mo.MixtureDrafts(
            [(0.3, different), (0.3, mo.IndependentDrafts(models[:2])),
             (0.4, mo.WithReplacement(models[0], 2))]
        )  # fmt: skip
        beside = mo.FixedPlusDrafts([3, 5], random_number)
        return [random_number, beside, mo.FixedPlusDrafts([7], mo.GreedyDrafts(models[0], 3))]

    @pytest.mark.parametrize("number", range(3))
    def test_solved_certified_and_verified(self, number: int) -> None:
        drafts = self.schemes()[number]
        rng = np.random.default_rng(1)
        problem = mo.TransportProblem(rng.dirichlet(np.full(20_000, 0.1)), drafts)
        solution = mo.solve(problem)
        certificate = mo.certify(problem, solution)
        assert certificate.valid, certificate.violations
        assert certificate.gap < 2e-9
        verifier = mo.verifiers.get("optimal")
        rate = verifier.acceptance_rate(problem)
        assert rate == pytest.approx(solution.acceptance_rate, abs=1.1e-6)
        for row in drafts.sample(rng, 3):
            law = verifier.conditional_law(problem, row)
            assert law.sum() == pytest.approx(1.0, abs=1e-9)

    def test_random_numbers_of_drafts_share_their_rows(self) -> None:
        form = product_form(self.schemes()[0])
        assert form is not None
        assert form.q.shape == (3, 20_000)
        np.testing.assert_array_equal(form.powers, [[1, 1, 1], [1, 1, 0], [2, 0, 0]])


def nudged(model: list[float], rng: np.random.Generator) -> list[float]:
    """The model with every number moved by up to one unit in the last place."""
    towards = rng.choice([0.0, 1.0], len(model))
    moved = np.where(rng.random(len(model)) < 0.5, model, np.nextafter(model, towards))
    return moved.tolist()


class TestNearlyEqualModels:
    """Rows are shared by what the models are, whichever numbers they are rounded to."""

    SAME_THIRDS = ([1 / 3] * 3, [0.33333333333333337] * 3)  # once normalised, exactly

    def test_one_model_given_in_two_roundings(self) -> None:
        one, other = self.SAME_THIRDS
        problem = mo.TransportProblem(
            [0.5, 0.3, 0.2],
            mo.MixtureDrafts(
                [(0.5, mo.IndependentDrafts([one] * 2)), (0.5, mo.IndependentDrafts([other] * 2))]
            ),
        )
        certificate = mo.certify(problem, mo.solve(problem, "submodular"), exact=True)
        assert certificate.valid, certificate.violations
        assert certificate.gap <= 1.1e-9

    @pytest.mark.parametrize("seed", range(60))
    def test_honest_solutions_are_valid(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        size = int(rng.integers(1, 6))
        weights = rng.integers(0, 4, size) + (np.arange(size) == rng.integers(size))
        model = (weights / weights.sum()).tolist()
        near: list[list[float]] = [model, *(nudged(model, rng) for _ in range(3))]

        def component() -> DraftScheme:
            rows = [near[i] for i in rng.integers(0, 4, int(rng.integers(1, 4)))]
            if rng.random() < 0.3:
                return mo.WithReplacement(rows[0], len(rows))
            return mo.IndependentDrafts(rows)

        shares = rng.dirichlet(np.ones(3))
        drafts = mo.MixtureDrafts([(m, component()) for m in shares])
        p = near[0] if rng.random() < 0.3 else rng.dirichlet(np.ones(size))
        problem = mo.TransportProblem(p, drafts)
        for exact in (False, True):
            certificate = mo.certify(problem, mo.solve(problem, "submodular"), exact)
            assert certificate.valid, certificate.violations
            assert certificate.gap <= 1.1e-9
        forms = [product_form(drafts.law(exact)) for exact in (False, True)]
        np.testing.assert_array_equal(*(form.powers for form in forms if form is not None))

    def test_fractions_that_floats_cannot_tell_apart(self) -> None:
        tiny = Fraction(1, 10**30)
        half = [Fraction(1, 2), Fraction(1, 2)]
        moved = [half[0] + tiny, half[1] - tiny]
        mixed = [(0.5, mo.WithReplacement(half, 1)), (0.5, mo.WithReplacement(moved, 2))]
        problem = mo.TransportProblem([Fraction(1, 3), Fraction(2, 3)], mo.MixtureDrafts(mixed))
        for method in (None, "submodular"):
            certificate = mo.certify(problem, mo.solve(problem, method or "auto"), exact=True)
            assert certificate.valid, certificate.violations
            assert certificate.lower <= optimum(problem) <= certificate.upper


class TestCovers:
    FORM = product_form(mo.IndependentDrafts([[0.5, 0.5], [0.2, 0.8]]))
    P = np.array([0.3, 0.7])

    @pytest.mark.parametrize(
        ("low", "high", "covers"),
        [
            ([[0, 0]], [[1, 1]], True),
            ([[0, 0], [0.5, 0]], [[0.5, 1], [1, 1]], True),
            ([[0, 0], [0.3, 0], [0.3, 0.6]], [[0.4, 1], [1, 0.6], [1, 1]], True),
            ([[0, 0], [0.6, 0], [0.4, 0.6], [0, 0.4], [0.4, 0.4]],  # a pinwheel
             [[0.6, 0.4], [1, 0.6], [1, 1], [0.4, 1], [0.6, 0.6]], True),
            ([[0, 0], [0.5, 0]], [[0.5, 1], [1, 0.999]], False),
            ([[0, 0], [0.6, 0], [0.4, 0.6], [0, 0.4]],
             [[0.6, 0.4], [1, 0.6], [1, 1], [0.4, 1]], False),
            ([[0.0]], [[1.0]], False),
        ],
    )  # fmt: skip
    def test_only_whole_covers_prove_anything(
        self, low: list[list[float]], high: list[list[float]], covers: bool
    ) -> None:
        assert self.FORM is not None
        cover = BoxCover(np.array(low, dtype=float), np.array(high, dtype=float))
        assert (cover_bound(self.P, self.FORM, cover) is not None) is covers


class TestOrders:
    @given(cases(max_vocab=5))
    def test_any_scheme_by_its_containment_alone(self, case: Case) -> None:
        problem = case.problem
        best = float(optimum(problem))

        def along(order: NDArray[np.int64]) -> NDArray[np.float64]:
            contained = problem.drafts.prefix_containment(order)
            inside = np.concatenate([[0.0], np.cumsum(problem.target[order])])
            return inside - contained + contained[0]

        found = min_norm_point(along, problem.vocab_size, 1e-9, 1000, None)
        empty = problem.drafts.containment(np.zeros(problem.vocab_size, dtype=np.bool_))
        assert 1 + found.value - empty == pytest.approx(best, abs=1e-9)
        assert found.value - found.lower <= 1e-9

    @given(cases(("set_law", "independent"), max_vocab=5), st.randoms(use_true_random=False))
    def test_an_order_selects_the_last_draft(self, case: Case, random: st.random.Random) -> None:
        order = list(range(case.problem.vocab_size))
        random.shuffle(order)
        marginal = np.zeros(len(order))
        for members, mass in case.drafts.law(True).support_law().masses().items():
            if members:
                marginal[max(members, key=order.index)] += float(mass)
        np.testing.assert_allclose(
            order_marginal(case.drafts, np.array(order)), marginal, atol=1e-12
        )


@pytest.mark.parametrize(
    ("p", "drafts"),
    [
        # the point nearest to the origin is 0, and the last step towards it is 5e-9 long
        (CLOSE, mo.FixedPlusDrafts([], mo.WithoutReplacement(CLOSE, 2))),
        # two vertices are 7e-9 apart, and the nearest point is between them
        (np.array([9.0, 9.0, 5.0]) / 23.0, mo.GreedyDrafts([0.4999999975, 5e-9, 0.4999999975], 2)),
        # one of two points has a weight of 4e-9
        (np.array([1 - 1.5e-8, 0, 1.5e-8]), mo.WithoutReplacement([0.5, 0.5, 5e-9], 2)),
    ],
)
def test_the_general_routine_reaches_its_tolerance_among_tiny_masses(p, drafts):
    problem = mo.TransportProblem(p, drafts)
    solution = mo.solve(problem, "submodular")
    assert solution.status is mo.Status.OPTIMAL
    assert solution.lower_bound == pytest.approx(float(optimum(problem)), abs=1e-9)
