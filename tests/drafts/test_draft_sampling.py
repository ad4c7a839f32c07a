"""Drawn draft tuples against the enumerated law of the ordered tuple.

Each test draws once with a fixed seed, so it cannot flicker. Over the choice of the seed, a correct
sampler fails one test with probability FALSE_ALARM; the samplers with a planted fault are rejected
at the same threshold.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from support import chi_square, oracles

from mdsd_opt.drafts import (
    DraftScheme,
    DraftSetLaw,
    FixedPlusDrafts,
    GreedyDrafts,
    IndependentDrafts,
    MixtureDrafts,
    TopKDrafts,
    WithoutReplacement,
    WithReplacement,
    tokens_at,
)
from mdsd_opt.drafts.plackett_luce_kernels import rates_left
from mdsd_opt.drafts.scheme import inverse_cdf

FALSE_ALARM = 1e-6
NUM_TUPLES = 40_000

Q = [Fraction(n, 20) for n in (1, 0, 8, 4, 4, 3)]
OTHER = [Fraction(n, 20) for n in (5, 5, 0, 1, 2, 7)]

WITH, WITHOUT = oracles.with_replacement(Q, 2), oracles.without_replacement(Q, 3)

SAMPLED: dict[str, tuple[DraftScheme, oracles.Law]] = {
    "with_replacement": (WithReplacement(Q, 3), oracles.with_replacement(Q, 3)),
    "without_replacement": (WithoutReplacement(Q, 3), WITHOUT),
    "without_replacement, whole support": (
        WithoutReplacement(Q, 7),
        oracles.without_replacement(Q, 7),
    ),
    "greedy": (GreedyDrafts(Q, 3), oracles.greedy(Q, 3)),
    "top_k": (TopKDrafts(Q, 3), oracles.top_k(Q, 3)),
    "independent": (IndependentDrafts([Q, OTHER]), oracles.independent([Q, OTHER])),
    "set_law": (
        DraftSetLaw(4, {(): Fraction(1, 8), (0, 2): Fraction(3, 8), (3,): Fraction(1, 2)}),
        {(): Fraction(1, 8), (0, 2): Fraction(3, 8), (3,): Fraction(1, 2)},
    ),
    "mixture": (
        MixtureDrafts(
            [(Fraction(1, 3), WithReplacement(Q, 2)), (Fraction(2, 3), WithoutReplacement(Q, 3))]
        ),
        oracles.mixture([Fraction(1, 3), Fraction(2, 3)], [WITH, WITHOUT]),
    ),
    "fixed_plus": (
        FixedPlusDrafts([5, 1], WithReplacement(Q, 2)),
        {(5, 1, *drafts): mass for drafts, mass in WITH.items()},
    ),
}


def tuples(rows: np.ndarray) -> list[tuple[int, ...]]:
    """Rows without their padding."""
    return [tuple(i for i in row if i >= 0) for row in rows.tolist()]


@pytest.mark.parametrize("name", SAMPLED)
def test_drawn_tuples_follow_the_law(name: str) -> None:
    drafts, law = SAMPLED[name]
    rows = drafts.sample(np.random.default_rng(7), NUM_TUPLES)
    assert rows.shape == (NUM_TUPLES, drafts.num_drafts)
    assert rows.dtype == np.int64
    assert chi_square.p_value(tuples(rows), law) > FALSE_ALARM


@pytest.mark.parametrize(
    ("claimed", "drawn"),
    [
        # draws that forget to leave out what was drawn, only seen in the order of the tuple
        ("without_replacement", WithReplacement(Q, 3)),
        ("with_replacement", WithoutReplacement(Q, 3)),
        # 2 percent of the mass moved from one token to another
        (
            "without_replacement",
            WithoutReplacement([Fraction(n, 100) for n in (5, 0, 38, 22, 20, 15)], 3),
        ),
        (
            "with_replacement",
            WithReplacement([Fraction(n, 100) for n in (5, 0, 38, 22, 20, 15)], 3),
        ),
        ("independent", IndependentDrafts([OTHER, Q])),
    ],
)
def test_a_wrong_sampler_is_rejected(claimed: str, drawn: DraftScheme) -> None:
    rows = drawn.sample(np.random.default_rng(7), NUM_TUPLES)
    assert chi_square.p_value(tuples(rows), SAMPLED[claimed][1]) < FALSE_ALARM


def test_draws_in_the_wrong_order_are_rejected() -> None:
    rows = SAMPLED["without_replacement"][0].sample(np.random.default_rng(7), NUM_TUPLES)
    assert chi_square.p_value(tuples(rows[:, ::-1]), WITHOUT) < FALSE_ALARM


@pytest.mark.parametrize("name", SAMPLED)
def test_one_tuple_is_the_first_of_many(name: str) -> None:
    drafts, _ = SAMPLED[name]
    one = drafts.sample(np.random.default_rng(3))
    assert one.shape == (drafts.num_drafts,)
    np.testing.assert_array_equal(one, drafts.sample(np.random.default_rng(3), 1)[0])
    assert drafts.sample(np.random.default_rng(3), 0).shape == (0, drafts.num_drafts)


def test_many_tuples_of_a_large_vocabulary() -> None:
    """More clocks than fit one chunk; the first draw follows q."""
    vocab_size, size = 3000, 3000
    q = np.arange(vocab_size) / np.arange(vocab_size).sum()
    rows = WithoutReplacement(q, 4).sample(np.random.default_rng(5), size)
    assert all(len(set(row)) == 4 for row in rows.tolist())
    quarters = np.add.reduceat(q, [0, 750, 1500, 2250])
    law = dict(enumerate(quarters.tolist()))
    assert chi_square.p_value((rows[:, 0] // 750).tolist(), law) > FALSE_ALARM


def test_a_dominating_token_comes_first_and_the_rest_by_ratio() -> None:
    q = [1 - 3e-12, 1e-12, 2e-12]
    rows = WithoutReplacement(q, 2).sample(np.random.default_rng(7), NUM_TUPLES)
    law = {(0, 1): Fraction(1, 3), (0, 2): Fraction(2, 3)}  # up to 3e-12
    assert chi_square.p_value(tuples(rows), law) > FALSE_ALARM


def test_the_smallest_masses_are_drawn_without_overflow() -> None:
    drafts = WithoutReplacement([1.0, 1e-299, 1e-300], 2)
    rows = drafts.sample(np.random.default_rng(7), 10_000)
    law = {(0, 1): Fraction(10, 11), (0, 2): Fraction(1, 11)}
    assert chi_square.p_value(tuples(rows), law) > FALSE_ALARM


class Uniforms:
    """Stands in for a generator; hands out the extremes of [0, 1)."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, self.value)


@pytest.mark.parametrize("uniform", [0.0, np.nextafter(1.0, 0.0)])
def test_no_uniform_draws_an_impossible_token(uniform: float) -> None:
    q = np.array([0.0, 0.3, 0.0, 0.7, 0.0])
    drawn = inverse_cdf(q, Uniforms(uniform), (2,))  # type: ignore[arg-type]
    assert drawn.tolist() == [1, 1] if uniform == 0 else [3, 3]


@pytest.mark.parametrize("size", [257, 511, 512, 513, 3000])
@pytest.mark.parametrize("zeros", ["none", "first", "last", "most"])
def test_a_draw_by_blocks_is_that_of_the_running_sum(size: int, zeros: str) -> None:
    rng = np.random.default_rng(size)
    masses = rng.integers(1, 9, size).astype(np.float64)  # of which every sum is exact
    masses[: size // 2 if zeros == "first" else 0] = 0.0
    masses[size // 2 if zeros == "last" else size :] = 0.0
    masses[rng.random(size) < (0.99 if zeros == "most" else 0.0)] = 0.0
    total = int(masses.sum())
    uniforms = np.array([0, 1, total // 3, total // 2, total - 1]) / total
    uniforms = np.append(uniforms + 0.5 / total, [0.0, np.nextafter(1.0, 0.0)])
    expected = np.repeat(np.arange(size), masses.astype(np.int64))[(uniforms * total).astype(int)]
    np.testing.assert_array_equal(tokens_at(masses, uniforms), expected)
    assert [int(tokens_at(masses, u)) for u in uniforms.tolist()] == expected.tolist()


@pytest.mark.parametrize("num_drafts", [1, 2, 5])
def test_few_draws_and_many_are_the_first_arrivals_of_one_race(num_drafts, monkeypatch):
    q = np.random.default_rng(3).dirichlet(np.full(40, 0.2))
    q[:7] = 0.0
    drafts = WithoutReplacement(q / q.sum(), num_drafts)
    one_by_one = drafts.sample(np.random.default_rng(5), 50)
    monkeypatch.setattr("mdsd_opt.drafts.without_replacement._FEW_DRAFTS", 0)
    np.testing.assert_array_equal(one_by_one, drafts.sample(np.random.default_rng(5), 50))


@pytest.mark.parametrize("num_drafts", [1, 2, 4, 6, 7])
def test_what_the_likeliest_leave_is_summed_beside_zeros(num_drafts):
    q = np.array([0.0, 0.1, 0.0, 0.3, 0.2, 0.0, 0.4, 0.0])
    left = np.sort(q)[: q.size - num_drafts + 1].sum()
    assert rates_left(q, num_drafts) == pytest.approx(left, abs=1e-16)
