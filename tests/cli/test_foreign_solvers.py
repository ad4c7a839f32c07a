"""Solvers of others, through ``module:function``: judged by their certificate, not their word."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from mdsd_opt.bench import BenchReport, Record, performance_profile, run
from mdsd_opt.cli.verbs.bench import bench_view
from mdsd_opt.cli.view import Section

#: As their authors would write them.
SOURCE = '''
import hashlib
import time

import numpy as np

import mdsd_opt as mo
from mdsd_opt.solvers import Found, Status
from mdsd_opt.problem import TransportPlan


def _found(law, mass, upper, subset=None):
    plan = TransportPlan(tokens=law.tokens, offsets=law.offsets, mass=mass)
    rate = float(mass.sum())
    return Found(acceptance_rate=rate, lower_bound=rate, upper_bound=max(rate, upper),
                 status=Status.OPTIMAL, plan=plan, subset=subset)


def sinkhorn(problem, *, rounds=30, strength=8.0):
    """Entropic transport with its marginals as caps, rounded to a plan that keeps them."""
    law = problem.drafts.support_law()
    p, rows, columns = problem.target, law.tokens, law.arc_support
    mass = p[rows] * law.mass[columns] * np.exp(strength)
    for _ in range(rounds):
        for place, cap in ((rows, p), (columns, law.mass)):
            sums = np.bincount(place, mass, cap.size)
            mass = mass * np.minimum(1.0, cap / np.maximum(sums, 1e-300))[place]
    return _found(law, mass, 1.0, np.zeros(problem.vocab_size, bool))


def lying(problem):
    found = mo.solve(problem, "subset_selection")
    rate = found.upper_bound + 0.01
    return Found(acceptance_rate=rate, lower_bound=rate, upper_bound=rate,
                 status=Status.OPTIMAL, subset=found.subset)


def silent(problem):
    rate = mo.solve(problem, "subset_selection").acceptance_rate
    return Found(acceptance_rate=rate, lower_bound=rate, upper_bound=rate, status=Status.OPTIMAL)


KEPT = {}


def slow_at_first(problem):
    """Keeps its answers, by the numbers of the problem."""
    key = hashlib.sha256(problem.target.tobytes() + problem.drafts.q.tobytes()).digest()
    if key not in KEPT:
        time.sleep(0.4)
        KEPT[key] = mo.solve(problem, "subset_selection")
    found = KEPT[key]
    return Found(acceptance_rate=found.acceptance_rate, lower_bound=found.lower_bound,
                 upper_bound=found.upper_bound, status=found.status, subset=found.subset)


def never_ends(problem):
    if problem.vocab_size > 80:  # the small problem that is solved first has fewer
        while True:
            pass
    return mo.solve(problem, "subset_selection")


def dies(problem):
    import os
    if problem.vocab_size > 5:
        os.kill(os.getpid(), 9)
    return mo.solve(problem, "subset_selection")


def raises(problem):
    if problem.vocab_size > 5:
        raise ZeroDivisionError("of nothing")
    return mo.solve(problem, "subset_selection")


def pdlp(problem, *, accuracy=1e-6):
    """PDLP of OR-tools on the transport programme."""
    from ortools.linear_solver import pywraplp

    law = problem.drafts.support_law()
    solver = pywraplp.Solver.CreateSolver("PDLP")
    solver.SetSolverSpecificParametersAsString(
        "termination_criteria { simple_optimality_criteria "
        f"{{ eps_optimal_absolute: {accuracy} eps_optimal_relative: {accuracy} }} }}"
    )
    arcs = [solver.NumVar(0.0, float("inf"), "") for _ in range(law.num_arcs)]
    caps = []
    for place, cap in ((law.tokens, problem.target), (law.arc_support, law.mass)):
        rows = [solver.Constraint(-float("inf"), float(x)) for x in cap]
        for arc, row in zip(arcs, place.tolist(), strict=True):
            rows[row].SetCoefficient(arc, 1.0)
        caps.append(rows)
    solver.Maximize(sum(arcs))
    solver.Solve()
    mass = np.maximum([arc.solution_value() for arc in arcs], 0.0)
    for place, cap in ((law.tokens, problem.target), (law.arc_support, law.mass)):
        sums = np.bincount(place, mass, cap.size)
        mass = mass * np.minimum(1.0, cap / np.maximum(sums, 1e-300))[place]
    subset = np.array([row.dual_value() for row in caps[0]]) > 0.5
    return _found(law, mass, problem.cut_value(subset), subset)
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "foreign_of_bench.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def measured(names: str, size: int = 6, **more: Any) -> BenchReport:
    routes = (*(f"foreign_of_bench:{name}" for name in names.split(",")), "full_lp")
    asked = {"num_drafts": (2,), "families": ("random",), "instances": 2, "rounds": 2, **more}
    return run(["solvers"], methods=routes, vocab_sizes=(size,), **asked)


def of(report: BenchReport, route: str) -> list[Record]:
    return [record for record in report.records if record.route.split()[0] == route]


def text(report: BenchReport) -> str:
    view = bench_view(report)
    cells = [cell for table in view.all_tables for line in table.cells() for cell in line]
    captions = [table.caption for table in view.all_tables]
    notes = [part.text or "" for part in view.tables if isinstance(part, Section)]
    return "\n".join([*cells, *captions, *notes, *map(str, view.conclusion)])


def test_one_that_rounds_is_inexact_and_one_that_lies_is_told() -> None:
    report = measured("sinkhorn,lying,silent")
    assert {record.outcome for record in of(report, "silent")} <= {"unproved", "solved"}
    for record in of(report, "sinkhorn"):
        assert record.outcome == "inexact"
        assert 1e-6 < (record.gap or 0.0) < 1.0
        assert record.median_ms
        assert record.times_faster is None  # beside an open gap no ratio
    for record in of(report, "lying"):
        assert record.outcome == "FALSE CLAIM"
        assert "exceeds" in record.note
        assert record.times_faster is None
    assert all(record.solved for record in of(report, "full_lp"))
    shown = text(report)
    assert "2 inexact in " in shown
    assert "2 FALSE CLAIM" in shown
    assert "lying claims what its certificate refutes" in shown
    total, ratios = performance_profile(report.records)
    assert (total, ratios["sinkhorn"], ratios["lying"]) == (2, [], [])


def test_what_leaves_little_open_is_solved_at_that_tolerance() -> None:
    gaps = [record.gap or 0.0 for record in of(measured("sinkhorn"), "sinkhorn")]
    report = measured("sinkhorn", tolerance=2 * max(gaps))
    assert all(record.solved for record in of(report, "sinkhorn"))


def test_the_first_call_of_one_that_keeps_its_answers_is_what_counts() -> None:
    report = measured("slow_at_first", rounds=3)
    for record in of(report, "slow_at_first"):
        assert record.solved
        assert record.first_ms is not None
        assert record.counted_ms == record.first_ms > 2 * (record.median_ms or 0.0)
        (rival,) = [r for r in of(report, "full_lp") if r.place == record.place]
        assert record.times_faster == pytest.approx((rival.counted_ms or 0) / record.first_ms)
    assert "the first call of a problem counts, up to" in text(report)


@pytest.mark.parametrize("name", ["never_ends", "dies", "raises"])
def test_one_that_does_not_come_back_is_unsolved_and_the_others_are_measured(name: str) -> None:
    report = measured(name, size=100, time_limit=0.5, rounds=1)
    for record in of(report, name):
        assert record.outcome == ("limit" if name == "never_ends" else "failed")
        assert record.median_ms is None
    assert all(record.outcome in ("solved", "limit") for record in of(report, "full_lp"))
    assert "0 of 2" in text(report)


@pytest.mark.skipif(find_spec("ortools") is None, reason="OR-tools is not installed")
def test_pdlp_is_solved_or_inexact_by_what_it_leaves_open() -> None:
    report = measured("pdlp accuracy=1e-3,pdlp accuracy=1e-9", tolerance=1e-5)
    by_route = {record.route: record for record in report.records}
    assert by_route["pdlp accuracy=1e-9"].outcome == "solved"
    rough = by_route["pdlp accuracy=1e-3"]
    assert rough.outcome == ("solved" if (rough.gap or 0.0) <= 1e-5 else "inexact")
    strict = of(measured("pdlp accuracy=1e-3", tolerance=1e-15), "pdlp")
    assert [r.solved for r in strict] == [(r.gap or 0.0) <= 1e-15 for r in strict]
    assert {r.outcome for r in strict} <= {"inexact", "solved"}
    assert "inexact" in {r.outcome for r in strict}
