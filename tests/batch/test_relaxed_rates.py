"""Relaxed rates of batches against the frontier of each row, token by token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.strategies import distributions

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.errors import InvalidDistribution, InvalidInput, UnknownName
from mdsd_opt.solvers.frontier import relaxed_rows

SCHEMES = tuple(SINGLE_MODEL_SCHEMES)


def logits(p: Any) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.log(np.array(p, dtype=np.float64))


def sample(rows: Any, dtype: Any = np.float32) -> tuple[NDArray[Any], NDArray[Any]]:
    stored = np.load(sample_logits_path())
    return stored["target"][rows].astype(dtype), stored["draft"][rows].astype(dtype)


def of_relax(target: Any, draft: Any, k: int, scheme: str, **budget: float) -> float:
    problem = mo.TransportProblem.from_logits(target, draft, k, scheme)
    return float(mo.relax(problem, **budget).acceptance_rate)


@given(
    st.integers(1, 6).flatmap(lambda n: st.tuples(distributions(n), distributions(n))),
    st.sampled_from(SCHEMES),
    st.sampled_from(["tv", "kl", "chi2"]),
)
def test_are_those_of_relax(pair: Any, scheme: str, name: str) -> None:
    """Small vocabularies: ties, zeros on both sides, p = q, one-hot, one token, K above V."""
    target, draft = (logits(x) for x in pair)
    budgets = (0.0, 1e-9, 1e-3, 0.2, math.inf)
    found = mo.relaxed_rates(target, draft, (1, 2, 3), scheme, **{name: budgets})
    assert found.shape == (3, 5)
    for n, k in enumerate((1, 2, 3)):
        expected = [of_relax(target, draft, k, scheme, **{name: b}) for b in budgets]
        np.testing.assert_allclose(found[n], expected, atol=1e-6)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["kl", "chi2"])
def test_full_vocabulary(scheme: str, name: str) -> None:
    target, draft = sample([2, 18])
    budgets = (1e-5, 1e-2, 1.0)
    found = mo.relaxed_rates(target, draft, (1, 4), scheme, **{name: budgets})
    for row in range(2):
        for n, k in enumerate((1, 4)):
            expected = [of_relax(target[row], draft[row], k, scheme, **{name: b}) for b in budgets]
            np.testing.assert_allclose(found[row, n], expected, atol=1e-6)
            assert (found[row, n] <= np.array(expected) + 2e-8).all()


def test_several_at_once_are_those_of_single_calls() -> None:
    target, draft = sample([0, 5, 9])
    schemes, counts, budgets = ("greedy", "with_replacement"), (3, 1), (0.02, 0.001)
    found = mo.relaxed_rates(target, draft, counts, schemes, kl=budgets)
    assert found.shape == (3, 2, 2, 2)
    for s, scheme in enumerate(schemes):
        for n, k in enumerate(counts):
            for b, budget in enumerate(budgets):
                single = mo.relaxed_rates(target, draft, k, scheme, kl=budget)
                assert single.shape == (3,)
                np.testing.assert_allclose(found[:, s, n, b], single, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_total_variation_and_nothing_are_exact(scheme: str) -> None:
    target, draft = sample(slice(0, 42, 6))
    lossless = mo.acceptance_rates(target, draft, 2, scheme)
    assert (mo.relaxed_rates(target, draft, 2, scheme, kl=0) == lossless).all()
    found = mo.relaxed_rates(target, draft, 2, scheme, tv=0.05)
    assert (found - lossless <= 0.05).all()
    np.testing.assert_allclose(found, np.minimum(lossless + 0.05, 1.0), rtol=0, atol=2e-16)


class TestDoubt:
    """Ratios so close that buckets hide them."""

    def pair(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rng = np.random.default_rng(2)
        p = rng.dirichlet(np.ones(60))
        q = p * (1 + 4e-4 * rng.random(60))  # all in one bucket or two
        return logits(p), logits(q / q.sum())

    @pytest.mark.parametrize("budget", [1e-12, 1e-10, 1e-8])
    def test_is_settled_token_by_token(self, budget: float) -> None:
        target, draft = self.pair()
        found = mo.relaxed_rates(target, draft, 1, kl=budget)
        expected = of_relax(target, draft, 1, "with_replacement", kl=budget)
        assert found == pytest.approx(expected, abs=1e-9)

    def test_is_not_settled_by_buckets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(relaxed_rows, "_SAFETY", 0.0)
        target, draft = self.pair()
        expected = of_relax(target, draft, 1, "with_replacement", kl=1e-10)
        assert mo.relaxed_rates(target, draft, 1, kl=1e-10) > expected + 2e-8

    def test_of_ratios_beyond_all_buckets(self) -> None:
        """The target likes tokens that the draft hardly has, and the other way round."""
        rng = np.random.default_rng(6)
        target, draft = 40 * rng.standard_normal((2, 50))
        for budget in (0.01, 3.0, 300.0):
            found = mo.relaxed_rates(target, draft, 2, kl=budget)
            expected = of_relax(target, draft, 2, "with_replacement", kl=budget)
            assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["kl", "chi2"])
def test_budgets_are_promises(scheme: str, name: str) -> None:
    """Rates are those of laws within the budget, whatever groups of tokens hide."""
    budgets = (1e-5, 1e-4, 1e-3, 0.01)
    p = np.full(20_000, 1 / 20_000)
    near = p * np.exp(0.1 * np.random.default_rng(3).standard_normal(p.size))  # many to a bucket
    for target, draft in (sample([2, 18], np.float64), (logits([p]), logits([near]))):
        found = mo.relaxed_rates(target, draft, (1, 3), scheme, **{name: budgets})
        for row, n, b in np.ndindex(found.shape):
            problem = mo.TransportProblem.from_logits(target[row], draft[row], (1, 3)[n], scheme)
            law = mo.relax(problem, acceptance_rate=min(float(found[row, n, b]), 1.0))
            assert getattr(law, name) <= budgets[b] * (1 + 1e-9)


class TestSpread:
    @pytest.mark.parametrize("name", ["kl", "chi2"])
    def test_best_buys_what_equal_slopes_buy(self, name: str) -> None:
        target, draft = sample(slice(0, 42, 5), np.float64)
        budgets = (1e-5, 0.002, 0.05)
        best = mo.relaxed_rates(target, draft, (1, 2), spread="best", **{name: budgets})
        equal = mo.relaxed_rates(target, draft, (1, 2), **{name: budgets})
        assert best.shape == equal.shape == (9, 2, 3)
        gains = (best - equal).mean(axis=0)
        assert (gains > [1e-6, 1e-4, 1e-4]).all()
        for n, k in enumerate((1, 2)):
            for b, budget in enumerate(budgets):
                spent = [
                    mo.relax(
                        mo.TransportProblem.from_logits(t, d, k, "with_replacement"),
                        acceptance_rate=min(a, 1.0),
                    )
                    for t, d, a in zip(target, draft, best[:, n, b].tolist(), strict=True)
                ]
                mean = float(np.mean([getattr(x, name) for x in spent]))
                assert mean == pytest.approx(budget, rel=2e-3)
                assert mean <= budget * (1 + 1e-9)

    def test_best_of_one_row_is_equal(self) -> None:
        target, draft = sample(4)
        best = mo.relaxed_rates(target, draft, 2, kl=0.01, spread="best")
        assert best == pytest.approx(mo.relaxed_rates(target, draft, 2, kl=0.01), abs=1e-5)

    def test_budgets_of_nothing_and_of_everything(self) -> None:
        target, draft = sample(slice(0, 9, 3))
        found = mo.relaxed_rates(target, draft, 2, kl=(0.0, 1e6), spread="best")
        np.testing.assert_allclose(found[:, 0], mo.acceptance_rates(target, draft, 2), atol=1e-6)
        np.testing.assert_allclose(found[:, 1], 1.0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_dtypes_and_threads(dtype: Any) -> None:
    target, draft = sample(slice(0, 6), dtype)
    one = mo.relaxed_rates(target, draft, 2, kl=0.01, num_threads=1)
    assert (one == mo.relaxed_rates(target, draft, 2, kl=0.01, num_threads=3)).all()
    single = sample(slice(0, 6), np.float32)
    np.testing.assert_allclose(one, mo.relaxed_rates(*single, 2, kl=0.01), atol=1e-7)


def test_filters_and_temperature() -> None:
    target, draft = sample([7])
    settings: dict[str, Any] = {"temperature": 0.7, "draft_temperature": 1.2, "top_k": 50}
    found = mo.relaxed_rates(target, draft, 2, kl=0.01, **settings)
    problem = mo.TransportProblem.from_logits(
        target[0], draft[0], 2, "with_replacement", **settings
    )
    assert found[0] == pytest.approx(mo.relax(problem, kl=0.01).acceptance_rate, abs=1e-7)


def test_probabilities_and_other_libraries() -> None:
    target, draft = sample([7, 8], np.float64)
    expected = mo.relaxed_rates(target, draft, 2, kl=0.01)
    found = mo.relaxed_rates(mo.softmax(target), mo.softmax(draft), 2, kl=0.01, kind="probs")
    np.testing.assert_allclose(found, expected, atol=1e-9)
    with pytest.raises(InvalidInput, match="kind"):
        mo.relaxed_rates(mo.softmax(target), mo.softmax(draft), 2, kl=0.01)
    da = pytest.importorskip("dask.array")
    with pytest.raises(InvalidInput, match="takes no Dask arrays"):
        mo.relaxed_rates(da.asarray(target), da.asarray(draft), 2, kl=0.01)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({}, InvalidInput, "no budget is given: give exactly one of tv, kl, chi2"),
        ({"tv": 0.1, "kl": 0.1}, InvalidInput, "tv and kl are given"),
        ({"kl": []}, InvalidInput, "kl is empty"),
        ({"kl": 1, "drafts": []}, InvalidInput, "drafts is empty"),
        ({"kl": 1, "drafts": "what"}, UnknownName, "unknown draft scheme 'what'"),
        ({"kl": 1, "num_drafts": 0}, InvalidInput, "num_drafts is 0"),
        ({"kl": 1, "spread": "even"}, UnknownName, "unknown spread 'even'"),
        ({"tv": 1, "spread": "best"}, InvalidInput, "wherever it is spent"),
        ({"kl": math.inf, "spread": "best"}, InvalidInput, "nothing to spread"),
    ],
)
def test_bad_input(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mo.relaxed_rates(np.zeros((2, 3)), np.zeros((2, 3)), **settings)


def test_bad_rows_are_named() -> None:
    target = np.zeros((2, 3))
    target[1, 0] = np.nan
    with pytest.raises(InvalidDistribution, match=r"target_logits\[1\]|row 1"):
        mo.relaxed_rates(target, np.zeros((2, 3)), kl=0.1)
