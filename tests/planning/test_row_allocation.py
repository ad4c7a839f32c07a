"""Rows of a batch, shared out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput


def best_by_enumeration(table: np.ndarray, budget: int) -> float:
    n, most = table.shape
    return max(
        sum(table[i, k - 1] if k else 0.0 for i, k in enumerate(chosen))
        for chosen in itertools.product(range(most + 1), repeat=n)
        if sum(chosen) <= budget
    )


@pytest.mark.parametrize("concave", [False, True])
def test_no_allocation_accepts_more(concave: bool) -> None:
    rng = np.random.default_rng(int(concave))
    for _ in range(60):
        n, most = rng.integers(1, 4), rng.integers(1, 5)
        gains = (
            np.sort(rng.random((n, most)), axis=1)[:, ::-1] if concave else rng.random((n, most))
        )
        gains = gains * (rng.random((n, 1)) < 0.8)  # requests that no draft helps
        table = np.cumsum(gains, axis=1) / most
        budget = int(rng.integers(0, n * most + 2))
        found = mo.allocate_rows(table, budget)
        assert found.accepted == pytest.approx(best_by_enumeration(table, budget), abs=1e-12)
        assert found.num_drafts.sum() <= budget
        assert (found.num_drafts[(table == 0).all(axis=1)] == 0).all()


def test_gain_by_gain_fails_where_rates_are_not_concave() -> None:
    """The example of docs/theory: alpha* of p = (0, 0, 1), q = (.50, .49, .01)."""
    q, p = np.array([0.50, 0.49, 0.01]), np.array([0.0, 0.0, 1.0])
    rates = [
        mo.solve(mo.TransportProblem(p, mo.WithoutReplacement(q, k))).acceptance_rate
        for k in (1, 2, 3)
    ]
    assert rates == pytest.approx([0.01, 151 / 5100, 1.0], abs=1e-9)
    table = np.array([rates, [0.2, 0.4, 0.6]])
    assert mo.allocate_rows(table, 3).num_drafts.tolist() == [3, 0]


def test_more_budget_than_drafts_and_none() -> None:
    table = [[0.5, 0.75], [0.25, 0.25]]
    assert mo.allocate_rows(table, 100).num_drafts.tolist() == [2, 1]
    none = mo.allocate_rows(table, 0)
    assert (none.num_drafts.tolist(), none.accepted, none.uniform_rate) == ([0, 0], 0.0, 0.0)


@pytest.mark.parametrize(
    ("rates", "budget", "message"),
    [
        ([0.5], 1, "shape"),
        (np.empty((0, 3)), 1, "shape"),
        ([[0.5, 1.5]], 1, "not from 0 to 1"),
        ([[0.5, np.nan]], 1, "not from 0 to 1"),
        ([[0.5, 0.4]], 1, r"falls from 0\.5 at 1 drafts"),
        ([[0.5, 0.6]], -1, "budget is -1"),
        ([[0.5, 0.6]], 1.5, r"budget is 1\.5"),
    ],
)
def test_bad_input_is_refused(rates: object, budget: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        mo.allocate_rows(rates, budget)  # type: ignore[arg-type]


def test_falls_by_rounding_are_taken() -> None:
    assert mo.allocate_rows([[0.5, 0.5 - 1e-9]], 2).num_drafts.tolist() == [1]
