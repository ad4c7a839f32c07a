"""Audits of rules that are lossy on purpose, against the frontier."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.auditing import verifier_audit
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.solvers.frontier.rules import Lenience

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
PROBLEM = mo.TransportProblem(P, mo.WithReplacement(Q, 1))
FOUND = Lenience(0.8).outcome(P, Q)


def lenient(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    x = int(drafts[0])
    if rng.random() * draft[x] < target[x] / 0.8:
        return x
    residual = np.maximum(target / 0.8 - draft, 0)
    return int(rng.choice(target.size, p=residual / residual.sum()))


def check_numbers(found: Any) -> None:
    """Against the rule's exact outcome."""
    best = mo.relax(PROBLEM, tv=FOUND.distances.tv)
    least = mo.relax(PROBLEM, acceptance_rate=FOUND.acceptance_rate)
    at_kl = mo.relax(PROBLEM, kl=FOUND.distances.kl)
    assert found.lossless_acceptance_rate == pytest.approx(0.7)
    assert found.best_acceptance_rate == pytest.approx(best.acceptance_rate, abs=1e-9)
    assert found.least_tv == pytest.approx(least.tv, abs=1e-9)
    assert found.least_kl == pytest.approx(least.kl, abs=1e-9)
    assert found.kl == pytest.approx(FOUND.distances.kl, abs=1e-9)
    assert found.best_acceptance_rate_at_kl == pytest.approx(at_kl.acceptance_rate, abs=1e-9)


def test_of_a_law_found_by_driving_all_is_known() -> None:
    report = mo.audit(lenient, PROBLEM, rng=0, num_trials=500, method="driven", lossy=True)
    assert not report.clean
    assert report.faultless
    assert report.total_variation == pytest.approx(FOUND.distances.tv, abs=1e-9)
    assert report.standing is not None
    check_numbers(report.standing)
    assert report.standing.best_acceptance_interval is None
    assert report.verdict.startswith("lossy: total variation")
    assert "best rate at its KL" in str(report)


def test_by_sampling_intervals_hold_the_truth() -> None:
    report = mo.audit(lenient, PROBLEM, rng=0, num_trials=30_000, method="sampling", lossy=True)
    assert report.method == "sampling"
    assert report.faultless
    assert not report.clean
    found = report.standing
    assert found is not None
    assert found.kl is None
    truth = mo.relax(PROBLEM, tv=FOUND.distances.tv).acceptance_rate
    least = mo.relax(PROBLEM, acceptance_rate=FOUND.acceptance_rate)
    for interval, value in (
        (found.best_acceptance_interval, truth),
        (found.least_tv_interval, least.tv),
        (found.least_kl_interval, least.kl),
    ):
        assert interval is not None
        assert interval.low <= value <= interval.high
        assert interval.high - interval.low < 0.05
    assert not report.beyond_the_frontier


def test_the_best_rule_stands_on_the_frontier() -> None:
    relaxed = mo.relax(PROBLEM, kl=0.01)
    optimal = mo.verifiers.get("optimal")

    def best(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        return optimal.verify(relaxed.problem, drafts, rng).token

    report = mo.audit(best, PROBLEM, rng=0, num_trials=200, method="driven", lossy=True)
    found = report.standing
    assert found is not None
    assert report.faultless
    assert found.best_acceptance_rate == pytest.approx(report.acceptance_rate, abs=1e-9)
    assert found.best_acceptance_rate_at_kl == pytest.approx(report.acceptance_rate, abs=1e-9)
    assert found.least_kl == pytest.approx(found.kl, abs=1e-9)
    assert found.least_tv == pytest.approx(report.total_variation, abs=1e-9)


def test_a_lossless_rule_stays_lossless() -> None:
    report = mo.audit("optimal", PROBLEM, rng=0, num_trials=500, lossy=True)
    assert report.clean
    assert report.verdict.startswith("no deviation: the stated law is lossless (enumerated)")
    assert report.law_proven_lossless
    assert report.faultless
    assert report.standing is not None
    assert report.standing.least_tv == pytest.approx(0.0, abs=1e-12)
    assert mo.audit("optimal", PROBLEM, rng=0, num_trials=500).standing is None


class Liar:
    """States one law and follows another."""

    def conditional_law(self, target: Any, draft: Any, drafts: Any) -> Any:
        law = np.zeros(target.size)
        law[drafts[0]] = 1.0
        return law

    def __call__(self, target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        return int(rng.choice(target.size, p=target))


def test_calls_that_do_not_follow_the_stated_law_stay_wrong() -> None:
    report = mo.audit(Liar(), PROBLEM, rng=0, num_trials=5_000, lossy=True)
    assert not report.faultless
    assert report.verdict.startswith("NOT LOSSLESS")


def test_tokens_that_are_none_stay_wrong() -> None:
    report = mo.audit(lambda p, q, x, rng: 7, PROBLEM, rng=0, num_trials=500, lossy=True)
    assert not report.faultless


def test_more_than_the_frontier_means_wrong_drafts() -> None:
    """Drafts from the target itself, while q is said to be another: all are accepted."""

    def sample(rng: np.random.Generator, size: int) -> Any:
        return rng.choice(3, size=(size, 1), p=P)

    report = mo.audit(
        lambda p, q, x, rng: int(x[0]), PROBLEM, rng=0, num_trials=20_000, sample=sample, lossy=True
    )
    assert report.beyond_the_frontier
    assert not report.faultless
    assert report.verdict.startswith("BEYOND THE FRONTIER")


def test_tokens_that_the_target_rules_out_are_a_distance() -> None:
    p, q = np.array([0.0, 0.6, 0.4]), np.array([0.3, 0.4, 0.3])
    problem = mo.TransportProblem(p, mo.WithReplacement(q, 1))

    def always(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        return int(drafts[0])

    report = mo.audit(always, problem, rng=0, num_trials=300, method="driven", lossy=True)
    assert report.faultless
    assert report.standing is not None
    assert report.standing.kl == report.standing.least_kl == np.inf
    assert report.acceptance_rate == pytest.approx(report.standing.best_acceptance_rate)
    assert json.loads(json.dumps(report.to_dict()))["standing"]["kl"] is None


def test_a_frontier_out_of_reach_is_told_before_any_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(problem: Any) -> Any:
        raise ProblemTooLarge("too many tokens")

    monkeypatch.setattr(verifier_audit, "frontier_of", refuse)
    calls = []
    with pytest.raises(ProblemTooLarge):
        mo.audit(lambda *given: calls.append(1) or 0, PROBLEM, 0, 100, lossy=True)
    assert not calls


class TestCommand:
    def test_lossy_is_no_fault(self, run_cli: Any, tmp_path: Any, monkeypatch: Any) -> None:
        (tmp_path / "lenient_rule.py").write_text(
            "import numpy as np\n"
            "def rule(target, draft, drafts, rng):\n"
            "    x = int(drafts[0])\n"
            "    if rng.random() * draft[x] < target[x] / 0.5:\n"
            "        return x\n"
            "    residual = np.maximum(target / 0.5 - draft, 0)\n"
            "    return int(rng.choice(target.size, p=residual / residual.sum()))\n"
        )
        monkeypatch.chdir(tmp_path)
        arguments = ("audit", "--verifier", "lenient_rule:rule", "-k", "1", "--trials", "5000")
        done = run_cli(*arguments, "--lossy")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "best rate at its TV" in done.stdout
        assert run_cli(*arguments).returncode == 1
        document = json.loads(run_cli(*arguments, "--lossy", "--json").stdout)
        assert document["standing"]["least_tv"] >= 0

    def test_goes_with_a_verifier(self, run_cli: Any, tmp_path: Any) -> None:
        done = run_cli("audit", "--trace", tmp_path / "x.npz", "--lossy")
        assert done.returncode == 2
        assert "--lossy goes with verifier, not with trace" in done.stderr
