"""Batched acceptance rates against definitions: exact on small vocabularies, sorted on large."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import sorted_rates
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support import oracles
from support.logit_rows import rows_of_every_character

import mdsd_opt as mo
from mdsd_opt.base.files.logits import load_logits
from mdsd_opt.data import sample_logits_path

SCHEMES = ("with_replacement", "without_replacement", "greedy", "top_k")
LAWS = {
    "with_replacement": oracles.with_replacement,
    "without_replacement": oracles.without_replacement,
    "greedy": oracles.greedy,
    "top_k": oracles.top_k,
}
Logits = NDArray[np.float64]


def logits_of(weights: list[int]) -> Logits:
    with np.errstate(divide="ignore"):
        return np.log(np.array(weights, dtype=np.float64))


@st.composite
def weight_pairs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Integer weights of two rows: zeros, ties, one-hot and equal rows are common."""
    size = draw(st.integers(1, 5))
    weights = st.lists(
        st.one_of(st.integers(0, 3), st.integers(0, 10**6)), min_size=size, max_size=size
    ).filter(any)
    target = draw(weights)
    return target, draw(st.one_of(weights, st.just(target)))


@pytest.mark.parametrize("scheme", SCHEMES)
@given(pair=weight_pairs(), num_drafts=st.integers(1, 4))
def test_small_rows_are_optimal(
    scheme: str, pair: tuple[list[int], list[int]], num_drafts: int
) -> None:
    target, draft = pair
    p = [Fraction(w, sum(target)) for w in target]
    q = [Fraction(w, sum(draft)) for w in draft]
    expected = oracles.optimum_over_subsets(p, LAWS[scheme](q, num_drafts))
    rate = mo.acceptance_rates(logits_of(target), logits_of(draft), num_drafts, scheme)
    assert rate == pytest.approx(float(expected), abs=1e-13)


COUNTS = (1, 2, 3, 4, 8, 16)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", [1, 2, 7, 100, 700])
def test_rows_of_every_character(scheme: str, size: int) -> None:
    for name, (target, draft) in rows_of_every_character(size).items():
        p, q = sorted_rates.probabilities(target), sorted_rates.probabilities(draft)
        rates = mo.acceptance_rates(target, draft, COUNTS, scheme)
        expected = [sorted_rates.RATES[scheme](p, q, k) for k in COUNTS]
        np.testing.assert_allclose(rates, expected, rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("size", [32_768, 262_144])
def test_large_rows_of_every_character(size: int) -> None:
    counts = (1, 3, 16)
    for name, (target, draft) in rows_of_every_character(size).items():
        p, q = sorted_rates.probabilities(target), sorted_rates.probabilities(draft)
        order = sorted_rates.prefix_order(p, q)
        by_sorting = {
            "with_replacement": partial(sorted_rates.with_replacement, order=order),
            "greedy": sorted_rates.greedy,
            "top_k": sorted_rates.top_k,
        }
        for scheme, expected_rate in by_sorting.items():
            rates = mo.acceptance_rates(target, draft, counts, scheme)
            expected = [expected_rate(p, q, k) for k in counts]
            np.testing.assert_allclose(
                rates, expected, rtol=0, atol=1e-12, err_msg=f"{name}, {scheme}"
            )


@pytest.mark.parametrize("num_drafts", [2, 3, 8])
def test_large_rows_without_replacement(num_drafts: int) -> None:
    """Against the solver, which sorts and adds one token after the other."""
    for name, (target, draft) in rows_of_every_character(32_768).items():
        if name in ("peaked", "range of float64"):
            continue  # covered by the smaller rows
        problem = mo.TransportProblem.from_logits(
            target, draft, num_drafts=num_drafts, drafts="without_replacement"
        )
        rate = mo.acceptance_rates(target, draft, num_drafts, "without_replacement")
        expected = mo.solve(problem, method="subset_selection").acceptance_rate
        assert rate == pytest.approx(expected, abs=1e-11), name


def test_groups_that_are_opened_again_and_again() -> None:
    """Ratios that crowd around the optimal threshold, at ever smaller distances."""
    rng = np.random.default_rng(0)
    draft = rng.normal(size=20_000)
    for spread in (1e-2, 1e-5, 1e-8, 1e-12):
        distance = rng.normal(size=20_000) * spread ** rng.random(20_000)
        p = sorted_rates.probabilities(draft + distance)
        q = sorted_rates.probabilities(draft)
        for k in (1, 2, 5):
            expected = sorted_rates.with_replacement(p, q, k)
            rate = mo.acceptance_rates(draft + distance, draft, k)
            assert rate == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_real_logits(scheme: str) -> None:
    """Against the solver, which sorts and adds one token after the other."""
    sample, counts = load_logits(sample_logits_path()), (1, 2, 4)
    sides = np.asarray(sample.target)[:3], np.asarray(sample.draft)[:3]
    for row, target, draft in zip(mo.acceptance_rates(*sides, counts, scheme), *sides, strict=True):
        for rate, k in zip(row, counts, strict=True):
            problem = mo.TransportProblem.from_logits(target, draft, k, scheme)
            best = mo.solve(problem, method="subset_selection").acceptance_rate
            assert rate == pytest.approx(best, abs=5e-8)


def test_long_runs_of_ties_gather_no_rounding_errors() -> None:
    """Adding one number again and again always rounds the same way."""
    rng = np.random.default_rng(0)
    for _ in range(4):
        target, draft = (
            np.where(rng.random(262_144) < rng.random(), rng.normal(), rng.normal())
            for _ in range(2)
        )
        p, q = sorted_rates.probabilities(target), sorted_rates.probabilities(draft)
        for k in (1, 16):
            expected = sorted_rates.with_replacement(p, q, k)
            assert mo.acceptance_rates(target, draft, k) == pytest.approx(expected, abs=3e-13)


@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-14), (np.float32, 1e-7)])
@pytest.mark.parametrize("noise", [0.0, 1e-7, 1e-4, 1e-2])
def test_a_draft_that_is_nearly_the_target(dtype: type, error: float, noise: float) -> None:
    """Most tokens share a bucket, which is opened by one draft, alone and beside many."""
    rng = np.random.default_rng(1)
    target = (2.5 * rng.standard_normal(20_000)).astype(dtype)
    draft = (target + noise * rng.standard_normal(20_000)).astype(dtype)
    p, q = sorted_rates.probabilities(target), sorted_rates.probabilities(draft)
    rates = mo.acceptance_rates(target, draft, [2, 1, 3, 1])
    expected = [sorted_rates.with_replacement(p, q, k) for k in (2, 1, 3, 1)]
    assert rates == pytest.approx(expected, abs=error)
    assert mo.acceptance_rates(target, draft, 1) == pytest.approx(expected[1], abs=error)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_probabilities_below_the_smallest_count_as_zero(scheme: str) -> None:
    """e^-680 is 1e-295 and counts, e^-700 is 1e-304 and does not; problems agree."""
    target = np.zeros(3)
    for gap, possible in ((680.0, True), (700.0, False)):
        draft = np.array([0.0, -gap, -np.inf])
        rate = mo.acceptance_rates(target, draft, 2, scheme)
        problem = mo.TransportProblem.from_logits(target, draft, num_drafts=2, drafts=scheme)
        assert rate == pytest.approx(mo.solve(problem).acceptance_rate, abs=1e-12)
        if scheme != "with_replacement":
            assert rate == pytest.approx(2 / 3 if possible else 1 / 3, abs=1e-12)


def test_few_drafts_beside_many_where_q_spans_all_numbers() -> None:
    """The nodes are those of the largest K; what they cannot tell is told by single tokens."""
    target, draft = (
        np.clip(x, -6e4, 6e4)[None] for x in rows_of_every_character(100)["range of float64"]
    )
    p = sorted_rates.probabilities(target[0], 5.0)
    q = sorted_rates.probabilities(draft[0], 0.9)
    counts = (1, 2, 3, 8, 16, 32)
    found = mo.acceptance_rates(
        target, draft, counts, "without_replacement", temperature=5.0, draft_temperature=0.9
    )
    expected = [sorted_rates.without_replacement(p, q, k) for k in counts]
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-12)


def test_an_array_without_axes_is_one_number_of_drafts() -> None:
    rows = 2 * np.eye(3)[None], np.zeros((1, 3, 3))
    rates = mo.acceptance_rates(*rows, np.array(2))
    assert rates.shape == (1, 3)
    assert np.array_equal(rates, mo.acceptance_rates(*rows, 2))
