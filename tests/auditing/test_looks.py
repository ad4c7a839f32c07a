"""Audits that go on: how far, at which level, and what they say where nothing is settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.auditing import pace
from mdsd_opt.auditing.pace import LOOKS
from mdsd_opt.evidence import pointed, report

Rule = Callable[[Any, Any, Any, np.random.Generator], Any]

PROBLEM = mo.TransportProblem([0.4, 0.3, 0.2, 0.1], mo.WithReplacement([0.1, 0.2, 0.3, 0.4], 2))


def leaning(bias: float) -> Rule:
    """Batches of tokens of which so much more than the target has are the first."""

    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> Any:
        law = (1 - bias) * target + bias * np.eye(target.size)[0]
        return rng.choice(target.size, size=len(drafts), p=law)

    return verify


def audited(bias: float, seed: int, calls: int = 2_000, **options: Any) -> mo.AuditReport:
    return mo.audit(leaning(bias), PROBLEM, seed, calls, batched=True, edge_probes=0, **options)


def test_the_shares_of_the_false_alarms_add_up_to_one() -> None:
    assert sum(share for _, share in LOOKS) == pytest.approx(1.0)
    assert [times for times, _ in LOOKS] == [1, 3, 9]


def test_what_is_right_makes_the_calls_that_were_asked_for() -> None:
    reports = [audited(0.0, seed) for seed in range(20)]
    assert {one.verdict_class for one in reports} == {"no deviation"}
    assert sum(one.num_trials > 2_000 for one in reports) <= 1
    assert {one.points_to for one in reports} == {""}


def test_more_calls_settle_what_the_first_only_point_to() -> None:
    """A bias of .045, half of what is found for sure, is settled or named wherever it shows."""
    reports = [audited(0.075, seed) for seed in range(20)]
    later = [one for one in reports if one.num_trials > 2_000]
    assert len(later) >= 5
    for one in later:
        assert one.verdict_class == "lossy"
        assert one.total_variation_interval is not None
        assert one.total_variation_interval.low > 0
        assert one.false_alarm == 1e-6
        assert one.points_to == ""
    assert not any(one.points_to for one in reports)


def test_going_on_keeps_the_rate_of_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """With .05 each, 6 of 120 on average if every audit makes all its looks: no more than 15."""
    monkeypatch.setattr(report, "POINTS", 2.0)
    reports = [audited(0.0, seed, 200, false_alarm=0.05) for seed in range(120)]
    assert sum(one.verdict_class == "lossy" for one in reports) <= 15
    open_ones = [one for one in reports if one.verdict_class != "lossy"]
    for one in open_ones:
        assert one.verdict == f"NOT SETTLED in 1,800 calls: they point to {one.points_to}."
        assert one.answer(detect=1.0) == "NOT SETTLED"
        assert not one.clean
        assert one.to_dict()["points_to"] == one.points_to != ""


def test_a_limit_of_time_ends_it_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "POINTS", 2.0)
    monkeypatch.setattr(pace.time, "perf_counter", iter(range(0, 10**6, 50)).__next__)
    found = audited(0.0, 0, seconds=120.0)
    assert found.verdict_class == "not settled"
    assert found.num_trials < 18_000
    assert found.notes[-1].endswith("Give more than seconds=120")


def test_evidence_is_a_check_or_an_interval_without_zero() -> None:
    check = report.Check("cells", "any change", 1e-3)
    assert pointed([check], report.Interval(0.0, 0.1)) == ""
    assert (
        pointed([check], report.Interval(0.0047, 0.039)) == "a total variation in [0.0047, 0.039]"
    )
    odd = report.Check("cells", "any change", 2e-6)
    assert pointed([check, odd], None) == "any change (p = 2e-06, from the check of cells)"


def test_a_trace_cannot_go_on_and_is_not_settled() -> None:
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(6), (2, 500))
    shown = 0.86 * p + 0.14 * q  # the engine takes a little of the draft's law
    drafts = np.array([rng.choice(6, 1, p=row) for row in q])
    tokens = np.array([rng.choice(6, p=row) for row in shown])
    found = mo.audit_trace(p, q, drafts, tokens)
    assert (found.verdict_class, found.num_trials) == ("not settled", 500)
    assert found.points_to in found.verdict


def test_drafts_go_on_as_well() -> None:
    law, told = mo.WithReplacement([0.3, 0.7], 1), mo.WithReplacement([0.33, 0.67], 1)
    reports = [mo.audit_drafts(law, told, seed, 2_000) for seed in range(12)]
    later = [one for one in reports if one.num_trials > 2_000]
    assert later
    assert {one.verdict_class for one in later} <= {"lossy", "not settled"}
    assert all(one.example is not None for one in later if one.verdict_class == "lossy")
