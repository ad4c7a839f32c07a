"""Weights of races are recovered from who wins."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.auditing.driving import EXPONENTIAL, UNIFORM, NoRace, race_weights


def recovered(weights: list[float], within=EXPONENTIAL):
    w = np.array(weights)
    return race_weights(lambda row: int(np.argmax(w / np.array(row))), w.size, within, 0)


@pytest.mark.parametrize(
    "weights",
    [
        [0.2, 0.3, 0.5],
        [0.0, 0.3, 0.0, 0.7],
        [1.0, 1e-4],
        [0.0, 0.05, 1e-8, 7e-9, 0.02],  # what rounding leaves of a residual
        [1e-8, 0.05, 3e-8],
    ],
)
def test_weights_are_found(weights):
    expected = np.array(weights) / sum(weights)
    np.testing.assert_allclose(recovered(weights), expected, rtol=1e-6, atol=1e-9)


def test_weights_of_gumbel_noise_are_found():
    np.testing.assert_allclose(recovered([0.2, 0.0, 0.8], UNIFORM), [0.2, 0.0, 0.8], atol=1e-6)


def test_a_row_that_decides_nothing_and_what_is_no_race():
    assert race_weights(lambda row: 3, 4, EXPONENTIAL, 0) is None
    with pytest.raises(NoRace):
        race_weights(lambda row: int(np.argmax(row)), 3, EXPONENTIAL, 0)
    assert recovered([1.0, 1e-12]) is None  # too little to ever win


PROBLEM = mo.TransportProblem([0.4, 0.3, 0.2, 0.1], mo.WithReplacement([0.1, 0.2, 0.3, 0.4], 1))

#: The token of a race with these weights.
RACES: dict[str, Callable[[Any, Any], Any]] = {
    "exponential": lambda w, rng: np.argmin(rng.exponential(size=w.size) / w),
    "exponential of scales": lambda w, rng: np.argmin(rng.exponential(1 / w)),
    "standard_exponential": lambda w, rng: np.argmax(w / rng.standard_exponential(w.size)),
    "gumbel": lambda w, rng: np.argmax(np.log(w) + rng.gumbel(size=w.size)),
    "gumbel at places": lambda w, rng: np.argmax(rng.gumbel(np.log(w))),
    "logarithms": lambda w, rng: np.argmin(-np.log(rng.random(w.size)) / w),
    "legacy exponential": lambda w, rng: np.argmin(np.random.exponential(size=w.size) / w),  # noqa: NPY002
    "legacy gumbel": lambda w, rng: np.argmax(np.log(w) + np.random.gumbel(size=w.size)),  # noqa: NPY002
    "RandomState": lambda w, rng: np.argmin(
        np.random.RandomState().standard_exponential(w.size) / w
    ),
    "expovariate": lambda w, rng: min(
        (random.expovariate(w[i]), i) for i in range(w.size) if w[i] > 0
    )[1],
}


def with_race(race: Callable[[Any, Any], Any], power: float) -> Callable[..., int]:
    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        x = int(drafts[0])
        if rng.random() * q[x] < p[x]:
            return x
        return int(race(np.maximum(p - q, 0) ** power, rng))

    return verify


@pytest.mark.parametrize("name", RACES)
def test_races_of_numpy_and_python_are_driven(name: str) -> None:
    few = {"rng": 0, "num_trials": 500, "edge_probes": 16, "driven_checks": 30}
    right = mo.audit(with_race(RACES[name], 1.0), PROBLEM, **few)
    assert (right.verdict_class, right.method) == ("lossless", "driven"), right.verdict
    wrong = mo.audit(with_race(RACES[name], 0.5), PROBLEM, **few)
    p = PROBLEM.target
    left = np.maximum(p - p[::-1], 0)
    law = np.minimum(p, p[::-1]) + left.sum() * np.sqrt(left) / np.sqrt(left).sum()
    assert wrong.verdict_class == "lossy"
    assert wrong.total_variation == pytest.approx(0.5 * np.abs(law - p).sum(), abs=3e-7)


@pytest.mark.parametrize("is_right", [True, False])
def test_a_single_exponential_decides_as_a_uniform_does(is_right: bool) -> None:
    """A clock of its own accepts the draft with probability p / q, or refuses it."""

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        x = int(drafts[0])
        if bool(rng.exponential() >= np.log(max(q[x] / p[x], 1.0))) is is_right:
            return x
        left = np.maximum(p - q, 0)
        return int(rng.choice(p.size, p=left / left.sum()))

    report = mo.audit(verify, PROBLEM, 0, 500, edge_probes=16, driven_checks=30)
    assert report.verdict_class == ("lossless" if is_right else "lossy"), report.verdict
    assert report.method == "driven"
