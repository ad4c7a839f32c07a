"""Audits at V = 131,072 with float32 inputs: what is right passes, and what is wrong does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo

VOCAB_SIZE = 131_072
NUM_TRIALS = 200_000
Arrays = tuple[Any, Any]


@pytest.fixture(scope="module")
def laws() -> Arrays:
    """Target and draft as heavy-tailed as a language model's; 71,072 tokens are impossible."""
    rng = np.random.default_rng(0)
    logits = (2.8 * rng.normal(size=VOCAB_SIZE)).astype(np.float32)
    noise = (1.2 * rng.normal(size=VOCAB_SIZE)).astype(np.float32)
    target = mo.softmax(logits, top_k=60_000).astype(np.float32)
    return target, mo.softmax(logits + noise).astype(np.float32)


@pytest.fixture(scope="module")
def problem(laws: Arrays) -> mo.TransportProblem:
    return mo.TransportProblem(laws[0], mo.WithReplacement(laws[1], 4))


def first_draft_alone(problem: mo.TransportProblem, wrong_residual: bool = False) -> Any:
    """Rejection of the first draft, for many tuples at once, or with p for its residual."""
    p, q = problem.target, problem.drafts.q  # type: ignore[attr-defined]  # with replacement
    left = p if wrong_residual else np.maximum(p - q, 0.0)
    others = np.flatnonzero(left)
    reached = np.cumsum(left[others])

    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> Any:
        x, (u, v) = drafts[:, 0], rng.random((len(drafts), 2)).T
        drawn = np.searchsorted(reached, v * reached[-1], side="right")
        return np.where(u * q[x] < p[x], x, others[np.minimum(drawn, others.size - 1)])

    return verify


@pytest.mark.parametrize(
    ("scheme", "num_drafts", "num_trials"),
    [(mo.WithReplacement, 4, 1_000), (mo.WithoutReplacement, 2, 400)],
)
def test_verify_passes(laws: Arrays, scheme: Any, num_drafts: int, num_trials: int) -> None:
    problem = mo.TransportProblem(laws[0], scheme(laws[1], num_drafts))
    report = mo.audit("optimal", problem, 0, num_trials, edge_probes=64)
    assert report.method == "sampling"
    assert report.clean, report.verdict
    assert report.num_edge_probes == 64
    assert report.acceptance_interval is not None
    low, high = report.acceptance_interval
    assert low <= report.optimal_acceptance_rate <= high


def test_a_right_rule_passes_at_a_sample_size_that_sees_little(
    problem: mo.TransportProblem,
) -> None:
    report = mo.audit(first_draft_alone(problem), problem, 0, NUM_TRIALS, batched=True)
    assert report.clean, report.verdict
    assert report.class_bias < 0.015 < report.detectable_bias < 0.05
    assert report.classes == "between classes of tokens by p/q"
    assert "0.037 in any direction (one of 0.0" in report.verdict
    assert report.acceptance_interval is not None
    low, high = report.acceptance_interval
    first = np.minimum(problem.target, problem.drafts.q).sum()  # type: ignore[attr-defined]
    assert first < high  # a residual draw that hits another draft counts as well
    assert low < report.optimal_acceptance_rate


def test_a_residual_from_the_wrong_distribution_is_rejected(problem: mo.TransportProblem) -> None:
    wrong = first_draft_alone(problem, wrong_residual=True)
    report = mo.audit(wrong, problem, 0, NUM_TRIALS, batched=True)
    assert not report.clean
    assert report.p_value is not None
    assert report.p_value < 1e-100
    assert report.total_variation_interval.low > 0.01
