"""The benchmark suite: it measures, compares, and never invents a figure."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from importlib.util import find_spec

import pytest

import mdsd_opt as mo
from mdsd_opt.cli.bench import (
    LEFT_OUT,
    BenchReport,
    Record,
    changes,
    flows,
    load_report,
    run,
    scaling,
)
from mdsd_opt.cli.bench.solvers import build
from mdsd_opt.cli.report.bench import markdown, save_report
from mdsd_opt.errors import InvalidInput, UnknownName, UnreadableFile
from mdsd_opt.solvers.max_flow import integer_masses


def record(**given):
    usual = {
        "benchmark": "solvers", "route": "full_lp", "problem": "with_replacement",
        "vocab_size": 100, "num_drafts": 2, "dtype": "float64", "threads": 1, "seed": 0,
        "rounds": 3, "median_ms": 2.0, "p90_ms": 3.0,
    }  # fmt: skip
    return Record(**{**usual, **given})


def report(*records):
    return BenchReport(records, {"processor": "some", "load_average": None})


@pytest.mark.parametrize("name", ["solvers", "flows", "batches", "decisions", "polyhedra"])
def test_quick_runs_measure(name):
    assert LEFT_OUT[name]
    told = []
    found = run([name], quick=True, rounds=1, threads=1, progress=told.append)
    assert list(found.records) == told
    assert {r.benchmark for r in told} == {name}
    for r in told:
        assert r.median_ms is not None
        assert 0.0 < r.median_ms <= r.p90_ms
    if name != "polyhedra":
        rivals = [r for r in told if r.route.startswith(r.against or "nothing")]
        assert any(r.times_faster == pytest.approx(1.0) for r in rivals)
    assert all(r.gap is None or r.gap < 1e-3 for r in told if r.route != "truncated_lp")
    assert "numpy" in found.circumstances


def test_a_flow_beyond_what_a_library_takes_is_left_out():
    found = flows.measure("POT", "with_replacement", 200, 3, 0, 1)
    assert found["milliseconds"] == []
    assert found["note"].startswith("left out")


def test_rivals_solve_the_same_network():
    """All that are installed find the optimum of the problem, as far as they round."""
    problem = build("without_replacement", 9, 3, 4)
    law = problem.drafts.support_law()
    masses = integer_masses(problem, law)
    exact = float(mo.solve(problem, "max_flow").acceptance_rate)
    tried = [x for x in flows.RIVALS.values() if find_spec(x.module)]
    assert tried
    for rival in tried:
        assert rival.value(law, masses) == pytest.approx(exact, abs=1e-6)


def test_reports_survive_their_file(tmp_path):
    first = report(record(), record(vocab_size=400, median_ms=None, p90_ms=None, note="LIMIT"))
    save_report(first, tmp_path / "a.json")
    again = load_report(tmp_path / "a.json")
    assert again.records == first.records
    save_report(first, tmp_path / "a.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert [row["processor"] for row in rows] == ["some", "some"]
    assert rows[1]["median_ms"] == ""
    save_report(first, tmp_path / "a.md")
    assert (tmp_path / "a.md").read_text() == markdown(first)


def test_markdown_shows_every_measurement_and_where_it_was_made():
    page = markdown(
        report(
            record(against="x", times_faster=4.0, gap=1e-9, gap_kind="error", note="a|b"),
            record(vocab_size=40_000, median_ms=12345.6, p90_ms=None),
            record(benchmark="other", num_drafts=0, vocab_size=100),
        )
    )
    assert page.startswith("some; load_average None.")
    lines = [line for line in page.splitlines() if line.startswith("| full_lp")]
    # three measurements, and one exponent from two sizes
    assert lines == [
        "| full_lp | with replacement | 100 | 2 | 1 | 2 | 3 | 4 | 1e-09 | a\\|b |",
        "| full_lp | with replacement | 40,000 | 2 | 1 | 12,346 | - |  |  |  |",
        "| full_lp | with replacement | 100 | 1 | 2 | 3 |",
        "| full_lp | with replacement | 2 | 1 | 100 | 40,000 | 1.46 |",
    ]
    assert "times faster than x" in page
    assert page.count("**") == 4


@pytest.mark.parametrize("text", ["", "{}", '{"records": [{}], "circumstances": {}}', "[1]"])
def test_what_is_no_report_is_one_clear_error(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UnreadableFile, match="no report"):
        load_report(path)
    with pytest.raises(UnreadableFile, match="does not exist"):
        load_report(tmp_path / "missing.json")


def test_exponents_are_those_of_the_times():
    rows = [record(vocab_size=v, median_ms=1e-3 * v**1.5) for v in (100, 200, 800)]
    (fit,) = scaling([*rows, record(route="alone"), record(route="none", median_ms=None)])
    assert fit.exponent == pytest.approx(1.5)
    assert (fit.smallest, fit.largest, fit.num_sizes) == (100, 800, 3)


def test_regressions_are_flagged_against_the_rival():
    old = report(
        record(against="x", times_faster=4.0), record(route="b"), record(route="gone"),
        record(route="exact", gap=1e-14), record(route="same", against="x", times_faster=4.0),
    )  # fmt: skip
    new = report(
        record(median_ms=2.0, against="x", times_faster=2.0), record(route="b", median_ms=2.2),
        record(route="exact", gap=1e-6), record(route="new"),
        record(route="same", median_ms=9.0, against="x", times_faster=4.0),
    )  # fmt: skip
    found = {change.record.route: change for change in changes(old, new)}
    assert set(found) == {"full_lp", "b", "exact", "same"}
    assert found["full_lp"].is_regression
    assert found["full_lp"].times_slower == pytest.approx(2.0)
    assert not found["b"].is_regression
    assert found["exact"].is_regression
    assert not found["same"].is_regression  # the whole machine was slower


def test_unfinished_measurements_are_not_compared():
    unfinished = record(median_ms=None, p90_ms=None)
    assert changes(report(unfinished), report(record())) == []
    assert changes(report(record()), report(unfinished)) == []


def test_bad_names_and_rounds():
    with pytest.raises(UnknownName, match="solvers"):
        run(["solver"])
    with pytest.raises(InvalidInput, match="rounds is 0"):
        run(["solvers"], rounds=0)


def test_the_command(run_cli, tmp_path):
    out, picture = tmp_path / "now.json", tmp_path / "now.png"
    arguments = ("bench", "decisions", "--quick", "--rounds", "1")
    done = run_cli(*arguments, "--out", out, "--plot", picture)
    assert done.returncode == 0
    assert "argsort route" in done.stdout
    assert "exponent" in done.stdout or "V" in done.stdout
    assert picture.stat().st_size > 10_000
    assert "left out of decisions: " in done.stderr
    assert "solvers" not in done.stderr
    faster = json.loads(out.read_text())
    for row in faster["records"]:
        if row["route"] == "optimal":
            row["times_faster"] *= 1e6
    out.write_text(json.dumps(faster))
    done = run_cli(*arguments, "--compare", out)
    assert done.returncode == 1
    assert "SLOWER" in done.stdout
    assert "slower or less exact" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments",
    [("--out", "x.txt"), ("nothing",), ("--compare", "missing.json"), ("--plot", "x.q")],
)
def test_the_command_refuses_in_one_line(run_cli, arguments):
    done = run_cli("bench", *arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_records_are_the_same_measurement_whatever_their_times():
    assert record(median_ms=1.0).key == record(median_ms=5.0, note="x").key
    assert replace(record(), threads=2).key != record().key
