"""Options that all methods share: what a limit leaves, what a tolerance means, what is told."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput
from mdsd_opt.solvers import Found, solving


def problem(vocab_size: int, num_drafts: int, many: bool = False) -> mo.TransportProblem:
    rng = np.random.default_rng(vocab_size)
    logits = 2.5 * rng.standard_normal(vocab_size)
    models = [mo.softmax(logits + rng.standard_normal(vocab_size)) for _ in range(num_drafts)]
    drafts = mo.IndependentDrafts(models) if many else mo.WithReplacement(models[0], num_drafts)
    return mo.TransportProblem(mo.softmax(logits), drafts)


LIMITED = [name for name, method in mo.methods().items() if "time_limit" in method.options]


@pytest.mark.parametrize("method", LIMITED)
@pytest.mark.parametrize("many", [False, True])
def test_a_limit_leaves_the_best_bounds_that_were_proven(method: str, many: bool) -> None:
    one = problem(60, 2, many)
    best = mo.solve(one).acceptance_rate
    stopped = mo.solve(one, method, time_limit=0)
    certificate = mo.certify(one, stopped)
    assert certificate.valid, certificate.violations
    assert stopped.lower_bound <= best + 1e-9
    assert stopped.upper_bound >= best - 1e-9
    if stopped.status is mo.Status.LIMIT:
        assert 0 < stopped.acceptance_rate < 1
        assert stopped.acceptance_rate == pytest.approx(stopped.lower_bound, abs=1e-12)


@pytest.mark.parametrize("method", ["full_lp", "dual_lp"])
def test_a_limit_stops_what_takes_longer(method: str) -> None:
    one = problem(500, 2)
    stopped = mo.solve(one, method, time_limit=0.01)
    assert stopped.status is mo.Status.LIMIT
    assert stopped.upper_bound < 1
    assert mo.certify(one, stopped).valid


@pytest.mark.parametrize("method", mo.methods())
def test_a_method_takes_what_it_declares_or_lists_it(method: str) -> None:
    one, known = problem(5, 2), mo.methods()[method].options
    for name, value in (("tolerance", 1e-6), ("time_limit", 60.0), ("verbose", True)):
        if name in known:
            assert mo.certify(one, mo.solve(one, method, **{name: value})).valid
        else:
            listed = ", ".join(known) or "none"
            with pytest.raises(InvalidInput, match=f"has no option '{name}'.*{listed}"):
                mo.solve(one, method, **{name: value})


def test_auto_passes_on_what_its_choice_takes() -> None:
    for one in (problem(5, 2), problem(5, 2, many=True)):
        solution = mo.solve(one, tolerance=1e-3, verbose=True, time_limit=60)
        assert solution.status is mo.Status.OPTIMAL


def test_optimal_is_within_the_tolerance() -> None:
    one = problem(12, 2)
    for tolerance, status in ((1e-2, mo.Status.OPTIMAL), (1e-9, mo.Status.CONVERGED)):

        def inexact(problem: mo.TransportProblem) -> Found:
            best = mo.solve(problem, "full_lp")
            return Found(
                acceptance_rate=best.lower_bound - 1e-4, lower_bound=best.lower_bound - 1e-4,
                upper_bound=best.upper_bound + 1e-4, status=mo.Status.OPTIMAL,
            )  # fmt: skip

        assert mo.solve(one, inexact, tolerance=tolerance).status is status
    pytest.importorskip("cvxpy")
    pytest.importorskip("scs")
    options: Any = {"backend": "cvxpy", "solver": "SCS"}
    loose = mo.solve(one, "dual_lp", **options)  # to 1e-5 or so, by default
    certificate = mo.certify(one, loose)
    assert certificate.valid, certificate.violations
    assert certificate.gap > 1e-9
    assert loose.status is mo.Status.CONVERGED


def test_the_log_of_a_solver_is_shown_where_it_is_asked_for(capfd: pytest.CaptureFixture) -> None:
    for verbose in (False, True):
        mo.solve(problem(5, 2), "full_lp", verbose=verbose)
        assert ("HiGHS" in capfd.readouterr().out) == verbose


def test_a_long_wait_without_a_limit_is_told(
    capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solving, "_LONG", 0.0)

    def slow(problem: mo.TransportProblem) -> Found:
        time.sleep(0.3)
        return mo.solve(problem, "full_lp", time_limit=9)

    mo.solve(problem(5, 2), slow)
    told = capfd.readouterr().err.splitlines()
    assert told[0].startswith("mdsd_opt: slow is still at work on V=5, K=2")
    mo.solve(problem(5, 2), slow, time_limit=9)
    assert not capfd.readouterr().err
