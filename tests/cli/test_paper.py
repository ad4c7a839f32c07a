"""What a paper needs: tables for LaTeX and Markdown, pictures of one's own size and look, axes."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt import plots
from mdsd_opt.base.files.logits import LogitsSample
from mdsd_opt.bench import BenchReport, Record
from mdsd_opt.bench.record import compared
from mdsd_opt.cli.output import that_fit
from mdsd_opt.cli.verbs.bench import bench_view
from mdsd_opt.cli.view import as_text
from mdsd_opt.corpora import Reproduction, rate_rows
from mdsd_opt.corpora.reproduce import ResultTable
from mdsd_opt.errors import InvalidInput, MissingExtra
from mdsd_opt.evidence import mean_interval

ASKED = ("-k", "1-2", "--schemes", "with_replacement", "--verifiers", "optimal,rrs")


def asked_args(*more: str) -> tuple[str, ...]:
    return ("--num-drafts", "1-2", *ASKED[2:], *more)


def assert_compiles(latex: str, folder: Path) -> None:
    """Tables that pdfLaTeX takes in a column of a paper, or without it what it asks for."""
    for table in latex.split(r"\begin{table}")[1:]:
        table = table.partition(r"\end{table}")[0]
        sides = re.search(r"\\begin{tabular}{@{}([lr]+)@{}}", table)
        assert sides is not None
        rows = [line for line in table.splitlines() if line.endswith(r"\\")]
        assert {row.count(" & ") + 1 for row in rows} == {len(sides[1])}
        assert len(sides[1]) <= 7
        assert table.count("$") % 2 == 0
        assert table.count("{") - table.count(r"\{") == table.count("}") - table.count(r"\}")
        assert not re.search(r"(?<!\\)[%#]|e[-+]\d\d", table)
        for name in ("caption", "label", "toprule", "midrule", "bottomrule", "end{tabular}"):
            assert table.count(f"\\{name}") == 1
        caption = re.search(r"\\caption{(.*)}", table)
        assert caption is not None
        assert caption[1][0].isupper()
        assert "lower is better" not in caption[1]
    if shutil.which("pdflatex"):
        page = r"\documentclass[twocolumn]{article}\usepackage{booktabs}\begin{document}"
        (folder / "t.tex").write_text(f"{page}\n{latex}\n\\end{{document}}\n")
        read = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
        done = subprocess.run(read, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull" not in done.stdout


def test_a_table_goes_into_latex_and_markdown(run_cli: Any, logits: Path) -> None:
    found = json.loads(run_cli("rates", logits, *asked_args("--json")).stdout)["rows"]
    mean = f"{found[0]['mean']:.4f}"
    latex = run_cli("rates", logits, *asked_args("--latex")).stdout
    assert latex.startswith("% ")
    assert r"\begin{tabular}{@{}l" in latex
    assert f"${mean} \\pm" in latex or f"{mean} [" in latex
    assert "±" not in latex
    assert not re.search(r"(?<!\\)[_&](?=\w)", latex.partition("\n")[2].replace(" & ", " "))
    body = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert len({line.count(" & ") for line in body}) == 1
    assert len(body) == 3
    path = logits.with_suffix(".md")
    assert run_cli("rates", logits, *asked_args("--out", str(path))).returncode == 0
    lines = [line for line in path.read_text().splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert mean in lines[2]


def test_measurements_fit_a_column_and_a_terminal(tmp_path: Path) -> None:
    """Sizes, limits and options as wide as they come."""
    rng = np.random.default_rng(0)
    records = [
        Record(
            "solvers", route, problem, size, k, "float64", 1, seed, 1, ms, ms, gap=1e-9,
            outcome="solved", limit_ms=6e4, against="full_lp", form="rule ratio, size V, stages 1",
        )
        for problem in ("random", "random, without_replacement")
        for size in (1000, 16_384, 262_144)
        for k in (2, 3, 4)
        for route in ("subset_selection", "full_lp", "truncated_lp size=5 rule=published")
        for seed in range(3)
        for ms in [float(0.03 * size * k * np.exp(0.2 * rng.standard_normal()))]
    ]  # fmt: skip
    view = bench_view(BenchReport(tuple(compared(records)), {}))
    assert_compiles(as_text(view, ".tex"), tmp_path)
    growing = [table for table in view.all_tables if table.heading == "Growth"]
    assert len(growing) == 2
    for table in view.all_tables:
        assert that_fit(table, 80).headings == table.headings, table.title


def test_solutions_are_printed_for_a_paper_and_for_a_spreadsheet(
    run_cli: Any, tmp_path: Path
) -> None:
    problem = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 2))
    mo.save_problem(problem, tmp_path / "three.json")
    asked = ("solve", tmp_path / "three.json", "--method", "truncated_lp", "--size", "2")
    latex = run_cli(*asked, "--latex").stdout
    assert r"\shortstack[l]{truncated\_lp (rule\\ratio, size 2,\\stages 1)}" in latex
    assert_compiles(latex, tmp_path)
    rows = list(csv.DictReader(io.StringIO(run_cli(*asked, "--csv").stdout)))
    assert [(row["method"], row["variant"]) for row in rows] == [
        ("truncated_lp", "rule ratio, size 2, stages 1")
    ]
    both = run_cli("solve", tmp_path / "three.json", "--plan", "--csv").stdout.split("\n\n")
    assert [part.split(",")[0] for part in both] == ["method", "draft set"]


def test_measurements_and_papers_have_these_forms_too(run_cli: Any, tmp_path: Path) -> None:
    record = Record(
        "solvers", "full_lp", "a_b", 100, 2, "float64", 1, 0, 3, median_ms=2.0, p90_ms=3.0
    )
    (tmp_path / "r.json").write_text(BenchReport((record,), {}).as_json())
    rows = list(csv.DictReader(io.StringIO(run_cli("bench", "--from", tmp_path / "r.json",
                                                   "--csv").stdout)))  # fmt: skip
    assert rows[0]["median_ms"] == "2.0"
    latex = run_cli("bench", "--from", tmp_path / "r.json", "--latex").stdout
    assert r"$100$ & full\_lp & 1 of 1 & $2$" in latex
    assert_compiles(latex, tmp_path)
    drawn = ("--plot", tmp_path / "s.pdf", "--width", "3.4", "--out", tmp_path / "s.html")
    shown = run_cli.shown("reproduce", "spechub", "--latex", *drawn)
    assert shown.count(r"\toprule") == shown.count(r"\end{tabular}") > 0
    assert r"\label{tab:acceptance-rate-of-two-drafts}" in shown
    assert (tmp_path / "s.pdf").read_bytes().startswith(b"%PDF")
    assert "Beside the published results" in (tmp_path / "s.html").read_text()


def test_one_table_is_chosen_by_its_words(run_cli: Any, tmp_path: Path) -> None:
    records = [
        Record("solvers", name, "a", 100, 2, "float64", 1, 0, 3, median_ms=ms, p90_ms=ms, gap=0.0)
        for name, ms in (("full_lp", 2.0), ("max_flow", 1.0))
    ]
    records += [replace(record, problem="b", vocab_size=200) for record in records]
    (tmp_path / "r.json").write_text(BenchReport(tuple(records), {}).as_json())
    asked = ("bench", "--from", tmp_path / "r.json")
    latex = run_cli(*asked, "--latex", "--table", "performance profile").stdout
    assert latex.count(r"\begin{table}") == 1
    assert r"max\_flow & $1.00$" in latex
    page = tmp_path / "p.md"
    run_cli(*asked, "--out", page, "--table", "performance profile")
    csv_text = run_cli(*asked, "--csv", "--table", "performance profile").stdout
    for text in (csv_text, page.read_text()):
        assert "max_flow" in text
        assert "x 10" in text
    for bad, told in (
        (("--latex", "--table", "nothing"), "no table's title has"),
        (
            ("--out", tmp_path / "a.json", "--out", tmp_path / "a.tex", "--table", "nothing"),
            "no table's title has",
        ),
        (("--table", "solvers"), "goes with --latex, --csv, or"),
    ):
        assert told in run_cli.refusal(*asked, *bad)
    assert not [*tmp_path.glob("a.*")]


def test_curves_of_an_experiment_are_drawn() -> None:
    pytest.importorskip("matplotlib")
    rows = tuple(
        (t, k, *(mean_interval(np.array(x), None, 0.95) for x in ([rate, rate + 0.1], [0.0, 0.0])))
        for t in (0.5, 1.0)
        for k, rate in (("2", 0.3), ("3", 0.5))
    )
    table = ResultTable("rates", ("temperature", "K", "optimal", "optimal - rrs"), rows, by="K")
    result = Reproduction("x", "y", "z", 2, 2, (table, replace(table, is_drawn=False)), ())
    figure = plots.reproduction_figure(result)
    panels = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_title() for axes in panels] == ["K = 2", "K = 3"]
    assert panels[0].lines[0].get_xdata().tolist() == [0.5, 1.0]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["optimal"]


def test_pictures_have_the_asked_size_and_fonts(run_cli: Any, logits: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    path = logits.with_suffix(".pdf")
    paper = ("--width", "5", "--style", "paper", "--no-title")
    done = run_cli("rates", logits, *asked_args("--plot", str(path), *paper))
    assert done.returncode == 0, done.stderr
    content = path.read_bytes()
    assert b"/Type42" in content or b"/TrueType" in content or b"/CIDFontType2" in content
    assert b"/Type3" not in content
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", content)
    assert box is not None
    assert float(box[1]) == pytest.approx(5 * 72, abs=1)
    svg = {}
    for name, more in (("with", ()), ("without", ("--no-title",))):
        file = logits.with_name(f"{name}.svg")
        assert run_cli("rates", logits, *asked_args("--plot", str(file), *more)).returncode == 0
        svg[name] = "<!-- Acceptance rate by the number of drafts -->" in file.read_text()
    assert svg == {"with": True, "without": False}
    png = logits.with_suffix(".png")
    run_cli("rates", logits, *asked_args("--plot", str(png), "--width", "20"))
    assert max(imread(png).shape) <= 1600


#: A document that reads a picture and goes on with an underscore of its own.
_DOCUMENT = r"""\documentclass{article}\usepackage{pgf}\begin{document}
\input{FILE} $a_b$ \end{document}"""


def test_pgf_is_commands_or_a_word_on_latex(run_cli: Any, logits: Path) -> None:
    pytest.importorskip("matplotlib")
    path = logits.with_suffix(".pgf")
    done = run_cli("rates", logits, *asked_args("--plot", str(path)))
    if shutil.which("xelatex"):
        assert r"\begin{pgfpicture}" in path.read_text()
        assert "DejaVu" not in path.read_text()  # letters are the document's
        pixels = run_cli("plan", "--nodes", "4", "-k", "2", "--plot", str(path))
        assert "parts in pixels" in pixels.stderr
        (path.parent / "paper.tex").write_text(_DOCUMENT.replace("FILE", path.name))
        read = ["xelatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
        assert subprocess.run(read, cwd=path.parent, capture_output=True).returncode == 0
    else:
        assert done.returncode == 2
        assert "needs LaTeX" in done.stderr
        assert not path.exists()


@pytest.fixture
def rows(logits: Path) -> Any:
    with np.load(logits) as arrays:
        sample = LogitsSample(arrays["target"], arrays["draft"], source="mine")
    return rate_rows(sample, ["with_replacement", "greedy"], [1, 2, 3, 4, 5], ["optimal", "rrs"])


def test_rates_are_drawn_on_the_axes_given(rows: Any, run_cli: Any, logits: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    left, right = figure.subplots(1, 2)
    assert plots.rates(rows, ax=left) is left
    assert not right.lines
    means = [r.acceptance.mean for r in rows if (r.scheme, r.verifier) == ("greedy", "optimal")]
    assert any(
        np.allclose(line.get_ydata(), means) for line in left.lines if len(line.get_ydata()) == 5
    )
    printed = run_cli(
        "rates", logits, "--json", "--num-drafts", "1-5", "--verifiers", "optimal"
    ).stdout
    document = json.loads(printed)
    (logits.parent / "r.json").write_text(printed)
    for result in (document, logits.parent / "r.json"):
        drawn = [line.get_ydata() for line in plots.rates(result).lines]
        first = [row["mean"] for row in document["rows"] if row["scheme"] == "with_replacement"]
        assert any(len(y) == 5 and np.allclose(y, first) for y in drawn)
    for nothing in ([], {"rows": [{}]}, {}):
        with pytest.raises(InvalidInput, match="has no rates"):
            plots.rates(nothing)


def test_advice_is_drawn_on_the_axes_given(logits: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    with np.load(logits) as arrays:
        advice = mo.advise(arrays["target"], arrays["draft"], target_ms=20, draft_ms=2)
    axes = figure.add_subplot()
    assert plots.advice(advice, ax=axes) is axes
    widths = sorted(bar.get_width() for bar in axes.patches)
    assert widths == pytest.approx(sorted(row.speedup.mean for row in advice.rows))
    panels = [part for sub in plots.advice_figure(advice).subfigs for part in sub.axes]
    assert advice.tree.num_nodes > advice.tree.depth
    assert advice.tree.name in panels[-1].get_title()
    assert len(panels[-1].lines[-1].get_xdata()) == advice.tree.num_nodes


def test_results_become_data_frames(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def frame(rows: Any, index: Any = None) -> Any:
        made.append((list(rows), index))
        return made[-1]

    monkeypatch.setitem(__import__("sys").modules, "pandas", SimpleNamespace(DataFrame=frame))
    lines, _ = rows.to_pandas()
    assert [line["mean"] for line in lines] == [row.acceptance.mean for row in rows]
    problem = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 2))
    matrix = mo.solve(problem, "full_lp").plan.matrix()
    lines, index = matrix.to_pandas()
    assert index[3] == "{0, 1}"
    assert lines[3][1] == matrix[3, 1]
    table = ResultTable("t", ("drafts", "here"), (("greedy", rows[0].acceptance),))
    advice = mo.advise_from_counts(1093, 1717, depth=5, target_ms=20.0, draft_ms=2.0)
    lines, _ = advice.to_pandas()
    assert [line["name"] for line in lines] == [row.name for row in advice.rows]
    assert lines[0]["speedup.mean"] == advice.rows[0].speedup.mean
    lines, _ = table.to_pandas()
    assert lines[0]["here low"] == rows[0].acceptance.low
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingExtra, match="pip install pandas"):
        rows.to_pandas()


def test_advice_is_printed_for_a_paper_and_for_a_spreadsheet(run_cli, tmp_path):
    given = ("advise", ".72,.5,.34", "--depth", "3", "--target-ms", "20",
             "--draft-ms", "2")  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(run_cli(*given, "--csv").stdout)))
    assert float(rows[0]["speedup.mean"]) > 1
    assert float(rows[0]["accepted.low"]) <= float(rows[0]["accepted.high"])
    latex = run_cli(*given, "--latex").stdout
    assert r"\toprule" in latex
    picture = tmp_path / "advice.pdf"
    found = run_cli("advise", "--target-ms", "20", "--draft-ms", "2", "--plot", picture,
                    "--style", "paper", "--no-title", "--no-progress")  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert picture.read_bytes().startswith(b"%PDF")
