"""The race of drafts without replacement: single tokens, and light ones in bulk."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from mdsd_opt.drafts import WithoutReplacement
from mdsd_opt.prefix_search import MOMENTS
from mdsd_opt.prefix_search import race_kernels as kernels
from mdsd_opt.prefix_search.race_kernels import RACE_ROWS

Vector = NDArray[np.float64]


@numba.njit
def begun(slowest: float, num_drafts: int) -> Any:
    """The rate of light tokens, the table of the race, and its law before any token."""
    light_rate, step, first, nodes = kernels.race_terms(slowest, num_drafts, False)
    table = np.empty((RACE_ROWS + num_drafts, nodes))
    kernels.fill_terms(table, light_rate, step, first)
    rang = np.empty((num_drafts, nodes))
    kernels.start_race(rang, num_drafts)
    return light_rate, table, rang


@numba.njit
def added(rang: Any, once: float, q: Vector, others: float, table: Any) -> float:
    for x in q:
        once = kernels.add_token(rang, once, rang.shape[0], x, others, table)
    return once


@numba.njit
def added_in_bulk(rang: Any, once: float, q: Vector, light_rate: float, table: Any) -> float:
    moments = np.array([((q / light_rate) ** r).sum() for r in range(1, MOMENTS + 1)])
    if rang.shape[0] > 2:
        kernels.add_light_tokens(rang, rang.shape[0], moments, light_rate, table)
    return once + kernels.light_once_gain(moments, light_rate)


@numba.njit
def escapes(rang: Any, once: float, outside: float, table: Any) -> Vector:
    """1 - Q of every number of drafts."""
    counts = np.arange(1, rang.shape[0] + 1)
    found = np.empty(counts.size)
    kernels.escape(rang, once, outside, table, counts, counts.size, found)
    return found


def race_of(q: Vector, num_drafts: int) -> Any:
    descending = np.sort(q)[::-1]
    return *begun(descending[num_drafts - 1 :].sum(), num_drafts), descending[1:].sum()


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
    exact = [Fraction(w, sum(weights)) for w in weights]
    q = np.array([float(x) for x in exact])
    for k in range(1, len(weights)):
        _, table, rang, others = race_of(q, k)
        expected = WithoutReplacement(exact, k).law(True).prefix_containment(np.arange(q.size))
        once = 0.0
        for j in range(q.size):
            found = 1 - escapes(rang, once, q[j:].sum(), table)[-1]
            assert found == pytest.approx(float(expected[j]), abs=3e-14)
            once = added(rang, once, q[j : j + 1], others, table)


@pytest.mark.parametrize("num_drafts", [2, 3, 6, 12])
def test_light_tokens_in_bulk(num_drafts: int) -> None:
    rng = np.random.default_rng(num_drafts)
    q = np.concatenate([rng.random(30) ** 4, rng.random(4000) ** 8 * 0.05])
    q /= q.sum()
    light_rate, table, singly, others = race_of(q, num_drafts)
    light = q[q <= light_rate]
    assert 1000 < light.size < 4000  # enough of them, and some that are not light
    once = in_bulk = added(singly, 0.0, q[q > light_rate], others, table)
    together, outside = singly.copy(), light.sum()
    for part in np.array_split(light, 7):
        in_bulk = added_in_bulk(together, in_bulk, part, light_rate, table)
        once = added(singly, once, part, others, table)
        outside = max(outside - part.sum(), 0.0)
        found, expected = (
            escapes(*race, outside, table) for race in ((together, in_bulk), (singly, once))
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
