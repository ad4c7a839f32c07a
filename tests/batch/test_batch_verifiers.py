"""Batched rates of the published verifiers against the verifiers themselves, row by row."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from support.logit_rows import rows_of_every_character
from support.verifier_table import counts_for

import mdsd_opt as mo
from mdsd_opt import verifiers
from mdsd_opt.errors import InvalidDistribution, InvalidInput, UnknownName, UnsupportedScheme
from mdsd_opt.verifiers import batch_verifiers
from mdsd_opt.verifiers.rrs import without_replacement_rates

SCHEMES = ("with_replacement", "without_replacement", "greedy", "top_k")
PAIRS = [(scheme, verifier) for scheme in SCHEMES for verifier in batch_verifiers(scheme)]
COUNTS = (1, 2, 3, 5)


def logits(seed: int, *shape: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=shape) * 3


def rows(size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows of every character, and such as leave one token alone possible."""
    draft = logits(0, size)
    certain = np.where(np.arange(size) == size - 1, 0.0, -np.inf)
    pairs = [(draft, certain), (certain, draft), (certain, certain)]
    target, draft = zip(*pairs, *rows_of_every_character(size).values(), strict=True)
    return np.array(target), np.array(draft)


def reference(verifier: str, problem: mo.TransportProblem) -> float:
    algorithm: Any = verifiers.get(verifier)
    if verifiers.get(verifier).bounds_batches:
        return float(algorithm.acceptance_bound(problem))
    rate = algorithm.acceptance_rate(problem)
    assert type(rate) is float  # the exact one, no estimate
    return rate


def test_every_scheme_has_its_verifiers() -> None:
    expected = {
        "with_replacement": {
            "optimal",
            "naive_target",
            "single_draft",
            "rrs",
            "kseq",
            "importance_sampling",
            "gumbel",
        },
        "without_replacement": {"optimal", "rrs", "naive_target", "race"},
        "greedy": {"optimal", "greedy", "spechub", "naive_target"},
        "top_k": {"optimal", "greedy", "naive_target"},
    }
    for scheme, some in expected.items():
        assert some <= {*batch_verifiers(scheme)}


@pytest.mark.parametrize(("scheme", "verifier"), PAIRS)
@pytest.mark.parametrize("size", [1, 2, 7, 14])
def test_each_verifier_row_by_row(scheme: str, verifier: str, size: int) -> None:
    target, draft = rows(size)
    counts = counts_for(verifiers.get(verifier), *COUNTS)
    rates = mo.acceptance_rates(target, draft, counts, scheme, verifier)
    assert rates.shape == (len(target), len(counts))
    for row in range(len(target)):
        for j, k in enumerate(counts):
            if (verifier, scheme) == ("rrs", "without_replacement") and size == 14 and k == 5:
                continue  # an estimate, checked below
            problem = mo.TransportProblem.from_logits(target[row], draft[row], k, scheme)
            expected = reference(verifier, problem)
            assert rates[row, j] == pytest.approx(expected, abs=1e-10), (row, k)


@pytest.mark.parametrize(("scheme", "verifier"), PAIRS)
def test_large_rows(scheme: str, verifier: str) -> None:
    target = np.stack([logits(0, 20_000), logits(1, 20_000)])
    draft = target + logits(2, 2, 20_000) / 4
    counts = counts_for(verifiers.get(verifier), 1, 2, 4)
    rates = mo.acceptance_rates(target, draft, counts, scheme, verifier)
    for j, k in enumerate(counts):
        if (verifier, scheme) == ("rrs", "without_replacement") and k > 2:
            continue
        problem = mo.TransportProblem.from_logits(target[1], draft[1], k, scheme)
        assert rates[1, j] == pytest.approx(reference(verifier, problem), abs=1e-10), k


def test_estimates_without_replacement() -> None:
    """Against the exact recursion, row by row, and on average over rows."""
    target, draft = logits(0, 16, 60), logits(1, 16, 60)
    counts = (3, 4)
    rates = mo.acceptance_rates(target, draft, counts, "without_replacement", "rrs")
    exact = np.empty_like(rates)
    for row in range(len(target)):
        p, q = mo.softmax(target[row]), mo.softmax(draft[row])
        for j, k in enumerate(counts):
            (exact[row, j],), (error,) = without_replacement_rates(p, q, [k], 1, 0)
            assert error is None
    np.testing.assert_allclose(rates[:, 0], exact[:, 0], atol=1e-12)  # few enough tokens
    deviations = rates[:, 1] - exact[:, 1]
    assert np.abs(deviations).max() < 0.02
    assert np.abs(deviations).max() > 1e-9  # it is an estimate
    assert abs(deviations.mean()) < 5 * deviations.std() / np.sqrt(len(deviations))


def test_an_estimate_depends_on_row_and_seed_alone() -> None:
    target, draft = logits(0, 40, 300), logits(1, 40, 300)

    def rates(rows: Any = slice(None), **options: Any) -> Any:
        return mo.acceptance_rates(
            target[rows], draft[rows], 4, "without_replacement", "rrs", **options
        )

    expected = rates()
    np.testing.assert_array_equal(rates(num_threads=1), expected)
    np.testing.assert_array_equal(rates(num_threads=7), expected)
    np.testing.assert_array_equal(rates(slice(None, None, -3)), expected[::-3])
    assert (rates(rng=1) != expected).all()
    assert len(np.unique(rates([0, 0, 1]))) == 2


@pytest.mark.parametrize(("scheme", "verifier"), PAIRS)
def test_threads_sequences_and_storage_make_no_difference(scheme: str, verifier: str) -> None:
    target, draft = logits(0, 9, 8000), logits(1, 9, 8000)
    counts = counts_for(verifiers.get(verifier), 2, 1, 4)
    rates = mo.acceptance_rates(target, draft, counts, scheme, verifier)
    for num_threads in (1, 2, 5):
        again = mo.acceptance_rates(
            target, draft, counts, scheme, verifier, num_threads=num_threads
        )
        np.testing.assert_array_equal(again, rates)
    estimated = (verifier, scheme) == ("rrs", "without_replacement")
    for j, k in enumerate(counts):
        alone = mo.acceptance_rates(target, draft, k, scheme, verifier)
        assert alone.shape == (9,)
        tolerance = 0.02 if estimated and k > 2 else 1e-13
        np.testing.assert_allclose(alone, rates[:, j], rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_narrow_logits_and_temperature(dtype: str) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    target, draft = logits(0, 4, 200).astype(kind), logits(1, 4, 200).astype(kind)
    for scheme, verifier in PAIRS:
        if verifier == "optimal":
            continue
        (k,) = counts_for(verifiers.get(verifier), 2)
        options: dict[str, Any] = {"temperature": 0.7, "draft_temperature": 1.3, "top_k": 50}
        for chosen in ({}, options):
            wide = [x.astype(np.float64) for x in (target, draft)]
            rates = mo.acceptance_rates(target, draft, k, scheme, verifier, **chosen)
            exact = mo.acceptance_rates(*wide, k, scheme, verifier, **chosen)
            np.testing.assert_allclose(rates, exact, rtol=0, atol=1e-12)
            problem = mo.TransportProblem.from_logits(wide[0][3], wide[1][3], k, scheme, **chosen)
            assert rates[3] == pytest.approx(reference(verifier, problem), abs=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1e-30, 1e-3, 1e7, 1e300])
def test_extreme_temperatures(temperature: float, dtype: type) -> None:
    target, draft = logits(0, 3, 30).astype(dtype), logits(1, 3, 30).astype(dtype)
    for scheme, verifier in PAIRS:
        (k,) = counts_for(verifiers.get(verifier), 2)
        rates = mo.acceptance_rates(target, draft, k, scheme, verifier, temperature=temperature)
        for row in range(3):
            problem = mo.TransportProblem.from_logits(
                target[row], draft[row], k, scheme, temperature=temperature
            )
            tolerance = 1e-10 if dtype is np.float64 else 1e-7
            assert rates[row] == pytest.approx(reference(verifier, problem), abs=tolerance)


def test_padding_and_a_batch_of_many_axes() -> None:
    target, draft = logits(0, 2, 3, 50), logits(1, 3, 45)
    rates = mo.acceptance_rates(target, draft, [1, 3], verifier="kseq", pad=True)
    assert rates.shape == (2, 3, 2)
    problem = mo.TransportProblem.from_logits(target[1, 2], draft[2], 3, pad=True)
    assert rates[1, 2, 1] == pytest.approx(reference("kseq", problem), abs=1e-12)
    assert mo.acceptance_rates(np.zeros((0, 5)), np.zeros((0, 5)), verifier="rrs").shape == (0,)


@pytest.mark.parametrize(("scheme", "verifier"), PAIRS)
def test_bad_rows_are_named(scheme: str, verifier: str) -> None:
    good, (k,) = logits(0, 3, 40), counts_for(verifiers.get(verifier), 2)
    for value, message in ((np.nan, "NaN"), (np.inf, r"\+inf"), (None, "all -inf")):
        bad = good.copy()
        if value is None:
            bad[2] = -np.inf
        else:
            bad[2, 7] = value
        with pytest.raises(InvalidDistribution, match=f"target_logits row 2 .*{message}"):
            mo.acceptance_rates(bad, good, k, scheme, verifier)
        with pytest.raises(InvalidDistribution, match=f"draft_logits row 2 .*{message}"):
            mo.acceptance_rates(good, bad, k, scheme, verifier)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"drafts": "greedy", "verifier": "rrs"}, UnsupportedScheme, "optimal, naive_target, spec"),
        ({"drafts": "top_k", "verifier": "kseq"}, UnsupportedScheme, "optimal, naive_target, gre"),
        ({"verifier": "greedy"}, UnsupportedScheme, "optimal, naive_target, single_draft, rrs"),
        ({"verifier": "lp"}, UnsupportedScheme, "no batched rates of verifier 'lp'"),
        (
            {"drafts": "greedy", "verifier": "spechub", "num_drafts": [2, 3]},
            UnsupportedScheme,
            "K = 2, not K = 3: verifier 'greedy'",
        ),
        ({"verifier": "ksek"}, UnknownName, "Did you mean 'kseq'"),
        ({"verifier": "rrs", "rng": -1}, InvalidInput, "seed is -1"),
        ({"verifier": "rrs", "rng": 0.5}, InvalidInput, "seed is 0.5"),
    ],
)
def test_what_does_not_go_together(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        mo.acceptance_rates(logits(0, 2, 5), logits(1, 2, 5), **arguments)


def test_an_estimate_does_not_move_with_the_range_of_counts():
    """Of rrs without replacement: the same number whichever other K are asked for beside it."""
    rng = np.random.default_rng(3)
    target = 2 * rng.standard_normal((2, 400))
    draft = target + rng.standard_normal((2, 400))
    how = {"drafts": "without_replacement", "verifier": "rrs"}
    whole = mo.acceptance_rates(target, draft, list(range(1, 13)), **how)
    for k in (3, 5, 8, 9, 12):
        alone = mo.acceptance_rates(target, draft, k, **how)
        np.testing.assert_array_equal(alone, whole[:, k - 1])
    assert (np.diff(whole, axis=1) > 0).all()
