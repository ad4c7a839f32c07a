"""Claims in processes of their own: deadlines, memory, errors, and what such a process imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from math import factorial
from pathlib import Path

import pytest

import mdsd_opt as mo
from mdsd_opt import cddlib_checks
from mdsd_opt.cddlib_checks import OutOfBudget, cones, double_description, provers, run_in_child
from mdsd_opt.errors import SolverError, UnknownName


def test_acceptance_one_with_given_drafts_lists_the_facets():
    result = cddlib_checks.check(
        "acceptance_one", vocab_size=3, num_drafts=2, draft=["1/2", "1/3", "1/6"], facets=True
    )
    assert result.holds is True
    assert [str(facet) for facet in result.facets] == [
        "p0 >= 1/4",
        "p1 >= 1/9",
        "p2 >= 1/36",
        "p0 + p1 >= 25/36",
        "p0 + p2 >= 4/9",
        "p1 + p2 >= 1/4",
    ]


def test_importing_the_package_does_not_import_an_engine():
    code = (
        "import sys; from mdsd_opt import cddlib_checks; cddlib_checks.conjectures();"
        "assert not {name.split('.')[0] for name in sys.modules} & {'cdd', 'ppl'}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=_environment())


def test_no_engine_leaves_the_processor_rounding_upwards():
    code = (
        "from mdsd_opt.cddlib_checks import with_cddlib, with_ppl; rows = [(0, 1), (1, -1)];"
        "[engine.generators(rows) for engine in (with_cddlib, with_ppl)];"
        "one, tiny = map(float, ('1', '1e-18')); assert one + tiny == one == one - tiny"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=_environment())


#: Would go on for days: who gets an error has not waited for the end.
HARD = {"vocab_size": 9, "sizes": list(range(1, 10))}


def test_time_runs_out_inside_cddlib():
    with pytest.raises(OutOfBudget, match="time ran out after 2 s"):
        run_in_child(cones.acceptance_cone, HARD, timeout=2)


def test_memory_runs_out():
    with pytest.raises(OutOfBudget, match="memory ran out"):
        run_in_child(_fill_memory, {}, timeout=60, memory=2**30)


def test_so_little_memory_that_no_library_is_loaded_is_told() -> None:
    result = cddlib_checks.check("acceptance_one", vocab_size=3, num_drafts=2, memory=1000)
    assert result.holds is None
    assert "memory ran out" in result.reason


def test_what_is_settled_for_all_drafts_does_not_wait_for_given_ones() -> None:
    result = cddlib_checks.check("acceptance_one", vocab_size=8, num_drafts=8, timeout=1000)
    assert result.holds
    assert "every q, every K" in result.scope
    # its 40,320 vertices take far longer than the cone
    assert result.reason == "polytope of given drafts: not waited for, as this is settled"


def test_undecided_results_say_why():
    result = cddlib_checks.check("optimal_value", vocab_size=12, num_drafts=9, timeout=1.5)
    assert result.holds is None
    assert "time ran out" in result.reason


def test_what_runs_out_of_time_leaves_what_is_proven(monkeypatch):
    def run(job, arguments, timeout, **options):
        if arguments["job"] is provers.projection:
            raise OutOfBudget("time ran out after 3 s")
        return run_in_child(job, arguments, timeout=timeout, **options)

    monkeypatch.setattr("mdsd_opt.cddlib_checks.checking.run_in_child", run)
    result = cddlib_checks.check("projection", vocab_size=5, num_drafts=4, facets=True)
    assert result.holds is True
    assert result.reason == "elimination of the plan: time ran out after 3 s"
    assert result.sizes["vertices"] == factorial(5)
    assert "plan_variables" not in result.sizes


@pytest.mark.skipif(not double_description.available("ppl"), reason="needs PPL")
def test_time_and_memory_run_out_inside_ppl():
    hard = {"vocab_size": 11, "sizes": list(range(1, 12))}
    job = {"engine": "ppl", "job": cones.acceptance_cone, "arguments": hard}
    with pytest.raises(OutOfBudget, match="time ran out after 3 s"):
        run_in_child(double_description.run_with, job, timeout=3)
    unit = [[int(i == j) for j in range(20)] for i in range(20)]
    cube = [(0, *row) for row in unit] + [(1, *(-x for x in row)) for row in unit]
    job = {"engine": "ppl", "job": double_description.vertices, "arguments": {"rows": cube}}
    with pytest.raises(OutOfBudget, match="memory ran out"):
        run_in_child(double_description.run_with, job, timeout=100, memory=400 * 2**20)


def test_errors_of_the_child_come_back():
    with pytest.raises(SolverError, match="the claimed polyhedron is unbounded"):
        run_in_child(double_description.vertices, {"rows": [(0, 1)]}, timeout=30)
    with pytest.raises(SolverError, match="ended with code -9"):
        run_in_child(_die, {}, timeout=30)
    with pytest.raises(UnknownName, match="kept"):
        run_in_child(_raise_own, {}, timeout=30)


def test_what_a_child_prints_does_no_harm():
    assert run_in_child(_print_much, {}, timeout=30) == "fine"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are listed in /proc")
def test_interrupt_ends_the_child_too():
    arguments = ["check", "acceptance_one", "--vocab-size", "8", "-k", "8", "--timeout", "300"]
    code = "from mdsd_opt.cli import main; main()"
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], env=_environment())
    from support.until import until  # not there where a child imports this file

    children = until(lambda: _children_at_work(process.pid))
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


#: A script without a guard, with a job of its own, which a module may hold as well.
SCRIPT = """
from mdsd_opt.cddlib_checks import run_in_child
def job(n):
    return n + 1
class Text(str):
    pass
import unguarded
run_in_child(WHAT, timeout=60)
"""


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("job, {'n': 1}", "does not know what a script defines: put it into a module"),
        ("len, {'obj': Text('V')}", "does not know what a script defines: put it into a module"),
        ("unguarded.job, {'n': 1}", "put the call under if __name__ == '__main__'"),
    ],
)
def test_a_script_without_a_guard_is_told_what_to_do(tmp_path, what, expected):
    script = tmp_path / "unguarded.py"
    call = SCRIPT.replace("WHAT", what)
    script.write_text(call if "unguarded." in what else call.replace("import unguarded", ""))
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=_environment(), capture_output=True, text=True
    )
    assert expected in done.stderr
    assert "ended with code" not in done.stderr


def _children_at_work(pid):
    """The processes that it has started, once one of them has loaded an engine."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    loaded = [Path(f"/proc/{child}/maps").read_text() for child in found]
    return any("cdd" in text or "ppl" in text for text in loaded) and [int(x) for x in found]


def _environment():
    return {**os.environ, "PYTHONPATH": str(Path(mo.__file__).parents[1])}


def _fill_memory():
    return len(bytearray(2**31))


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _raise_own():
    raise UnknownName("kept")


def _print_much():
    print("x" * 10**6)
    print("y" * 10**6, file=sys.stderr)
    return "fine"
