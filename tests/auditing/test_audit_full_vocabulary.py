"""The optimal verifier at V = 131,072 with float32 inputs, and the faults that must not pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.prepared import PreparedOptimal
from support.selection_law import selection_law

import mdsd_opt as mo
from mdsd_opt import verifiers
from mdsd_opt.verifiers import Uniforms
from mdsd_opt.verifiers.optimal.grouped_plan import plan_of

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


@pytest.mark.parametrize("scheme", [mo.WithReplacement, mo.WithoutReplacement])
@pytest.mark.parametrize("num_drafts", [2, 4, 8])
def test_realised_law_through_the_merge_tree(laws: Arrays, scheme: Any, num_drafts: int) -> None:
    """The law that the rounded levels really give, integrated over the mixing variable."""
    problem = mo.TransportProblem(laws[0], scheme(laws[1], num_drafts))
    plan = plan_of(problem)
    assert plan is not None
    selected = selection_law(plan.w, plan.gains, plan.death_levels)
    kept = np.where(plan.p < plan.x, plan.p / np.where(plan.x > 0, plan.x, 1.0), 1.0)
    output = np.zeros(VOCAB_SIZE)
    output[plan.order] = selected * np.where(plan.p > 0, kept, 0.0)
    accepted = output.sum()
    output += (1.0 - accepted) * plan.residual
    assert 0.5 * np.abs(output - problem.target).sum() < 1e-9
    assert (output[problem.target == 0] == 0).all()
    assert accepted == pytest.approx(mo.solve(problem).acceptance_rate, abs=1e-9)


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


def test_the_prepared_rule_decides_like_verify(problem: mo.TransportProblem) -> None:
    rng = np.random.default_rng(1)
    drafts = problem.drafts.sample(rng, 150)
    uniforms = rng.random((150, 4))
    prepared = PreparedOptimal(problem).decide(drafts, *uniforms[:, [0, 2, 3]].T)
    verifier = verifiers.get("optimal")
    one_by_one = [
        verifier.verify(problem, row, Uniforms(*u)).token
        for row, u in zip(drafts, uniforms.tolist(), strict=True)
    ]
    accepted = [token in row for token, row in zip(one_by_one, drafts.tolist(), strict=True)]
    assert sum(accepted) > 100
    same = prepared == np.array(one_by_one)
    assert same[accepted].all()  # residual draws may go through the tokens in another order


def test_the_prepared_rule_passes_at_a_sample_size_that_sees_little(
    problem: mo.TransportProblem,
) -> None:
    report = mo.audit(PreparedOptimal(problem), problem, 0, NUM_TRIALS, batched=True)
    assert report.clean, report.verdict
    assert report.class_bias < 0.015 < report.detectable_bias < 0.05
    assert report.classes == "between classes of tokens by p/q"
    assert "0.037 in any direction (one of 0.0" in report.verdict
    assert report.acceptance_interval is not None
    low, high = report.acceptance_interval
    assert low <= report.optimal_acceptance_rate <= high


def test_a_residual_from_the_wrong_distribution_is_rejected(problem: mo.TransportProblem) -> None:
    wrong = PreparedOptimal(problem, wrong_residual=True)
    report = mo.audit(wrong, problem, 0, NUM_TRIALS, batched=True)
    assert not report.clean
    assert report.p_value is not None
    assert report.p_value < 1e-100
    assert report.total_variation_interval.low > 0.01


def test_a_zero_probability_draft_accepted_at_zero_is_rejected(
    problem: mo.TransportProblem,
) -> None:
    wrong = PreparedOptimal(problem, accept_at_zero=True)
    report = mo.audit(wrong, problem, 0, NUM_TRIALS, batched=True)
    assert not report.clean
    assert report.num_violations == 0
    assert report.p_value is not None
    assert report.p_value > 1e-3
    assert report.edge_violations[0].kind == "impossible token"


def two_per_cent_off(problem: mo.TransportProblem) -> mo.WithReplacement:
    """2 % of the draft mass moved from the tokens of large target / draft ratio to the others."""
    q = problem.drafts.q  # type: ignore[attr-defined]  # with replacement
    order = np.argsort(problem.target / q, kind="stable")
    low = np.zeros(VOCAB_SIZE, dtype=bool)
    low[order[: np.searchsorted(np.cumsum(q[order]), 0.5)]] = True
    moved = np.where(low, q, 0) / q[low].sum() - np.where(low, 0, q) / q[~low].sum()
    assert 0.5 * np.abs(0.02 * moved).sum() == pytest.approx(0.02)
    return mo.WithReplacement(q + 0.02 * moved, 4)


def test_drafts_two_per_cent_off_are_rejected(problem: mo.TransportProblem) -> None:
    off = two_per_cent_off(problem)
    right = PreparedOptimal(problem)
    report = mo.audit(right, problem, 0, NUM_TRIALS, batched=True, sample=off.sample)
    assert not report.clean  # the output shows it,
    assert report.p_value is not None
    assert report.p_value < 1e-12
    assert not report.drafts_follow_law  # and so do the drafts
    assert mo.audit_drafts(problem.drafts, problem.drafts, 0, NUM_TRIALS).clean
    assert not mo.audit_drafts(off, problem.drafts, 0, NUM_TRIALS).clean
