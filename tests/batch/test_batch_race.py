"""The race of drafts without replacement: quadrature, single tokens and light ones in bulk."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from mdsd_opt.drafts import WithoutReplacement
from mdsd_opt.prefix_search import MOMENTS
from mdsd_opt.prefix_search import race_kernels as kernels
from mdsd_opt.prefix_search.race_kernels import RACE_ROWS

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Race(NamedTuple):
    table: Matrix
    light_rate: float
    others: float

    @property
    def times(self) -> Vector:
        return self.table[0]


@dataclass
class State:
    rang: Matrix
    once: float


@numba.njit
def table_of(slowest: float, num_drafts: int) -> tuple[Matrix, float]:
    light_rate, step, first, nodes = kernels.race_terms(slowest, num_drafts, False)
    table = np.empty((RACE_ROWS + num_drafts, nodes))
    kernels.fill_terms(table, light_rate, step, first)
    return table, light_rate


@numba.njit
def compiled_start(rang: Matrix) -> None:
    kernels.start_race(rang, rang.shape[0])


@numba.njit
def compiled_add_token(rang: Matrix, once: float, q: float, table: Matrix, others: float) -> float:
    return kernels.add_token(rang, once, rang.shape[0], q, others, table)


@numba.njit
def compiled_add_light_tokens(
    rang: Matrix, once: float, moments: Vector, table: Matrix, light_rate: float
) -> float:
    if rang.shape[0] > 2:
        kernels.add_light_tokens(rang, rang.shape[0], moments, light_rate, table)
    return once + kernels.light_once_gain(moments, light_rate)


@numba.njit
def compiled_escape(
    rang: Matrix, once: float, outside: float, table: Matrix, counts: NDArray[np.int64]
) -> Vector:
    result = np.empty(counts.size)
    kernels.escape(rang, once, outside, table, counts, counts.size, result)
    return result


def new_race(slowest: float, others: float, num_drafts: int) -> Race:
    return Race(*table_of(slowest, num_drafts), others)


def empty_prefix(race: Race, num_drafts: int) -> State:
    rang = np.empty((num_drafts, race.times.size))
    compiled_start(rang)
    return State(rang, 0.0)


def copy_state(state: State) -> State:
    return State(state.rang.copy(), state.once)


def add_token(state: State, q: float, race: Race) -> None:
    state.once = compiled_add_token(state.rang, state.once, q, race.table, race.others)


def add_light_tokens(state: State, moments: Vector, race: Race) -> None:
    state.once = compiled_add_light_tokens(
        state.rang, state.once, moments, race.table, race.light_rate
    )


def race_of(q: Vector, num_drafts: int) -> Race:
    descending = np.sort(q)[::-1]
    return new_race(descending[num_drafts - 1 :].sum(), descending[1:].sum(), num_drafts)


def escapes(state: State, outside: float, race: Race, num_drafts: int) -> Vector:
    counts = np.arange(1, num_drafts + 1)
    found: Vector = compiled_escape(state.rang, state.once, outside, race.table, counts)
    return found


@pytest.mark.parametrize(
    "weights",
    [
        [1] * 9,
        [1, 2, 3, 4, 5, 6, 7, 8, 9],
        [10**15, 3, 1, 4, 1, 5, 9, 2],
        [10**9, 10**9, 10**6, 10**3, 1, 1, 1],
        [1, 10**30, 10**20, 10**10, 1, 1],
    ],
)
def test_prefixes_are_exact(weights: list[int]) -> None:
    q = np.array([w / sum(weights) for w in weights])
    exact = [Fraction(w, sum(weights)) for w in weights]
    for num_drafts in range(1, len(weights)):
        race = race_of(q, num_drafts)
        state = empty_prefix(race, num_drafts)
        expected = (
            WithoutReplacement(exact, num_drafts).law(True).prefix_containment(np.arange(q.size))
        )
        for j in range(len(q)):
            assert 1 - escapes(state, q[j:].sum(), race, num_drafts)[-1] == pytest.approx(
                float(expected[j]), abs=3e-14
            )
            add_token(state, q[j], race)


@pytest.mark.parametrize("num_drafts", [3, 5, 8, 16, 32])
@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_quadrature_against_draws_with_replacement(num_drafts: int, spread: float) -> None:
    """K - 1 repeats of every token are all the difference there is between the two schemes.

    With tokens cut into m equal pieces, m large, drafts are as good as with replacement; here the
    law of the count is Poisson and 1 - Q = 1 - q(H)^K is known.
    """
    rng = np.random.default_rng(0)
    q = np.exp(rng.normal(size=40) * spread)
    q /= q.sum()
    race = new_race(1.0, 1.0, num_drafts)
    mass = q[:25].sum()
    nodes = race.times
    rang = np.empty((num_drafts, nodes.size))
    rang[0] = np.exp(-mass * nodes)
    for n in range(1, num_drafts):
        rang[n] = rang[n - 1] * mass * nodes / n
    state = State(rang, float(mass))
    expected = 1 - mass ** np.arange(1, num_drafts + 1)
    # once = S_1 of infinitely many infinitely light tokens is their mass
    np.testing.assert_allclose(
        escapes(state, 1 - mass, race, num_drafts), expected, rtol=0, atol=2e-13
    )


@pytest.mark.parametrize("num_drafts", [2, 3, 6, 12])
def test_light_tokens_in_bulk(num_drafts: int) -> None:
    rng = np.random.default_rng(num_drafts)
    q = np.concatenate([rng.random(30) ** 4, rng.random(4000) ** 8 * 0.05])
    q /= q.sum()
    race = race_of(q, num_drafts)
    light = q[q <= race.light_rate]
    assert 1000 < light.size < 4000  # enough of them, and some that are not light
    singly = empty_prefix(race, num_drafts)
    for x in q[q > race.light_rate]:
        add_token(singly, x, race)
    together = copy_state(singly)
    outside = light.sum()
    for part in np.array_split(light, 7):
        moments = np.array([((part / race.light_rate) ** r).sum() for r in range(1, MOMENTS + 1)])
        add_light_tokens(together, moments, race)
        for x in part:
            add_token(singly, x, race)
        outside = max(outside - part.sum(), 0.0)
        np.testing.assert_allclose(
            escapes(together, outside, race, num_drafts),
            escapes(singly, outside, race, num_drafts),
            rtol=0,
            atol=1e-13,
        )


@pytest.mark.parametrize("num_drafts", [25, 64, 200])
@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
def test_many_drafts_keep_the_law_where_it_counts(
    num_drafts: int, spread: float, order: str
) -> None:
    """The law at a band of numbers against the law at all of them, after every few tokens."""
    rng = np.random.default_rng(num_drafts)
    q = np.exp(spread * rng.standard_normal(2 * num_drafts + 50))
    q = np.sort(q / q.sum())
    q = {"ascending": q, "descending": q[::-1], "shuffled": rng.permutation(q)}[order]
    race = race_of(q, num_drafts)
    state = empty_prefix(race, num_drafts)
    law = np.zeros_like(state.rang)
    law[0] = 1.0
    for j, x in enumerate(q):
        add_token(state, x, race)
        silent = np.exp(-x * race.times)
        law[1:] = law[:-1] + silent * (law[1:] - law[:-1])
        law[0] *= silent
        if j % 20 == 0 or j + 1 == q.size:
            np.testing.assert_allclose(state.rang, law, rtol=1e-8, atol=1e-14)


def test_the_lightest_tokens_that_are_still_heavy_do_not_matter() -> None:
    """A uniform draft right at the limit of lightness is the worst case for the moments."""
    num_drafts = 8
    size = 1024
    q = np.full(size, 1.0 / size)
    race = race_of(q, num_drafts)
    race = race._replace(light_rate=1.0 / size)
    rate = race.light_rate
    rebuilt = new_race(1.0, 1.0 - rate, num_drafts)
    assert rebuilt.light_rate == rate
    together = empty_prefix(rebuilt, num_drafts)
    singly = empty_prefix(rebuilt, num_drafts)
    add_light_tokens(together, np.full(MOMENTS, 600.0), rebuilt)
    for _ in range(600):
        add_token(singly, rate, rebuilt)
    np.testing.assert_allclose(
        escapes(together, 424 / size, rebuilt, num_drafts),
        escapes(singly, 424 / size, rebuilt, num_drafts),
        rtol=0,
        atol=1e-13,
    )
