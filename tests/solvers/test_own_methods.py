"""A method of one's own: registered, given as it is, by its place, or installed."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.base import installed
from mdsd_opt.errors import InvalidInput, SolverError, UnknownName
from mdsd_opt.solvers import Found, Method, Status
from mdsd_opt.solvers import solving as registry

PROBLEM = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 2))

#: As a user writes one: all subsets, one after another.
SOURCE = '''
from itertools import product
import numpy as np
from mdsd_opt.solvers import Found, Method, Status


def by_trying(problem, *, most=12):
    """Best of all subsets."""
    if problem.vocab_size > most:
        raise ValueError(f"more than {most} tokens")
    subsets = [np.array(x) for x in product([False, True], repeat=problem.vocab_size)]
    best = min(subsets, key=problem.cut_value)
    rate = problem.cut_value(best)
    return Found(acceptance_rate=rate, lower_bound=rate, upper_bound=rate,
                 status=Status.OPTIMAL, subset=best)


METHOD = Method(name="trial", solve=by_trying, purpose="all subsets")
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "own_methods_of_a_test"
    (tmp_path / f"{name}.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry.METHODS, "registered", {})
    installed.plugged_in.cache_clear()
    yield
    installed.plugged_in.cache_clear()


def constant(problem: mo.TransportProblem, rate: float = 1.0) -> Found:
    return Found(acceptance_rate=rate, lower_bound=rate, upper_bound=rate, status=Status.OPTIMAL)


def test_every_way_to_name_a_method_reaches_it(module: str) -> None:
    best = mo.solve(PROBLEM).acceptance_rate
    method = registry.get(f"{module}:METHOD")
    mo.solvers.register(method)
    for given in (f"{module}:METHOD", f"{module}:by_trying", method, "trial", method.solve):
        solution = mo.solve(PROBLEM, given, most=3)
        assert solution.acceptance_rate == pytest.approx(best)
        assert solution.method in ("trial", "by_trying")
        assert mo.certify(PROBLEM, solution).valid
    assert str(mo.methods()["trial"]) == "all subsets."


def test_a_wrong_claim_of_an_own_method_is_told() -> None:
    certificate = mo.certify(PROBLEM, mo.solve(PROBLEM, constant))
    assert not certificate.valid
    assert any("exceeds" in told or "nothing" in told for told in certificate.violations)


def test_a_method_that_is_installed_is_known(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"mdsd_opt.solvers": {"plugged": f"{module}:METHOD"}}
    monkeypatch.setattr("mdsd_opt.base.registry.plugged_in", lambda group: points.get(group, {}))
    assert mo.solve(PROBLEM, "plugged").method == "trial"
    assert "plugged" in mo.methods()


def test_entry_points_are_read_from_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plug-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[mdsd_opt.solvers]\nmine = plug:METHOD\n[mdsd_opt.verifiers]\ntheirs = plug:VERIFIER\n"
        "[mdsd_opt.draft_schemes]\nways = plug_drafts:next_law\n"
    )
    (tmp_path / "plug_drafts.py").write_text("def next_law(q, earlier):\n    return q\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed.plugged_in("mdsd_opt.solvers") == {"mine": "plug:METHOD"}
    assert "theirs" in mo.verifiers.names()
    with pytest.raises(InvalidInput, match="cannot load 'plug:METHOD'"):
        mo.solve(PROBLEM, "mine")
    rates = [
        float(mo.acceptance_rates([[2.0, 0.0]], [[0.0, 2.0]], 2, drafts=scheme)[0])
        for scheme in ("ways", "with_replacement")
    ]
    assert rates[0] == pytest.approx(rates[1])
    mo.drafts.SINGLE_MODEL_SCHEMES.pop("ways")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (3, "give a mdsd_opt.solvers.Method"),
        (lambda problem: None, "has the name '<lambda>'"),
        (Method(solve=constant, name="auto"), "other than 'all' and 'auto'"),
        (Method(solve=lambda: None, name="none"), "cannot be called with one problem"),
        (Method(solve=constant, name="full_lp"), "already"),
        (dict, "give a mdsd_opt.solvers.Method"),
    ],
)
def test_what_is_no_method_is_refused(given: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        mo.solvers.register(given)
    assert not registry.METHODS.registered


def test_what_a_method_gets_and_returns_is_checked() -> None:
    def returns_a_number(problem: mo.TransportProblem) -> Any:
        return 0.86

    with pytest.raises(InvalidInput, match="returns is a float: give a mdsd_opt"):
        mo.solve(PROBLEM, returns_a_number)
    for forged, told in (
        ({"acceptance_rate": math.nan}, "acceptance_rate is nan"),
        ({"acceptance_rate": 2.0}, r"acceptance_rate is 2\.0"),
        ({"upper_bound": "1"}, "upper_bound is 1"),
        ({"subset": "all"}, "subset has dtype"),
        ({"plan": [0.5]}, "the plan is a list"),
        ({"status": "fine"}, "not a Status"),
    ):

        def forges(problem: mo.TransportProblem, forged: Any = forged) -> Found:
            return replace(constant(problem), **forged)

        with pytest.raises(InvalidInput, match=f"'forges' returned a Found that is none: .*{told}"):
            mo.solve(PROBLEM, forges)
        assert repr(replace(mo.solve(PROBLEM), **forged))
    with pytest.raises(InvalidInput, match="no option 'speed'"):
        mo.solve(PROBLEM, constant, speed=3)
    with pytest.raises(UnknownName, match="subset_selection"):
        mo.solve(PROBLEM, "subset_selektion")


def test_bounds_that_the_evidence_proves_take_the_place_of_weaker_claims() -> None:
    def bound_alone(problem: mo.TransportProblem, lower: float = 0.0) -> Found:
        best = mo.solve(problem)
        rate = best.acceptance_rate
        return replace(constant(problem, rate), lower_bound=lower, subset=best.subset)

    solution = mo.solve(PROBLEM, bound_alone)
    certificate = mo.certify(PROBLEM, solution)
    gap = solution.upper_bound - solution.lower_bound
    assert gap == pytest.approx(float(certificate.gap), abs=1e-15)
    assert f"gap={gap:.1e}" in repr(solution)
    assert solution.status is Status.OPTIMAL
    apart = mo.solve(mo.TransportProblem([0.5, 0.5], mo.DraftSetLaw(2, {(0,): 1})), bound_alone)
    assert (apart.lower_bound, apart.status) == (0.0, Status.CONVERGED)  # nothing proves more
    assert not mo.certify(PROBLEM, mo.solve(PROBLEM, bound_alone, lower=0.9)).valid


def test_a_method_that_goes_on_is_stopped() -> None:
    def goes_on(problem: mo.TransportProblem) -> Found:
        while True:
            with suppress(Exception):
                time.sleep(0.01)

    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(SolverError, match=r"'goes_on' did not end within the limit of 0\.2 s"):
        mo.solve(PROBLEM, goes_on, time_limit=0.2)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0

    def looks(problem: mo.TransportProblem, time_limit: float = 1.0) -> Found:
        return replace(constant(problem, time_limit), lower_bound=0.0, status=Status.LIMIT)

    assert mo.solve(PROBLEM, looks, time_limit=0.5).acceptance_rate == 0.5


def test_options_of_any_name_are_passed_on() -> None:
    def takes_all(problem: mo.TransportProblem, **options: Any) -> Found:
        return constant(problem, options["rate"])

    assert mo.solve(PROBLEM, takes_all, rate=0.5).acceptance_rate == 0.5


def test_the_command_line_runs_and_certifies_it(module: str, tmp_path: Path, run_cli: Any) -> None:
    mo.save_problem(PROBLEM, tmp_path / "problem.json")
    (row,) = run_cli.document("solve", "problem.json", "--method", f"{module}:METHOD")["methods"]
    assert row["method"] == "trial"
    assert row["valid"]
    assert row["acceptance_rate"] == pytest.approx(mo.solve(PROBLEM).acceptance_rate)
    wide = mo.TransportProblem(np.full(13, 1 / 13), mo.WithReplacement(np.full(13, 1 / 13), 1))
    mo.save_problem(wide, tmp_path / "wide.json")
    done = run_cli("solve", "wide.json", "--method", f"{module}:METHOD", "--json")
    assert "ValueError: more than 12" in json.loads(done.stdout)["methods"][0]["refused"]
