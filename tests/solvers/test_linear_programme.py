"""Programmes for solvers of one's own: what they hold, write, and come to elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from scipy.optimize import linprog
from support import oracles
from support.loops import of_each
from support.strategies import Case, cases

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName, UnsupportedScheme
from mdsd_opt.solvers import TransportLP, linear_programme
from mdsd_opt.solvers.export import FORMS
from mdsd_opt.solvers.linear_programmes import names_of

#: Those of the optimum, whatever the drafts.
OF_ALL = ("primal", "dual", "tuples")


def law(vocab_size: int, seed: int) -> np.ndarray:
    return np.random.default_rng([vocab_size, seed]).dirichlet(np.ones(vocab_size))


def problem(vocab_size: int = 5, num_drafts: int = 2) -> mo.TransportProblem:
    drafts = mo.WithReplacement(law(vocab_size, 1), num_drafts)
    return mo.TransportProblem(law(vocab_size, 0), drafts)


def by_scipy(programme: TransportLP) -> float:
    """Acceptance rate by another front end; its tolerance is absolute, so masses are scaled."""
    lp, factor = programme.scaled()
    found = linprog(lp.c, lp.A_ub, lp.b_ub, lp.A_eq, lp.b_eq, lp.bounds, method="highs")
    assert found.status == 0
    return programme.acceptance_rate(found.fun / factor)


@pytest.mark.parametrize("form", OF_ALL)
@settings(max_examples=25)
@given(case=cases(max_vocab=4))
def test_random_rationals_of_every_scheme(form: str, case: Case) -> None:
    """Ties, zeros, equal laws, one token and more drafts than tokens among them."""
    assume(case.problem.drafts.count_tuples() <= 2500)
    optimum = oracles.optimum_over_subsets(case.target, case.law)
    programme = linear_programme(case.problem, form)
    assume(programme.c.size > 0)  # SciPy refuses a programme without variables
    assert by_scipy(programme) == pytest.approx(float(optimum), abs=1e-9)
    assert len({*names_of(programme.columns)}) == programme.c.size == programme.A_ub.shape[1]
    assert len({*names_of(programme.rows)}) == programme.b_ub.size == programme.A_ub.shape[0]


@of_each(num_drafts=(2, 3), size=(1, 3, 6), rule=("ratio", "published"))
def test_the_truncated_programme_is_that_of_the_last_stage(
    num_drafts: int, size: int, rule: str
) -> None:
    for drafts in (
        mo.WithReplacement(law(6, 1), num_drafts),
        mo.IndependentDrafts([law(6, k) for k in range(1, num_drafts + 1)]),
    ):
        one = mo.TransportProblem(law(6, 0), drafts)
        programme = mo.linear_programme(one, "truncated", size=size, rule=rule)
        found = mo.solve(one, "truncated_lp", size=size, rule=rule)
        assert by_scipy(programme) == pytest.approx(found.acceptance_rate, abs=1e-9)
        assert programme.rows == list(found.stats["tokens"])
    pair = linear_programme(problem(), "pair")
    assert by_scipy(pair) == pytest.approx(mo.solve(problem()).acceptance_rate, abs=1e-9)


def test_an_entry_of_every_kind_by_hand() -> None:
    p, q = [0.5, 0.5], [0.25, 0.75]
    one = mo.TransportProblem(p, mo.WithReplacement(q, 2))
    primal, dual = linear_programme(one), linear_programme(one, "dual")
    assert primal.columns == dual.rows == [((0,), 0), ((1,), 1), ((0, 1), 0), ((0, 1), 1)]
    assert primal.rows == dual.columns == [0, 1, (0,), (1,), (0, 1)]
    incidence = [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]]
    assert primal.A_ub.toarray().tolist() == incidence
    assert dual.A_ub.toarray().tolist() == (-np.array(incidence).T).tolist()
    assert primal.b_ub.tolist() == dual.c.tolist() == [0.5, 0.5, 0.0625, 0.5625, 0.375]
    assert primal.A_eq is primal.b_eq is None


def read_by_highs(path: Path) -> float:
    """Value of a file that HiGHS reads, in a process of its own, as OR-tools has a HiGHS, too."""
    code = f"""
import highspy
highs = highspy.Highs()
highs.setOptionValue("output_flag", False)
for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
    highs.setOptionValue(name, 1e-10)
assert highs.readModel({str(path)!r}) == highspy.HighsStatus.kOk
highs.run()
print(repr(highs.getInfo().objective_function_value), highs.getLp().col_names_[0])
"""
    return value_of(code)


def value_of(code: str) -> float:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout.splitlines()[-1].split()[0])


@pytest.mark.parametrize("suffix", ["mps", "lp"])
@of_each(form=(*FORMS, "truncated"))
def test_a_file_comes_to_the_same_where_highs_reads_it(
    suffix: str, form: str, tmp_path: Path
) -> None:
    one = problem(4)
    programme = linear_programme(one, form)
    path = tmp_path / f"{form}.{suffix}"
    programme.save(path)
    best = mo.solve(one).acceptance_rate
    assert programme.acceptance_rate(read_by_highs(path)) == pytest.approx(best, abs=1e-9)


@pytest.mark.skipif(not find_spec("ortools"), reason="OR-tools is not installed")
def test_a_file_comes_to_the_same_by_pdlp(tmp_path: Path) -> None:
    one = problem(6, 3)
    programme = linear_programme(one)
    programme.save(tmp_path / "x.mps")
    code = f"""
from ortools.linear_solver import pywraplp
from ortools.linear_solver.python import model_builder
model = model_builder.Model()
assert model.import_from_mps_file({str(tmp_path / "x.mps")!r})
solver = model_builder.Solver("PDLP")
assert solver.solver_is_supported()
assert solver.solve(model) == model_builder.SolveStatus.OPTIMAL
print(repr(solver.objective_value))
"""
    value = programme.acceptance_rate(value_of(code))
    assert value == pytest.approx(mo.solve(one).acceptance_rate, abs=1e-5)


@pytest.mark.skipif(not find_spec("clarabel"), reason="CLARABEL is not installed")
@of_each(form=("primal", "dual", "truncated"))
def test_cvxpy_comes_to_the_same(form: str) -> None:
    pytest.importorskip("cvxpy")
    one = problem(5, 3)
    programme = linear_programme(one, form)
    value = programme.acceptance_rate(programme.to_cvxpy().solve(solver="CLARABEL"))
    known = "truncated_lp" if form == "truncated" else "full_lp"
    assert value == pytest.approx(mo.solve(one, known).acceptance_rate, abs=1e-6)


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'primal'"):
        mo.linear_programme(problem(), "prime")
    with pytest.raises(InvalidInput, match="has no option 'size': max_variables, max_bytes"):
        mo.linear_programme(problem(), "dual", size=3)
    with pytest.raises(InvalidInput, match="needs K = 2"):
        mo.linear_programme(problem(4, 3), "pair")
    with pytest.raises(ProblemTooLarge, match=r"62\.5 trillion variables and 62\.5 PB"):
        mo.linear_programme(problem(50_000, 3))
    with pytest.raises(UnsupportedScheme, match="two independent drafts"):
        mo.linear_programme(mo.TransportProblem([1.0], mo.TopKDrafts([1.0], 1)), "truncated")
    for name, told in (("x.txt", r"'\.txt': give a name in \.mps or \.lp"), ("no/x.mps", "no")):
        with pytest.raises(InvalidInput, match=told):
            mo.linear_programme(problem()).save(tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_the_command_line_writes_it(tmp_path: Path, run_cli: Any) -> None:
    one = problem(3)
    mo.save_problem(one, tmp_path / "one.json")
    path = tmp_path / "one.mps"
    asked = ("solve", tmp_path / "one.json", "--method", "subset_selection", "--json")
    done = run_cli(*asked, "--export", path, "--export-form", "dual")
    assert done.returncode == 0
    assert f"wrote {path}: dual, 9 rows, 9 columns" in done.stderr
    (row,) = json.loads(done.stdout)["methods"]
    assert read_by_highs(path) == pytest.approx(row["acceptance_rate"], abs=1e-9)
    refused = run_cli.refusal(*asked, "--export", tmp_path / "one.txt")
    assert "give a name in .mps or .lp" in refused
