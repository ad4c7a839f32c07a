"""p-values of audits of lossless verifiers: never too small too often, and not far too large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.reused_states import verifier

import mdsd_opt as mo
from mdsd_opt.auditing.checks import output_checks
from mdsd_opt.evidence import ACCEPTANCE_WEIGHT, Check, Options

AUDITS = 800


def test_p_values_of_two_tokens_are_near_their_level() -> None:
    """Six checks of equal shares would give some 75 below .2, instead of 138."""
    rng = np.random.default_rng(0)
    options = Options(num_trials=2_000)
    at_optimum = Check("acceptance", "", 1.0, weight=ACCEPTANCE_WEIGHT)
    found = []
    for _ in range(AUDITS):
        p, q = rng.dirichlet(np.ones(2), 2)
        problem = mo.TransportProblem(p, mo.WithReplacement(q, 1))
        checks, _ = output_checks(problem, rng.choice(2, 2_000, p=p), rng)
        found.append(options.combined([*checks, at_optimum]))
    for level in (0.5, 0.2, 0.1, 0.05):
        expected = level * AUDITS
        assert (np.array(found) <= level).sum() <= expected + 4 * np.sqrt(expected)
    assert (np.array(found) <= 0.2).sum() >= 105


def test_checks_that_see_nothing_of_their_own_are_left_out() -> None:
    rng = np.random.default_rng(0)
    names = {}
    for size in (2, 4, 40):
        law = np.full(size, 1 / size)
        problem = mo.TransportProblem(law, mo.WithReplacement(law, 2))
        checks, _ = output_checks(problem, rng.choice(size, 2_000), rng)
        names[size] = [check.name for check in checks]
    assert names[2] == ["cells", "succession"]
    assert names[4] == ["cells", "single tokens", "succession"]
    assert names[40] == ["cells", "ratio groups", "rank groups", "single tokens", "succession"]


def test_weights_share_the_false_alarm_rate() -> None:
    options = Options(num_trials=10, false_alarm=0.05)
    light, heavy = Check("a", "", 0.001, weight=0.1), Check("b", "", 0.01)
    assert options.combined([light, heavy]) == pytest.approx(0.011)
    assert options.combined([heavy, heavy]) == 0.02
    assert options.level([light, heavy]) == pytest.approx(0.05 / 1.1)


def recycled(rng: np.random.Generator, at_random: bool) -> Iterator[np.random.Generator]:
    """Generators of 50 seeds, in turn or by chance, with new seeds after every 1,000 calls."""
    while True:
        seeds = rng.integers(1 << 32, size=50)
        for n in range(1_000):
            chosen = int(rng.integers(50)) if at_random else n % 50
            yield np.random.default_rng(int(seeds[chosen]))


TARGET, DRAFT = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
PROBLEM = mo.TransportProblem(TARGET, mo.WithReplacement(DRAFT, 1))


def of_recycled(at_random: bool) -> Any:
    """The lossless rule for one draft, whose seeds come back."""
    generators = recycled(np.random.default_rng(1), at_random)
    return verifier(lambda _: next(generators).random(2))


@pytest.mark.parametrize("at_random", [False, True])
def test_verifiers_whose_seeds_come_back_are_found(at_random: bool) -> None:
    report = mo.audit(of_recycled(at_random), PROBLEM, 0, 20_000, method="sampling", edge_probes=0)
    found = {check.name: check.p_value for check in report.checks}
    assert found["succession"] < 1e-7
    assert not report.clean


def test_calls_that_follow_their_law_but_depend_on_each_other_are_found() -> None:
    verify = of_recycled(False)
    verify.conditional_law = lambda target, draft, drafts: mo.verifiers.get(
        "single_draft"
    ).conditional_law(PROBLEM, drafts)
    report = mo.audit(verify, PROBLEM, 0, edge_probes=0)
    assert report.method == "enumeration"
    assert report.law_proven_lossless
    assert not report.clean
    assert "from the check of succession" in report.verdict


@pytest.mark.parametrize("at_random", [False, True])
def test_samplers_whose_seeds_come_back_are_found(at_random: bool) -> None:
    scheme = mo.WithReplacement(DRAFT, 2)
    generators = recycled(np.random.default_rng(1), at_random)
    report = mo.audit_drafts(lambda rng: scheme.sample(next(generators), 1)[0], scheme, 0, 10_000)
    found = {check.name: check.p_value for check in report.checks}
    assert found["succession of drafts"] < 1e-10
    assert not report.clean


def test_traces_whose_seeds_come_back_are_found() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(4), (2, 3_000))
    p = -np.sort(-p)  # drawn in the order of probabilities
    uniforms = np.tile(rng.random((3, 50)), 20).ravel()
    tokens = (np.cumsum(p, axis=1) < uniforms[:, None]).sum(axis=1)
    drafts = (np.cumsum(q, axis=1) < rng.random((3_000, 1))).sum(axis=1)[:, None]
    report = mo.audit_trace(p, None, np.empty((3_000, 0), dtype=int), tokens)
    found = {check.name: check.p_value for check in report.checks}
    assert found["succession"] < 1e-10
    fresh = (np.cumsum(p, axis=1) < rng.random((3_000, 1))).sum(axis=1)
    report = mo.audit_trace(p, q, drafts, fresh)
    found = {check.name: check.p_value for check in report.checks}
    assert min(found["succession"], found["succession of drafts"]) > 1e-4
