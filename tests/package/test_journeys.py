"""What three kinds of users do, by the commands of the pages: a paper, a pipeline, a new solver.

The pipeline's is `tests/cli/test_continuous_integration.py`.
"""

from __future__ import annotations

import json
import re
import shlex
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.solvers import solving as registry

DOCS = Path(__file__).parents[2] / "docs"


def commands(page: str, heading: str) -> list[list[str]]:
    """Arguments of the commands below a heading of a page, in order."""
    section = (DOCS / page).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    section = re.sub(r" *\\\n\s*", " ", section)
    found = re.findall(r"^    mdsd-opt (.*)$", section, re.MULTILINE)
    assert found, f"no command below {heading!r} in {page}"
    return [shlex.split(command) for command in found]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry.METHODS, "registered", {})
    return tmp_path


def test_a_paper_gets_a_table_a_figure_and_a_counterexample(folder: Path, run_cli: Any) -> None:
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    target = rng.standard_normal((6, 40)).astype(np.float32)
    draft = target + rng.standard_normal((6, 40)).astype(np.float32)
    np.savez(folder / "mine.npz", target=target, draft=draft)
    table, figure, search = commands("gallery.md", "In a paper")
    shown = run_cli.shown(*table)
    mean = float(mo.acceptance_rates(target, draft, 3).mean())
    assert f"with replacement & $3$ & ${mean:.4f}" in shown
    ends = [line for line in shown.splitlines() if line.endswith(r"\\")]
    assert len(ends) == 1 + 4 * 5  # headings, then schemes by numbers of drafts
    assert run_cli(*figure).returncode == 0
    assert (folder / "rates.pdf").read_bytes().startswith(b"%PDF")
    done = run_cli(*search)
    assert done.returncode == 1
    found = json.loads(done.stdout)["counterexample"]
    p, q = ([Fraction(x) for x in found[name]] for name in ("p", "q"))
    problems = [
        mo.TransportProblem(p, make(q, 2)) for make in (mo.GreedyDrafts, mo.WithoutReplacement)
    ]
    greedy, drawn = (mo.solvers.exact_optimum(problem)[0] for problem in problems)
    assert drawn - greedy == Fraction(found["fails_by"]) > 0


def test_a_new_solver_is_certified_and_benchmarked(folder: Path, run_cli: Any) -> None:
    pytest.importorskip("matplotlib")
    page = (DOCS / "solvers.md").read_text().partition("## Your own solver\n")[2]
    source = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert source is not None
    code = (
        "import numpy as np\nimport mdsd_opt as mo\n"
        + source[1].partition("mo.solvers.register")[0]
    )
    (folder / "my_solvers.py").write_text(code, encoding="utf-8")
    problem = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 2))
    (folder / "FOLDER").mkdir()
    for name in ("problem.json", "FOLDER/one.json", "FOLDER/two.json"):
        mo.save_problem(problem, folder / name)
    done = run_cli("solve", "problem.json", "--method", "my_solvers:by_trying", "--json")
    (row,) = json.loads(done.stdout)["methods"]
    assert row["valid"]
    assert row["acceptance_rate"] == pytest.approx(0.86)
    on_sizes, on_files, again = commands("solvers.md", "Your own solver")
    for command in (on_sizes, on_files):
        records = run_cli.document(*command)["records"]
        mine = [r for r in records if r["route"] == "by_trying"]
        assert len(mine) == (16 if command is on_sizes else 2)
        assert all(r["outcome"] == "solved" and r["rounds"] >= 2 for r in mine)
    shown = run_cli.shown(*again)
    assert "over all problems" in shown
    assert (folder / "times.pdf").read_bytes().startswith(b"%PDF")
