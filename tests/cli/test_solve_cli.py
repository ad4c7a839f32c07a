"""mdsd-opt solve: subset, plan, dual, sizes, backends and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt import plots

P, Q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]


@pytest.fixture
def three(tmp_path: Path) -> Path:
    mo.save_problem(mo.TransportProblem(P, mo.WithReplacement(Q, 2)), tmp_path / "three.json")
    return tmp_path / "three.json"


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    laws = [rng.dirichlet(np.ones(6)) for _ in range(3)]
    problem = mo.TransportProblem(rng.dirichlet(np.ones(6)), mo.IndependentDrafts(laws))
    mo.save_problem(problem, tmp_path / "wide.json")
    return tmp_path / "wide.json"


def test_evidence_is_shown_and_proves_the_rate(run_cli: Any, three: Path) -> None:
    done = run_cli("solve", three, "--plan", "--dual", "--subset", "--json")
    rows = {row["method"]: row for row in json.loads(done.stdout)["methods"]}
    plan, dual = rows["full_lp"]["plan"], rows["full_lp"]["dual"]
    assert sum(arc["mass"] for arc in plan) == pytest.approx(0.86)
    law = mo.load_problem(three).drafts.support_law()
    masses = dict(zip(law.sets(), law.mass.tolist(), strict=True))
    worth = np.dot(P, dual["tokens"])
    worth += sum(masses[tuple(x["drafts"])] * x["price"] for x in dual["sets"])
    assert worth == pytest.approx(0.86)
    assert rows["subset_selection"]["subset"] == [1, 2]
    assert "plan" not in rows["subset_selection"]
    plain = json.loads(run_cli("solve", three, "--json").stdout)
    assert not {"plan", "dual", "subset"} & plain["methods"][1].keys()
    table = run_cli("solve", three, "--plan", "--dual", "--subset").stdout
    assert "plan of full_lp" in table
    assert "{0, 1}" in table


def test_each_size_and_the_backend_have_a_row(run_cli: Any, wide: Path) -> None:
    asked = ("solve", wide, "--size", "1-2,6", "--backend", "highs", "--json")
    found = json.loads(run_cli(*asked).stdout)["methods"]
    of_sizes = [row for row in found if row["method"] == "truncated_lp"]
    assert [row["options"]["size"] for row in of_sizes] == [1, 2, 6]
    problem = mo.load_problem(wide)
    for row in of_sizes:
        size = row["options"]["size"]
        expected = mo.solve(problem, "truncated_lp", size=size).acceptance_rate
        assert row["acceptance_rate"] == pytest.approx(expected)
    (lp,) = (row for row in found if row["method"] == "full_lp")
    assert lp["options"] == {"backend": "highs"}
    bad = run_cli("solve", wide, "--backend", "glpk", "--method", "full_lp")
    assert "unknown backend 'glpk'" in bad.stdout


def test_pictures_are_a_region_or_a_plan(run_cli: Any, three: Path, wide: Path) -> None:
    pytest.importorskip("matplotlib")
    for path in (three, wide):
        picture = path.with_suffix(".svg")
        done = run_cli("solve", path, "--plot", picture)
        assert done.returncode == 0, done.stderr
        assert "<svg" in picture.read_text()
    assert run_cli.refusal("solve", wide, "--method", "submodular", "--plot", "x.png")
    assert not Path("x.png").exists()


def test_the_region_is_drawn_where_the_optimum_is_one() -> None:
    pytest.importorskip("matplotlib")
    problem = mo.TransportProblem(P, mo.WithReplacement(Q, 2))
    axes = plots.plan(problem)
    red = [[1.0, 0.0, 0.0, 1.0]]
    (border,) = (x for x in axes.collections if x.get_edgecolor().tolist() == red)
    height = np.sqrt(3) / 2
    points = np.concatenate([path.vertices for path in border.get_paths()])[::7]
    for x, y in points:
        p = np.array([0.0, x - y / height / 2, y / height])
        p[0] = 1 - p.sum()
        rate = mo.solve(mo.TransportProblem(np.clip(p, 0, 1), mo.WithReplacement(Q, 2)))
        assert rate.acceptance_rate == pytest.approx(1.0, abs=0.02)


def test_a_heat_map_shows_the_masses_of_the_plan() -> None:
    pytest.importorskip("matplotlib")
    solution = mo.solve(mo.TransportProblem(P, mo.WithReplacement(Q, 2)), "full_lp")
    axes = plots.plan(solution)
    (image,) = axes.images
    drawn = np.ma.filled(image.get_array(), 0.0)
    assert drawn == pytest.approx(solution.plan.matrix(3))
    assert [x.get_text() for x in axes.get_yticklabels()][3] == "{0, 1}"
    with pytest.raises(mo.MdsdError, match="has no plan"):
        plots.plan(mo.solve(mo.TransportProblem(P, mo.WithReplacement(Q, 2))))
    with pytest.raises(mo.MdsdError, match="three tokens, not 2"):
        plots.plan(mo.TransportProblem([0.5, 0.5], mo.WithReplacement([0.5, 0.5], 2)))


def test_a_tolerance_goes_to_those_that_take_one(run_cli, three):
    by_name = {
        row["method"]: row
        for row in run_cli.document("solve", three, "--tolerance", "1e-5")["methods"]
    }
    assert by_name["full_lp"]["status"] == "optimal"


def test_what_the_published_rule_loses_at_most_stands_in_the_table(run_cli, three):
    chosen = ("--method", "truncated_lp", "--size", "2")
    published = run_cli("solve", three, *chosen, "--rule", "published").stdout
    assert "bound, loses" in published
    assert "published, size 2," in published
    assert "loses" not in run_cli("solve", three, *chosen).stdout
    refused = run_cli("solve", three, *chosen, "--rule", "other")
    assert "unknown rule 'other'" in refused.stdout + refused.stderr
