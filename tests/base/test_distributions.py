"""The door from logits and weights to probabilities."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import distributions

import mdsd_opt as mo
from mdsd_opt import TransportProblem, WithReplacement, softmax
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.errors import InvalidDistribution, InvalidInput, UnknownName

LOG = np.log


def test_softmax_is_exp_over_sum() -> None:
    logits = np.array([[0.0, 1.0, 2.0], [3.0, 3.0, -np.inf]])
    expected = np.exp(logits)
    expected /= expected.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(softmax(logits), expected, rtol=1e-15)


def test_softmax_divides_by_temperature() -> None:
    logits = np.array([0.3, -1.2, 2.0])
    np.testing.assert_allclose(softmax(logits, temperature=0.5), softmax(2 * logits), rtol=1e-15)


def test_temperature_zero_is_the_lowest_of_the_largest() -> None:
    np.testing.assert_array_equal(softmax([1.0, 4.0, 4.0, 0.0], temperature=0), [0, 1, 0, 0])


@pytest.mark.parametrize("temperature", [1e-320, 1e-5, 1e308])
def test_extreme_temperatures_do_not_overflow(temperature: float) -> None:
    probabilities = softmax([1.0, 2.0, 2.0], temperature=temperature)
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-15)
    assert probabilities[1] == probabilities[2] >= probabilities[0]


def test_extreme_logits_do_not_overflow() -> None:
    np.testing.assert_array_equal(softmax([1e308, -1e308]), [1.0, 0.0])


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int32, np.uint8]
)
def test_every_real_dtype_gives_float64(dtype: type) -> None:
    logits = np.array([1, 2, 5], dtype=dtype)
    probabilities = softmax(logits)
    assert probabilities.dtype == np.float64
    np.testing.assert_array_equal(probabilities, softmax([1.0, 2.0, 5.0]))


def test_parameters_may_be_any_real_numbers() -> None:
    halves = mo.softmax([2.0, 1.0, 0.0], 0.5, top_p=0.75, min_p=0.25)
    same = {"temperature": Fraction(1, 2), "top_p": Fraction(3, 4), "min_p": np.float32(0.25)}
    np.testing.assert_array_equal(mo.softmax([2.0, 1.0, 0.0], **same), halves)
    with pytest.raises(InvalidInput, match="temperature is 1000"):
        mo.softmax([1.0], 10**400)


def test_sums_beyond_the_largest_float_are_told_without_a_warning() -> None:
    with pytest.raises(InvalidDistribution, match="sums to inf"):
        mo.WithReplacement([1e308] * 3, 1)
    with pytest.raises(InvalidDistribution, match="but to inf"):
        mo.acceptance_rates([1e308] * 3, [1.0, 0.0, 0.0], kind="probs")
    assert mo.acceptance_rates([1e308] * 3, [1e308] * 3, 1) == pytest.approx(1.0)


def test_low_precision_logits_are_summed_in_double() -> None:
    logits = np.zeros(100_000, dtype=np.float16)  # a float16 sum would end at 65504
    assert softmax(logits).sum() == pytest.approx(1.0, abs=1e-12)


def test_lists_are_welcome_and_inputs_stay_as_they_are() -> None:
    logits = np.array([1.0, 2.0])
    softmax(logits, top_k=1, top_p=0.5, min_p=0.5)
    np.testing.assert_array_equal(logits, [1.0, 2.0])
    np.testing.assert_array_equal(softmax([1, 2]), softmax(logits))


class TestFilters:
    def test_top_k_keeps_ties_with_the_last(self) -> None:
        np.testing.assert_allclose(
            softmax(LOG([0.4, 0.25, 0.25, 0.1]), top_k=2), [4 / 9, 2.5 / 9, 2.5 / 9, 0], rtol=1e-14
        )

    def test_top_k_of_at_least_v_changes_nothing(self) -> None:
        logits = [0.1, 0.7, 0.2]
        np.testing.assert_array_equal(softmax(logits, top_k=3), softmax(logits))
        np.testing.assert_array_equal(softmax(logits, top_k=99), softmax(logits))

    def test_top_p_keeps_the_fewest_that_reach_it(self) -> None:
        p = [0.5, 0.3, 0.15, 0.05]
        for top_p, kept in [(0.2, 1), (0.49, 1), (0.6, 2), (0.81, 3), (0.96, 4), (1.0, 4)]:
            result = softmax(LOG(p), top_p=top_p)
            assert (result > 0).tolist() == [i < kept for i in range(4)]
            np.testing.assert_allclose(result[:kept], np.divide(p, sum(p[:kept]))[:kept])

    def test_top_p_keeps_ties_with_the_last(self) -> None:
        np.testing.assert_allclose(softmax(LOG([0.4, 0.3, 0.3]), top_p=0.5), [0.4, 0.3, 0.3])

    def test_min_p_is_relative_to_the_largest(self) -> None:
        np.testing.assert_allclose(
            softmax(LOG([0.5, 0.3, 0.2]), min_p=0.5), [0.625, 0.375, 0], rtol=1e-14
        )

    def test_min_p_one_keeps_the_tied_best(self) -> None:
        np.testing.assert_allclose(softmax([3.0, 3.0, 1.0], min_p=1.0), [0.5, 0.5, 0.0])

    def test_order_is_top_k_then_top_p(self) -> None:
        # Of the two tokens top-k leaves, the first holds 4/7 >= .55 by itself; top-p before
        # top-k would see .4 < .55 and keep both.
        p = [0.4, 0.3, 0.2, 0.1]
        np.testing.assert_allclose(softmax(LOG(p), top_k=2, top_p=0.55), [1, 0, 0, 0])

    def test_order_is_top_p_then_min_p(self) -> None:
        # .5 < .6, so top-p keeps two; after min-p the first alone would hold .625
        logits = LOG([0.5, 0.3, 0.1, 0.1])
        np.testing.assert_allclose(softmax(logits, top_p=0.6, min_p=0.5), [0.625, 0.375, 0, 0])

    def test_temperature_comes_before_top_p(self) -> None:
        # At T = 1/2 the first token holds .36 / .54 of the mass
        p = [0.6, 0.3, 0.3]
        logits = LOG(p)
        assert (softmax(logits, top_p=0.6) > 0).sum() == 3
        assert (softmax(logits, temperature=0.5, top_p=0.6) > 0).sum() == 1

    def test_rows_are_filtered_on_their_own(self) -> None:
        logits = LOG([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
        both = softmax(logits, top_k=2, top_p=0.75, min_p=0.2)
        for row, alone in zip(both, logits, strict=True):
            np.testing.assert_array_equal(row, softmax(alone, top_k=2, top_p=0.75, min_p=0.2))

    @given(st.lists(st.integers(-6, 6), min_size=1, max_size=7), st.integers(1, 8))
    def test_top_k_against_sorting(self, logits: list[int], k: int) -> None:
        last = sorted(logits, reverse=True)[: min(k, len(logits))][-1]
        kept = np.array(logits) >= last
        expected = np.where(kept, np.exp(np.array(logits, dtype=float)), 0)
        np.testing.assert_allclose(softmax(logits, top_k=k), expected / expected.sum(), rtol=1e-13)

    def test_impossible_tokens_stay_impossible(self) -> None:
        result = softmax([0.0, -np.inf, -np.inf], top_k=2, top_p=0.99, min_p=0.0)
        np.testing.assert_array_equal(result, [1.0, 0.0, 0.0])


class TestLogitErrors:
    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ([0.0, np.nan, 1.0], r"logits row 1, 0 has a NaN \(first at token 1\)"),
            ([0.0, 1.0, np.inf], r"logits row 1, 0 has a \+inf \(first at token 2\)"),
            ([-np.inf] * 3, "logits row 1, 0 is all -inf, so no token is possible"),
        ],
    )
    def test_bad_row_is_named(self, row: list[float], message: str) -> None:
        logits = np.zeros((2, 2, 3))
        logits[1, 0] = row
        with pytest.raises(InvalidDistribution, match=message):
            softmax(logits)

    def test_a_single_row_has_no_number(self) -> None:
        with pytest.raises(InvalidDistribution, match=r"^logits has a NaN"):
            softmax([np.nan, 0.0])

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            (1.0, "the last axis must hold the tokens"),
            (np.zeros((3, 0)), "the last axis must hold the tokens"),
            ([[1, 2], [3]], "not an array of numbers"),
            (["a", "b"], "holds no real numbers"),
            ([1j, 2j], "holds no real numbers"),
            ([None, 1.0], "holds no real numbers"),
        ],
    )
    def test_what_is_no_logits(self, bad: object, message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            softmax(bad)

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"temperature": -1.0}, "temperature is -1.0"),
            ({"temperature": float("nan")}, "temperature is nan"),
            ({"temperature": float("inf")}, "temperature is inf"),
            ({"temperature": "1"}, "temperature is '1'"),
            ({"top_k": -2}, "top_k is -2"),
            ({"top_k": 1.5}, "top_k is 1.5"),
            ({"top_k": float("nan")}, "top_k is nan"),
            ({"top_p": 0.0}, "top_p is 0.0"),
            ({"top_p": 1.1}, "top_p is 1.1"),
            ({"min_p": -0.1}, "min_p is -0.1"),
            ({"min_p": "high"}, "min_p is 'high'"),
        ],
    )
    def test_parameters_out_of_range(self, parameters: dict[str, object], message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            softmax([0.0, 1.0], **parameters)

    def test_no_rows_are_no_error(self) -> None:
        assert softmax(np.zeros((0, 3)), top_k=2, top_p=0.5, min_p=0.1).shape == (0, 3)


class TestProbabilities:
    def test_small_deviations_are_renormalised(self) -> None:
        values = Distribution.of([0.5, 0.5009], "q").values
        assert values.sum() == pytest.approx(1.0, abs=1e-15)
        np.testing.assert_allclose(values, np.array([0.5, 0.5009]) / 1.0009, rtol=1e-15)

    def test_float16_probabilities_pass(self) -> None:
        p = softmax(np.linspace(0, 3, 50)).astype(np.float16)
        assert Distribution.of(p, "p").values.sum() == pytest.approx(1.0, abs=1e-15)

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ([1.2, 2.0], r"q sums to 3\.2, not 1.*logits or counts.*from_logits"),
            ([0.5, 0.5011], r"q sums to 1\.0011, not 1"),
            ([0.0, 0.0], r"q sums to 0, not 1"),
            ([1.5, -0.5], r"q\[1\] is -0\.5, negative"),
            ([np.nan, 1.0], r"q\[0\] is nan"),
            ([np.inf, 0.0], r"q\[0\] is inf"),
            ([], r"q has shape \(0,\)"),
            ([[0.5, 0.5]], r"q has shape \(1, 2\)"),
            (1.0, r"q has shape \(\)"),
            ([Fraction(3, 2), Fraction(-1, 2)], r"q\[1\] is -0\.5, negative"),
            ([Fraction(1, 2), Fraction(1, 3)], r"q sums to 0\.833"),
            ([Fraction(10) ** 400, Fraction(1)], r"q\[0\] is far above 1"),
            ([1 - Fraction(1, 10**320), Fraction(1, 10**320)], r"q\[1\] is a positive fraction"),
        ],
    )
    def test_what_is_no_distribution(self, weights: object, message: str) -> None:
        with pytest.raises(InvalidDistribution, match=message):
            Distribution.of(weights, "q")

    @pytest.mark.parametrize("weights", [None, ["a"], [1j], "half"])
    def test_what_is_no_array(self, weights: object) -> None:
        with pytest.raises(InvalidInput, match="q "):
            Distribution.of(weights, "q")

    def test_the_target_names_itself(self) -> None:
        with pytest.raises(InvalidDistribution, match=r"target sums to 3\.2"):
            TransportProblem([1.2, 2.0], WithReplacement([0.5, 0.5], 2))

    def test_masses_below_the_smallest_count_as_zero(self) -> None:
        given_values = [1.0, 5e-324, 1e-310, 1e-299]
        np.testing.assert_array_equal(Distribution.of(given_values, "q").values, [1, 0, 0, 1e-299])

    def test_the_result_is_a_read_only_copy(self) -> None:
        weights = np.array([0.5, 0.5])
        distribution = Distribution.of(weights, "q")
        weights[0] = 9.0
        np.testing.assert_array_equal(distribution.values, [0.5, 0.5])
        with pytest.raises(ValueError, match="read-only"):
            distribution.values[0] = 1.0


class TestExact:
    @given(st.integers(1, 8).flatmap(distributions))
    def test_fractions_are_kept(self, p: list[Fraction]) -> None:
        distribution = Distribution.of(p, "p")
        assert list(distribution.exact()) == p
        assert distribution.values.tolist() == [float(x) for x in p]  # the nearest floats

    def test_floats_are_exact_dyadics_divided_by_their_sum(self) -> None:
        given_values = [0.1, 0.2, 0.7]
        total = sum(map(Fraction, given_values))
        exact = Distribution.of(given_values, "p").exact()
        assert total != 1
        assert list(exact) == [Fraction(x) / total for x in given_values]

    def test_fractions_that_miss_one_are_divided_by_their_sum(self) -> None:
        exact = Distribution.of([Fraction(1, 2), Fraction(1001, 2000)], "p").exact()
        assert sum(exact) == 1
        assert exact[0] / exact[1] == Fraction(1000, 1001)

    def test_a_list_of_fractions_and_integers_is_rational(self) -> None:
        distribution = Distribution.of([Fraction(1), 0], "p")
        assert distribution.is_rational
        assert not Distribution.of([1, 0], "p").is_rational


class TestFromLogits:
    def test_softmax_on_either_side(self) -> None:
        target, draft = [0.1, 2.0, -1.0], [1.0, 0.0, 0.5]
        problem = TransportProblem.from_logits(
            target, draft, 2, temperature=0.7, draft_temperature=1.3, top_k=2
        )
        np.testing.assert_array_equal(problem.target, softmax(target, 0.7, top_k=2))
        np.testing.assert_array_equal(problem.drafts.q, softmax(draft, 1.3, top_k=2))

    def test_the_draft_follows_the_target_temperature(self) -> None:
        problem = TransportProblem.from_logits([0.0, 2.0], [0.0, 2.0], 2, temperature=0.3)
        np.testing.assert_array_equal(problem.target, problem.drafts.q)

    def test_unknown_scheme_is_guessed(self) -> None:
        with pytest.raises(UnknownName, match=r"'greedi'.*Did you mean 'greedy'.*top_k, with_rep"):
            TransportProblem.from_logits([0.0], [0.0], 2, drafts="greedi")

    def test_batches_go_elsewhere(self) -> None:
        with pytest.raises(InvalidInput, match=r"shape \(1, 2\).*acceptance_rates"):
            TransportProblem.from_logits([[0.0, 2.0]], [[0.0, 2.0]], 2)


def test_infinities_of_both_signs_are_an_error_and_no_warning() -> None:
    with pytest.raises(InvalidDistribution, match=r"q\[0\] is inf"):
        Distribution.of([np.inf, -np.inf, 0.5], "q")
    with pytest.raises(InvalidDistribution, match=r"q\[1\] is inf"):
        Distribution.of([0.5, np.inf], "q")
