"""Probabilities are not taken for logits in silence."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.batch import verify_batch
from mdsd_opt.errors import InvalidDistribution, InvalidInput

RNG = np.random.default_rng(0)
P, Q = RNG.dirichlet(np.ones(20), size=(2, 3, 4))
Q[..., :5] = 0.0
Q /= Q.sum(-1, keepdims=True)
with np.errstate(divide="ignore"):
    LOGITS = np.log(P) + 3.0, np.log(Q)


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement", "greedy", "top_k"])
def test_probabilities_have_the_rates_of_their_logits(scheme: str) -> None:
    expected = mo.acceptance_rates(*LOGITS, 3, scheme)
    np.testing.assert_allclose(mo.acceptance_rates(P, Q, 3, scheme, kind="probs"), expected, 1e-12)
    below = LOGITS[0] - 3.0, LOGITS[1]
    np.testing.assert_allclose(
        mo.acceptance_rates(*below, 3, scheme, kind="logprobs"), expected, 1e-12
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_probabilities_of_few_bits(dtype: Any) -> None:
    rows = [side.astype(dtype) for side in (P, Q)]
    wide = [side.astype(np.float64) for side in rows]
    expected = mo.acceptance_rates(*(side / side.sum(-1, keepdims=True) for side in wide), 3,
                                   kind="probs")  # fmt: skip
    np.testing.assert_allclose(mo.acceptance_rates(*rows, 3, kind="probs"), expected, atol=1e-6)


def test_what_looks_like_probabilities_asks() -> None:
    with pytest.raises(InvalidInput, match=r"target_logits .* 'probs'"):
        mo.acceptance_rates(P, LOGITS[1], 2)
    with pytest.raises(InvalidInput, match="draft_logits"):
        mo.acceptance_rates(LOGITS[0], Q, 2)
    with pytest.raises(InvalidInput, match="kind"):
        verify_batch(P, Q, np.full((3, 4, 2), 7))
    taken = mo.acceptance_rates(P, Q, 2, kind="logits")
    assert (taken > mo.acceptance_rates(P, Q, 2, kind="probs")).all()


@pytest.mark.parametrize(
    "rows",
    [np.ones((3, 1)), np.empty((0, 5)), np.eye(4) - 0.5, np.full((2, 4), 0.2), np.eye(3) * 5],
)
def test_other_rows_are_logits(rows: np.ndarray) -> None:
    np.testing.assert_array_equal(
        mo.acceptance_rates(rows, rows, 1), mo.acceptance_rates(rows, rows, 1, kind="logits")
    )


@pytest.mark.parametrize(
    ("rows", "kind", "message"),
    [
        (P * 2, "probs", "do not sum to one"),
        (P - 0.3, "probs", "negative"),
        (P * 2, "logprobs", "above zero"),
    ],
)
def test_what_is_not_what_it_is_said_to_be(rows: np.ndarray, kind: str, message: str) -> None:
    with pytest.raises(InvalidDistribution, match=message):
        mo.acceptance_rates(rows, rows, 2, kind=kind)


def test_one_token_and_no_positions_are_probabilities_too() -> None:
    one, none = np.ones((3, 1)), np.empty((0, 5))
    np.testing.assert_array_equal(mo.acceptance_rates(one, one, 2, kind="probs"), 1.0)
    assert mo.acceptance_rates(none, none, 2, kind="probs").shape == (0,)


def test_arrays_of_dask() -> None:
    array = pytest.importorskip("dask.array")
    rows = [array.from_array(side, chunks=(1, 2, 20)) for side in (P, Q)]
    np.testing.assert_allclose(
        mo.acceptance_rates(*rows, 2, kind="probs").compute(),
        mo.acceptance_rates(P, Q, 2, kind="probs"),
        1e-12,
    )
