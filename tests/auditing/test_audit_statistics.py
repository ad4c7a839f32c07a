"""The p-values of the audit: exact, or never too small."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import comb, factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import mdsd_opt as mo
from mdsd_opt.auditing.checks import MIN_EXPECTED, deviations, merged_cells
from mdsd_opt.evidence import (
    TokenDeviation,
    detectable_bias,
    statistics,
    trials_needed,
    unseen_bias,
)
from mdsd_opt.evidence.statistics import recurrence


def all_counts(trials: int, cells: int) -> list[tuple[int, ...]]:
    return [c for c in product(range(trials + 1), repeat=cells) if sum(c) == trials]


def multinomial(counts: tuple[int, ...], p: np.ndarray) -> float:
    coefficient = factorial(sum(counts))
    for c in counts:
        coefficient //= factorial(c)
    return coefficient * float(np.prod(p ** np.array(counts)))


def test_split_scores_are_exactly_normal_at_tiny_counts() -> None:
    """Three trials in five cells, where the usual chi-square approximation is far off."""
    p = np.array([0.4, 0.05, 0.3, 0.05, 0.2])
    rng = np.random.default_rng(0)
    draws = rng.multinomial(3, p, size=4_000)
    scores = np.array([statistics.split_scores(counts, p, rng)[0] for counts in draws])
    assert scores.shape == (4_000, 4)
    for column in scores.T:
        assert stats.kstest(column, "norm").pvalue > 1e-4  # five such tests: false alarm 5e-4
    correlation = np.corrcoef(scores.T) - np.eye(4)
    assert np.abs(correlation).max() < 5 / np.sqrt(4_000)
    p_values = [statistics.chi_square(row) for row in scores]
    assert stats.kstest(p_values, "uniform").pvalue > 1e-4


def test_binomial_scores_of_one_size_are_those_of_each_count() -> None:
    hits = np.array([0, 8, 3, 3, 5, 0])
    each, same = (
        statistics.binomial_scores(hits, trials, share, np.random.default_rng(0))
        for trials, share in ((np.full(6, 8), np.full(6, 0.5)), (8, 0.5))
    )
    np.testing.assert_array_equal(each, same)
    assert np.isfinite(same).all()


def test_split_scores_of_biased_counts_are_not_normal() -> None:
    p = np.array([0.4, 0.05, 0.3, 0.05, 0.2])
    rng = np.random.default_rng(0)
    counts = rng.multinomial(4_000, np.array([0.36, 0.09, 0.3, 0.05, 0.2]))
    assert statistics.chi_square(statistics.split_scores(counts, p, rng)[0]) < 1e-20


def test_binomial_tails_are_exact_at_both_ends() -> None:
    for trials, share in product((0, 1, 7, 60), (Fraction(0), Fraction(1, 1000), Fraction(2, 3))):
        chances = [
            comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(trials + 1)
        ]
        hits = np.arange(-1, trials + 2)
        below = statistics.binomial_at_most(hits, trials, float(share))
        above = statistics.binomial_above(hits, trials, float(share))
        for n, k in enumerate(hits.tolist()):
            exact = sum(chances[: k + 1], Fraction(0))
            assert below[n] == pytest.approx(float(exact), rel=1e-12, abs=0)
            assert above[n] == pytest.approx(float(1 - exact), rel=1e-12, abs=0)


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (10, 10), (3, 10), (1, 20_000)])
def test_intervals_of_rates_end_where_the_tails_have_their_share(hits: int, trials: int) -> None:
    low, high = statistics.rate_interval(hits, trials, 0.999)
    tails = (
        statistics.binomial_above(hits - 1, trials, low) if hits else 0.0005,
        statistics.binomial_at_most(hits, trials, high) if hits < trials else 0.0005,
    )
    assert tails == pytest.approx((0.0005, 0.0005), rel=1e-9)
    assert low <= hits / trials <= high
    assert (low == 0.0) == (hits == 0)
    assert (high == 1.0) == (hits == trials)


def test_scores_survive_counts_whose_tails_underflow() -> None:
    scores, _ = statistics.split_scores(
        np.array([100_000, 0]), np.array([1e-9, 1 - 1e-9]), np.random.default_rng(0)
    )
    assert np.isfinite(scores).all()
    assert statistics.chi_square(scores) < 1e-300


def test_scores_beyond_the_tails_of_floating_point_are_bounds() -> None:
    """z = -162, 100, 81 or 70 is not 40; where tails do not underflow, bounds are a little less."""
    law = np.array([0.9, 0.06, 0.02, 0.015, 0.005])
    found = deviations(np.array([500_000, 160_000, 160_000, 100_000, 80_000]), law)
    report = mo.audit_drafts(lambda rng: [0], mo.WithReplacement(law, 1), 0, 100)
    text = str(replace(report, tokens=(*found, TokenDeviation(7, 0.1, 0.2, -39.94))))
    assert text.count("|z| > 40") == 5
    assert text.count("z = -39.9") == 1
    impossible = deviations(np.array([9, 1]), np.array([1.0, 0.0]))
    assert {found.z for found in impossible} == {40.0, -40.0}
    trials, share = 10_000, np.linspace(0.2, 0.5, 40)
    hits = np.arange(3_500, 3_900, 10)
    exact = stats.norm.isf(statistics.two_sided(hits, trials, share) / 2)
    bounds = statistics.least_scores(hits, trials, share)
    far = (exact > 5) & (exact < 37)
    assert far.sum() > 10
    assert (bounds[far] <= exact[far]).all()
    assert (bounds[far] >= exact[far] - 0.5).all()


def test_recurrences_alarm_no_more_often_than_stated() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 20, 300):
        found = np.array([recurrence(rng.random(size), rng) for _ in range(400)])
        for level in (0.2, 0.05, 0.01):
            assert (found <= level).sum() <= stats.binom.isf(1e-5, 400, level)


@pytest.mark.parametrize("kind", ["in turn", "by chance", "once more"])
def test_points_that_come_again_are_found(kind: str) -> None:
    """Of 50, new ones every 1,000 times; or 50 of every 1,000 once more, 50 later."""
    rng = np.random.default_rng(1)
    points = rng.random((20, 1_000))
    if kind == "in turn":
        points = np.tile(points[:, :50], 20)
    elif kind == "by chance":
        points = np.take_along_axis(points, rng.integers(50, size=points.shape), axis=1)
    else:
        points[:, 50:100] = points[:, :50]
    assert recurrence(points.ravel(), rng) < 1e-8


def test_one_cell_has_no_scores() -> None:
    scores, depths = statistics.split_scores(
        np.array([7]), np.array([1.0]), np.random.default_rng(0)
    )
    assert scores.size == depths.size == 0
    assert statistics.chi_square(scores) == 1.0


@pytest.mark.parametrize("p", [(0.5, 0.3, 0.2), (0.98, 0.015, 0.005)])
def test_single_tokens_never_alarm_too_often(p: tuple[float, ...]) -> None:
    """Pr(p-value <= a) <= a for every a, by enumeration of all outcomes."""
    law = np.array(p)
    outcomes = all_counts(6, 3)
    weights = np.array([multinomial(c, law) for c in outcomes])
    p_values = np.array([statistics.single_tokens(np.array(c), law) for c in outcomes])
    assert weights.sum() == pytest.approx(1)
    for a in p_values:
        assert weights[p_values <= a].sum() <= a + 1e-12


def exact_law_of_sum(probabilities: np.ndarray) -> np.ndarray:
    law = np.ones(1)
    for p in probabilities:
        law = np.convolve(law, [1 - p, p])
    return law


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_chernoff_bounds_lie_above_the_exact_tails(given_p: list[float]) -> None:
    p = np.array(given_p)
    law = exact_law_of_sum(p)
    for hits in range(p.size + 1):
        tail = law[hits:].sum() if hits >= p.sum() else law[: hits + 1].sum()
        assert statistics.one_sided_bound(hits, p) >= tail * (1 - 1e-9) - 1e-15
        bound = statistics.poisson_bound(np.array([hits]), np.array([p.sum()]))[0]
        assert bound >= min(1.0, 2 * tail) * (1 - 1e-9) - 1e-15


def test_chernoff_bound_is_sharp_to_a_small_factor() -> None:
    p = np.full(1_000, 0.3)
    tail = stats.binom.sf(374, 1_000, 0.3)
    assert tail <= statistics.one_sided_bound(375, p) <= 30 * tail


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 2_000))
def test_cells_are_a_partition_with_large_enough_parts(weights: list[int], trials: int) -> None:
    weights[0] += 1
    p = np.array(weights) / sum(weights)
    order = np.random.default_rng(0).permutation(p.size)
    cells = merged_cells(p, order, trials, max_cells=8)
    assert (cells.of_token[p == 0] == -1).all()
    assert set(cells.of_token[p > 0]) == set(range(cells.probabilities.size))
    mass = np.bincount(cells.of_token[p > 0], weights=p[p > 0])
    np.testing.assert_allclose(mass, cells.probabilities)
    smallest = max(MIN_EXPECTED / trials, 1 / 8)
    light = np.array([p[cells.of_token == c].max() < smallest for c in range(mass.size)])
    assert (mass[~light] >= smallest).all()
    # at most one group of light tokens may fall short: when all of them together do
    short = light & (mass < smallest - 1e-12)
    assert not short.any() or (light.sum() == 1)


def test_likely_tokens_stay_alone() -> None:
    p = np.array([0.5, 0.001, 0.3, 0.001, 0.198])
    cells = merged_cells(p, np.arange(5), 1_000)
    assert len({cells.of_token[i] for i in (0, 2, 4)}) == 3


def test_dependence_of_consecutive_outcomes_is_found_and_independence_is_not() -> None:
    rng = np.random.default_rng(0)
    law = np.array([0.25, 0.25, 0.5])
    independent = rng.choice(3, size=4_000, p=law)
    assert statistics.consecutive(independent, law, rng) > 1e-4
    sticky = independent.copy()
    copied = rng.random(4_000) < 0.3  # the law of each stays what it was
    for n in np.flatnonzero(copied).tolist():
        sticky[n] = sticky[n - 1]
    assert statistics.consecutive(sticky, law, rng) < 1e-12


@pytest.mark.parametrize(("bias", "cells"), [(0.1, 2), (0.1, 32)])
def test_stated_power_is_the_power(bias: float, cells: int) -> None:
    """At `trials_needed`, 99 % of the audits find a bias of this size and the worst shape."""
    level = 1e-6
    trials = trials_needed(bias, cells, level, 0.99)
    assert detectable_bias(trials, cells, level, 0.99) == pytest.approx(bias, rel=1e-2)
    rng = np.random.default_rng(0)
    p = np.full(cells, 1 / cells)
    biased = p * (1 + 2 * bias * np.where(np.arange(cells) % 2, 1, -1))
    found = 0
    for _ in range(500):
        scores, _ = statistics.split_scores(rng.multinomial(trials, biased), p, rng)
        found += statistics.chi_square(scores) < level
    assert stats.binom.cdf(found, 500, 0.99) > 1e-3
    assert stats.binom.sf(found - 1, 500, 0.995) > 1e-3  # and not many more trials than needed


def test_too_few_trials_can_see_nothing() -> None:
    assert detectable_bias(10, 4, 1e-6, 0.99) == 1.0
    assert detectable_bias(10_000, 1, 1e-6, 0.99) == 1.0
    assert detectable_bias(0, 4, 1e-6, 0.99) == 1.0
    biases = [detectable_bias(n, 4, 1e-6, 0.99) for n in (10, 100, 1_000, 10_000)]
    assert biases == sorted(biases, reverse=True)
    assert unseen_bias(0, 0.99) == 1.0
    assert unseen_bias(100, 0.99) == pytest.approx(1 - 0.01**0.01)


def test_distance_is_unbiased_where_plain_frequencies_are_not() -> None:
    rng = np.random.default_rng(0)
    p = np.full(200, 1 / 200)
    estimate, interval = statistics.distance(rng.choice(200, 2_000, p=p), p, 0.99)
    plain = 0.5 * np.abs(np.bincount(rng.choice(200, 2_000, p=p), minlength=200) / 2_000 - p).sum()
    assert plain > 0.1
    assert estimate < 0.04
    assert interval.low == 0.0


def test_distance_interval_holds_the_truth() -> None:
    rng = np.random.default_rng(1)
    p = np.array([0.5, 0.3, 0.2])
    biased = np.array([0.45, 0.3, 0.25])
    missed = 0
    for _ in range(200):
        _, interval = statistics.distance(rng.choice(3, 3_000, p=biased), p, 0.9)
        missed += not interval.low <= 0.05 <= interval.high
    assert missed <= 20  # 10 % allowed
