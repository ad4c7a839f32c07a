"""The benchmark suite: it measures, compares, and never invents a figure."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from importlib.util import find_spec

import pytest

import mdsd_opt as mo
from mdsd_opt import plots
from mdsd_opt.bench import (
    FAMILIES,
    LEFT_OUT,
    SETS,
    BenchReport,
    Record,
    changes,
    flows,
    load_report,
    load_warning,
    means,
    not_installed,
    performance_profile,
    run,
    scaling,
)
from mdsd_opt.bench.problem_sets import build, places_of_set
from mdsd_opt.bench.record import compared
from mdsd_opt.bench.suite import RIVALS
from mdsd_opt.cli.verbs.bench import bench_view
from mdsd_opt.cli.view import as_text, save_view
from mdsd_opt.errors import InvalidInput, UnknownName, UnreadableFile
from mdsd_opt.solvers import integer_masses


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
    assert list(found.records) == compared(told)
    assert {r.benchmark for r in told} == {name}
    for r in told:
        assert r.median_ms is not None
        assert 0.0 < r.median_ms <= r.p90_ms
    if name != "polyhedra":
        rivals = [r for r in found.records if r.route == r.against]
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
    save_view(bench_view(first), tmp_path / "a.json")
    again = load_report(tmp_path / "a.json")
    assert again.records == first.records
    save_view(bench_view(first), tmp_path / "a.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert [row["processor"] for row in rows] == ["some", "some"]
    assert rows[1]["median_ms"] == ""
    assert all(any(row[name] for row in rows) for name in rows[0])  # no empty column
    save_view(bench_view(first), tmp_path / "a.md")
    page = (tmp_path / "a.md").read_text()
    assert page.startswith("# Speed\nprocessor some, load average None\n\n")
    assert as_text(bench_view(first), ".md").strip() in page


def test_markdown_shows_every_measurement():
    page = as_text(
        bench_view(
            report(
                record(
                    benchmark="one", against="x", times_faster=4.0, gap=1e-9, gap_kind="error",
                    note="a|b",
                ),
                record(benchmark="one", vocab_size=40_000, median_ms=12345.6, p90_ms=None),
                record(benchmark="other", num_drafts=0, vocab_size=100),
            )
        ),
        ".md",
    )  # fmt: skip
    lines = [line for line in page.splitlines() if "| full_lp" in line]
    # three measurements, and of two sizes no exponent
    assert lines == [
        "| 100 | 2 | full_lp | 2 | 3 | 4 | 1e-09 | a\\|b |",
        "| 40,000 | 2 | full_lp | 12,346 | - |  |  |  |",
        "| 100 | any | full_lp | 2 | 3 |",
    ]
    assert "grows as" not in page
    assert "x faster: than x" in page


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
    assert fit.rate == pytest.approx(1.5)
    assert fit.low == pytest.approx(1.5) == pytest.approx(fit.high)
    assert fit.shown == "V^1.50"
    assert (fit.smallest, fit.largest, fit.num_sizes) == (100, 800, 3)


def test_two_sizes_give_no_exponent():
    assert scaling([record(vocab_size=v, median_ms=v) for v in (100, 800)]) == []


def test_growth_is_over_instances_of_one_form_and_of_sizes_that_were_all_solved():
    def rows(**more):
        return [
            record(vocab_size=v, seed=seed, median_ms=v**2 * factor, outcome="solved", **more)
            for v in (10, 20, 40, 80)
            for seed, factor in enumerate((0.5, 1.0, 2.0))
        ]

    (fit,) = scaling(rows())
    assert fit.rate == pytest.approx(2.0)
    assert fit.low < 1.9 < 2.1 < fit.high
    open_at_80 = [
        replace(r, outcome="limit") if (r.vocab_size, r.seed) == (80, 1) else r for r in rows()
    ]
    assert [x.largest for x in scaling(open_at_80)] == [40]
    forms = [replace(r, form="2 stages" if r.vocab_size < 40 else "1 stage") for r in rows()]
    assert scaling(forms) == []


def test_growth_in_the_number_of_drafts_is_a_factor():
    rows = [record(num_drafts=k, median_ms=3.0**k) for k in (1, 2, 4)]
    (fit,) = scaling(rows)
    assert (fit.axis, fit.shown) == ("K", "3^K")


def test_performance_profiles_are_of_problems_that_all_were_tried_on():
    records = [
        record(route=route, problem=problem, median_ms=ms, gap=gap)
        for route, problem, ms, gap in (
            ("a", "x", 1.0, 0.0), ("b", "x", 4.0, 0.0), ("a", "y", 6.0, 0.0), ("b", "y", 3.0, 0.0),
            ("a", "z", 1.0, 0.1), ("b", "z", 9.0, 0.0), ("a", "alone", 1.0, 0.0),
            ("a", "neither", 1.0, 1.0), ("b", "neither", 1.0, 1.0),
        )
    ]  # fmt: skip
    assert performance_profile(records) == (3, {"a": [1.0, 2.0], "b": [1.0, 1.0, 4.0]})
    assert performance_profile(records[:1] + records[3:4])[0] == 0


@pytest.mark.parametrize("name", SETS)
def test_named_sets_are_solved_and_certified(name):
    places = places_of_set(name)
    assert len(places) >= 12
    for place in places[:: 1 if name == "small" else 5]:
        problem = place.build()
        solution = mo.solve(problem)
        assert mo.certify(problem, solution).gap < 1e-9
        if name == "small":
            other = mo.solve(problem, "full_lp")
            assert other.acceptance_rate == pytest.approx(solution.acceptance_rate, abs=1e-9)


def test_a_set_is_measured_and_saved_in_several_forms(tmp_path, run_cli):
    pytest.importorskip("matplotlib")
    asked = ("--methods", "submodular,subset_selection", "--rounds", "1")
    (tmp_path / "all").mkdir()
    ends = ("json", "csv", "tex", "md", "html", "pdf")
    files = [x for end in ends for x in ("--out", tmp_path / "all" / f"bench.{end}")]
    shown = run_cli.shown("bench", "solvers", "--problems", "small", *asked, *files)
    assert "performance profiles" in shown
    saved = {path.suffix: path.read_bytes() for path in (tmp_path / "all").iterdir()}
    assert saved[".pdf"].startswith(b"%PDF")
    assert rb"\caption{Performance profiles" in saved[".tex"]
    assert b"performance profiles" in saved[".html"]
    assert len(json.loads(saved[".json"])["records"]) == 30
    assert saved[".csv"].count(b"random, independent") == 10


def test_a_folder_that_is_named_like_a_set(tmp_path, run_cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small").mkdir()
    problem = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 2))
    mo.save_problem(problem, tmp_path / "small" / "one.json")
    asked = ("bench", "solvers", "--methods", "subset_selection", "--rounds", "1", "--json")
    assert "a named set and a folder here" in run_cli.refusal(*asked, "--problems", "small")
    done = run_cli(*asked, "--problems", tmp_path / "small")
    assert [x["instance"] for x in json.loads(done.stdout)["records"]] == ["one.json"]
    (tmp_path / "small" / "deep").mkdir()
    mo.save_problem(problem, tmp_path / "small" / "deep" / "two.json")
    done = run_cli(*asked, "--problems", "small/deep")
    assert [x["instance"] for x in json.loads(done.stdout)["records"]] == ["two.json"]


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
    for given, told in (
        ({"families": ("rondom",)}, "unknown family 'rondom'"),
        ({"instances": 0}, "instances is 0: give a finite number above 0"),
        ({"time_limit": float("nan")}, "time_limit is nan"),
        ({"methods": ("full_lp size=3",)}, "is no option of full_lp"),
    ):
        with pytest.raises(InvalidInput, match=told):
            run(["solvers"], **given)
    with pytest.raises(UnknownName, match="solvers"):
        run(["solver"])
    with pytest.raises(InvalidInput, match="rounds is 0"):
        run(["solvers"], rounds=0)
    with pytest.raises(InvalidInput, match="threads is 0"):
        run(["solvers"], threads=0)


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


def test_records_are_the_same_measurement_whatever_their_times():
    assert record(median_ms=1.0).key == record(median_ms=5.0, note="x").key
    assert replace(record(), threads=2).key != record().key


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of problems, and a method and a verifier of one's own beside it."""
    (tmp_path / "problems").mkdir()
    for name, q in (("a", [0.2, 0.3, 0.5]), ("b", [0.3, 0.3, 0.4])):
        problem = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement(q, 2))
        mo.save_problem(problem, tmp_path / "problems" / f"{name}.json")
    (tmp_path / "own_of_bench.py").write_text(
        "from mdsd_opt.solvers import Found, Status\n"
        "from mdsd_opt.verifiers.naive_target import NaiveTarget\n"
        "def guess(problem):\n"
        "    return Found(acceptance_rate=0.5, lower_bound=0.0, upper_bound=1.0, "
        "status=Status.BOUND)\n"
        "class Own(NaiveTarget):\n    name = 'own'\n"
        "VERIFIER = Own()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_methods_of_one_s_own_are_measured_on_files(folder, run_cli):
    asked = ("--methods", "full_lp,own_of_bench:guess", "--rounds", "4", "--json")
    shown = run_cli.shown("bench", "solvers", "--problems", folder / "problems", *asked)
    records = json.loads(shown)["records"]
    assert [(r["route"], r["instance"]) for r in records] == [
        (route, name) for route in ("full_lp", "guess") for name in ("a.json", "b.json")
    ]
    assert all(r["rounds"] in (3, 4) and r["setup_ms"] != 0 for r in records)
    table = bench_view(load_text(shown)).all_tables[0]
    assert len(table.rows) == 2  # a mean of each route over the files of a size
    by_route = {r["route"]: r for r in records}
    assert by_route["full_lp"]["gap"] == pytest.approx(0, abs=1e-9)
    assert by_route["full_lp"]["setup_ms"] > 0
    assert by_route["guess"]["gap"] > 0.4  # what nobody proves
    assert {r["outcome"] for r in records if r["route"] == "guess"} == {"unproved"}
    assert by_route["guess"]["times_faster"] is None


def test_sizes_counts_and_backend_make_a_grid(run_cli):
    asked = ("-V", "6,9", "-k", "1-2", "--methods", "full_lp,max_flow", "--backend", "highs",
             "--families", "random,real", "--instances", "2")  # fmt: skip
    found = run_cli.document("bench", "solvers", *asked, "--time-limit", "30", "--quick")
    records = found["records"]
    places = {(r["route"], r["vocab_size"], r["num_drafts"]) for r in records}
    routes = ("full_lp backend=highs", "max_flow")
    assert places == {(r, v, k) for r in routes for v in (6, 9) for k in (1, 2)}
    assert {(r["problem"], r["seed"]) for r in records} == {
        (family, seed) for family in ("random", "real") for seed in (0, 1)
    }
    assert {r["rounds"] for r in records} <= {2, 3}  # also where it is quick


def test_a_verifier_of_one_s_own_is_timed_beside_the_others(folder):
    found = run(["decisions"], quick=True, rounds=1, verifiers=("own_of_bench:VERIFIER",))
    routes = {r.route for r in found.records}
    assert {"own", "optimal", "rrs"} <= routes


def test_a_registered_method_is_measured_in_this_process(monkeypatch):
    from mdsd_opt.solvers import solving as registry

    monkeypatch.setattr(registry.METHODS, "registered", {})
    mo.solvers.register(mo.solvers.Method(name="mine", solve=lambda p: mo.solve(p)))
    asked = {"methods": ("mine",), "vocab_sizes": (5,), "num_drafts": (1,)}
    found = run(["solvers"], families=("ties",), instances=1, rounds=3, **asked)
    (r,) = found.records
    assert r.route == "mine"
    assert r.solved


def test_what_is_refused_or_too_slow_is_said(folder):
    slow = "import time\ndef slow(problem):\n    time.sleep(90)\n"
    (folder / "slow_of_bench.py").write_text(slow)
    found = run(
        ["solvers"], methods=("full_lp", "slow_of_bench:slow"), vocab_sizes=(5000,),
        num_drafts=(3,), families=("random",), instances=1, time_limit=0.5,
    )  # fmt: skip
    refused, slow = found.records
    assert refused.median_ms is None
    assert refused.outcome == "refused"
    assert "refused: full_lp at V=5000" in refused.note
    assert (slow.outcome, slow.note) == ("limit", "did not finish within 0.5 s")
    assert [x.milliseconds for x in means([slow])] == [pytest.approx(500)]


def load_text(text):
    document = json.loads(text)
    return BenchReport(tuple(Record(**x) for x in document["records"]), document["circumstances"])


def test_what_is_not_solved_counts_at_the_limit():
    records = [
        record(route=route, vocab_size=v, median_ms=ms, outcome=outcome, limit_ms=1990.0)
        for route, times in (
            ("a", ((10.0, "solved"), (90.0, "solved"), (7.0, "solved"))),
            ("b", ((40.0, "solved"), (40.0, "bound"), (None, "limit"))),
        )
        for v, (ms, outcome) in zip((1, 2, 3), times, strict=True)
    ]
    a, b = means(records)
    assert (a.solved, a.total) == (3, 3)
    assert a.milliseconds == pytest.approx((20 * 100 * 17) ** (1 / 3) - 10)
    assert a.low < a.milliseconds < a.high
    assert (b.solved, b.total, b.low) == (1, 3, None)
    assert b.milliseconds == pytest.approx((50 * 2000 * 2000) ** (1 / 3) - 10)
    text = "".join(map(str, bench_view(report(*records)).all_tables))
    assert "1 of 3" in text
    assert "1 limit" in text


@pytest.mark.parametrize("family", FAMILIES)
def test_families_have_instances_of_every_size(family):
    one, other = (build("with_replacement", 30, 2, seed, family) for seed in (0, 1))
    again = build("with_replacement", 30, 2, 0, family)
    assert one.vocab_size == other.vocab_size == 30
    assert (one.target == again.target).all()
    assert not (one.target == other.target).all()
    assert build("independent", 7, 3, 0, family).num_drafts == 3
    assert mo.certify(one, mo.solve(one)).gap < 1e-9
    if family in ("random", "ties"):
        assert (len({*one.target.tolist()}) < 30) == (family == "ties")
    if family == "peaked":
        assert one.target.max() > build("with_replacement", 30, 2, 0).target.max()


def test_bundled_logits_have_no_more_tokens_than_they_have():
    with pytest.raises(InvalidInput, match="leave the family real out"):
        build("with_replacement", 100_000, 2, 0, "real")


def test_rivals_that_are_not_installed_have_a_line_with_their_command():
    for benchmark, rivals in RIVALS.items():
        where = dict.fromkeys(rivals, "not installed")
        (line,) = not_installed(BenchReport((record(benchmark=benchmark),), where))
        assert all(name in line for name in rivals)
        assert f"pip install '.[{next(iter(rivals.values()))}" in line
    assert not_installed(report(record())) == []
    shown = bench_view(BenchReport((record(benchmark="flows"),), {"igraph": "not installed"}))
    assert any("pip install '.[rivals]'" in str(line) for line in shown.conclusion)


def test_a_run_that_was_killed_goes_on_from_its_file(tmp_path, run_cli):
    out = tmp_path / "r.json"
    asked = ("bench", "solvers", "-V", "5,6", "-k", "2", "--methods", "submodular",
             "--families", "ties", "--instances", "2", "--rounds", "1")  # fmt: skip
    whole = run_cli(*asked, "--out", out)
    assert whole.returncode == 0, whole.stderr
    document = json.loads(out.read_text())
    assert document["finished"]
    document["finished"] = False
    document["records"] = [{**r, "note": "kept"} for r in document["records"][:3]]
    out.write_text(json.dumps(document))
    other = run_cli(*asked, "--seed", "1", "--out", out)
    assert other.returncode == 2
    assert "other settings (seed 0, now 1)" in other.stderr
    done = run_cli(*asked, "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ties seed") == 1  # the others were there
    records = json.loads(out.read_text())["records"]
    assert [r["note"] == "kept" for r in records] == [True, True, True, False]


def test_results_are_saved_as_they_come(tmp_path):
    saved = []
    found = run(["solvers"], methods=("subset_selection",), vocab_sizes=(5,), families=("ties",),
                instances=2, rounds=1, save=saved.append)  # fmt: skip
    assert [(len(x.records), x.finished) for x in saved] == [(1, False), (2, False)]
    assert found.finished
    again = run(["solvers"], methods=("subset_selection",), vocab_sizes=(5,), families=("ties",),
                instances=2, rounds=1, unfinished=saved[0])  # fmt: skip
    assert again.records[0] == saved[0].records[0]
    assert len(again.records) == 2


def test_a_load_above_the_cores_is_a_warning():
    assert load_warning({"load_average": 0.0}) is None
    assert load_warning({"load_average": None}) is None
    assert "others were waiting" in (load_warning({"load_average": 1e6}) or "")


def test_one_round_is_no_median():
    def shown(rounds):
        page = as_text(bench_view(report(record(benchmark="one", rounds=rounds))), ".md")
        return page.splitlines()[2]

    assert "median ms" in shown(3)
    assert "median" not in shown(1)
    assert "p90" not in shown(1)


def test_a_saved_run_is_drawn_again_with_a_short_legend(tmp_path, run_cli):
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    many = [
        record(route=f"route {i}", problem=f"problem {j}", vocab_size=v, median_ms=1.0 + i + j * v)
        for i in range(9) for j in range(9) for v in (10, 100)
    ]  # fmt: skip
    save_view(bench_view(report(*many)), tmp_path / "r.json")
    done = run_cli("bench", "--from", tmp_path / "r.json", "--plot", tmp_path / "r.png")
    assert done.returncode == 0, done.stderr
    assert max(imread(tmp_path / "r.png").shape) <= 1600
    legend = plots.bench(tmp_path / "r.json").get_legend().texts
    assert len(legend) == 12
    assert legend[-1].get_text() == "and 7 more"
    assert "--vocab-size is for mdsd-opt bench solvers" in run_cli.refusal(
        "bench", "--from", tmp_path / "r.json", "-V", "12"
    )
