"""An engineer's pipeline: asserts for pytest, JUnit's file, and what `make` is told."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support.recorded_reports import RecordedChains

import mdsd_opt as mo
from mdsd_opt.cli.audits import TestCase, save_junit

ROOT = Path(__file__).parents[2]

PROBLEM = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 2))

#: A right rule, and the README's mistake.
SOURCE = """
import numpy as np

def verify(p, q, drafts, positive=np.maximum):
    tokens = []
    for i, x in enumerate(drafts):
        if np.random.random() * q[i, x] >= p[i, x]:
            left = positive(p[i] - q[i], 0)
            left = left / left.sum()
            return [*tokens, int(np.random.choice(left.size, p=left))]
        tokens.append(int(x))
    return [*tokens, int(np.random.choice(p.shape[1], p=p[-1]))]

def wrong(p, q, drafts):
    return verify(p, q, drafts, lambda left, _: np.abs(left))
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rules_of_ci.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_pipeline_sees_the_verdict_as_a_test(
    rules: Path, run_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command of the page's workflow, with what audits of a right and a wrong rule say."""
    page = (ROOT / "docs/tutorials/audit.md").read_text()
    command = re.search(r"run: mdsd-opt (audit chain .*)", page)
    assert command is not None
    arguments = command[1].split()
    for function, code in (("verify", 0), ("wrong", 1)):
        audit = RecordedChains(is_right=function == "verify")
        monkeypatch.setattr("mdsd_opt.auditing.audit_chain", audit)
        given = [x.replace("my_rules:verify", f"rules_of_ci:{function}") for x in arguments]
        done = run_cli(*given)
        assert done.returncode == code, done.stdout + done.stderr
        (call,) = audit.calls
        assert call["verify"].__name__ == function
        suite = ElementTree.parse(rules / "lossless.xml").getroot().find("testsuite")
        assert suite is not None
        (case,) = suite.iter("testcase")
        assert suite.get("failures") == str(code)
        assert f"rules_of_ci:{function}" in case.attrib["name"]
        assert (case.find("failure") is not None) == bool(code)
        assert "verdict:" in (case.findtext("system-out") or "")


def test_undecided_is_an_error_and_any_text_is_xml(tmp_path: Path) -> None:
    cases = [TestCase("a<&>\x00b", 3, "not judged", [("row", "\x1b]]>")]), TestCase("c", 0, "")]
    save_junit(tmp_path / "x.xml", cases)
    root = ElementTree.parse(tmp_path / "x.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "0", "1")
    assert [case.get("name") for case in root.iter("testcase")] == ["a<&>?b", "c"]


@pytest.mark.parametrize("method", [name for name, x in mo.methods().items() if x.exact])
def test_optimal_solutions_pass_and_others_are_told(method: str) -> None:
    solution = mo.solve(PROBLEM, method)
    certificate = mo.assert_optimal(PROBLEM, solution)
    assert certificate.lower == pytest.approx(0.86)
    with pytest.raises(AssertionError, match="exceeds the proven upper bound"):
        mo.assert_optimal(PROBLEM, replace(solution, acceptance_rate=0.9))


def test_a_bound_is_not_an_optimum() -> None:
    solution = mo.solve(PROBLEM)
    nothing = replace(
        solution, subset=None, selection=None, status=mo.Status.BOUND, lower_bound=0.0,
        upper_bound=1.0, proof=None, plan=None, acceptance_rate=0.0,
    )  # fmt: skip
    with pytest.raises(AssertionError, match=r"between 0 and 1, which leaves 1 open"):
        mo.assert_optimal(PROBLEM, nothing)
    low = replace(solution, acceptance_rate=0.8, status=mo.Status.BOUND, lower_bound=0.0)
    with pytest.raises(AssertionError, match=r"acceptance_rate 0\.8 is not the optimum"):
        mo.assert_optimal(PROBLEM, low)


def test_dir_shows_public_names_alone() -> None:
    names = dir(mo)
    assert {*mo.__all__, "plots", "solvers", "__version__"} <= {*names}
    assert not {"Any", "TYPE_CHECKING", "annotations", "importlib"} & {*names}
    assert all(hasattr(mo, name) for name in names)


def test_which_torch_is_not_ignored_in_silence() -> None:
    def dry(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "--dry-run", "--always-make", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    refused = dry("install", "EXTRAS=plot", "TORCH=torch==2.6")
    assert refused.returncode != 0
    assert "TORCH=torch==2.6 is for EXTRAS with models or serving" in refused.stderr
    for extras in ("models", "serving plot"):
        assert "'torch==2.6'" in dry("install", f"EXTRAS={extras}", "TORCH=torch==2.6").stdout
    assert dry("install", "EXTRAS=plot").returncode == 0
