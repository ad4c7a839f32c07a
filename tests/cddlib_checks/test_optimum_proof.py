"""Proofs of an optimum that leave the package: a reader of its own takes them, no changed one."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import mdsd_opt as mo
from mdsd_opt import cddlib_checks

READER = Path(__file__).parents[2] / "examples" / "check_optimum.py"
P = [Fraction(x, 20) for x in (10, 6, 3, 1)]
Q = [Fraction(x, 10) for x in (2, 3, 5, 0)]

SCHEMES = {
    "with": mo.WithReplacement(Q, 2),
    "without": mo.WithoutReplacement(Q, 3),
    "more than there are": mo.WithoutReplacement(Q, 4),
    "independent": mo.IndependentDrafts([Q, P]),
    "one token": mo.WithReplacement([1], 2),
}


def checked(document: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "proof.json"
    path.write_text(json.dumps(document))
    command = [sys.executable, "-I", str(READER), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_reader_of_its_own_takes_the_proof(name: str, tmp_path: Path) -> None:
    drafts = SCHEMES[name]
    problem = mo.TransportProblem([1] if drafts.vocab_size == 1 else P, drafts)
    document = cddlib_checks.optimum_proof(problem)
    assert Fraction(document["acceptance_rate"]) == cddlib_checks.optimum(problem)
    done = checked(document, tmp_path)
    assert (done.returncode, done.stdout) == (0, f"proved: {document['acceptance_rate']}\n")


def test_schemes_that_it_does_not_know_are_on_trust(tmp_path: Path) -> None:
    document = cddlib_checks.optimum_proof(mo.TransportProblem(P, mo.GreedyDrafts(Q, 2)))
    assert "if the draft sets are right" in checked(document, tmp_path).stdout


def changed() -> dict[str, Any]:
    """Ways to change a proof, each of which makes it none."""

    def plus(x: str) -> str:
        return str(Fraction(x) + Fraction(1, 1000))

    def of(name: str, place: int, at: int) -> Any:
        return lambda d: d[name][place].__setitem__(at, plus(d[name][place][at]))

    return {
        "a larger rate": lambda d: d.update(acceptance_rate=plus(d["acceptance_rate"])),
        "a mass of the plan": of("plan", 0, 2),
        "a mass of a draft set": of("draft_sets", 0, 1),
        "a token of the target": lambda d: d["target"].__setitem__(0, plus(d["target"][0])),
        "another subset": lambda d: d.update(subset=[0]),
        "no plan": lambda d: d.update(plan=[]),
        "a draft set left out": lambda d: d["draft_sets"].pop(),
        "a token that is no draft": lambda d: d["plan"][0].__setitem__(
            1, next(i for i in range(4) if i not in d["plan"][0][0])
        ),
        "another draft": lambda d: d["drafts"].update(q=["3/10", "2/10", "1/2", "0"]),
        "another number of drafts": lambda d: d["drafts"].update(num_drafts=3),
    }


@pytest.mark.parametrize("name", changed())
def test_no_changed_proof_is_taken(name: str, tmp_path: Path) -> None:
    whole = cddlib_checks.optimum_proof(mo.TransportProblem(P, SCHEMES["with"]))
    document = copy.deepcopy(whole)
    changed()[name](document)
    assert document != whole
    done = checked(document, tmp_path)
    assert (done.returncode, done.stderr) == (1, "NOT proved\n"), done.stdout


def test_the_reader_is_short_and_imports_nothing_of_ours() -> None:
    text = READER.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    assert "import mdsd_opt" not in text
    assert "from mdsd_opt" not in text


def test_the_command_line_writes_it(run_cli: Any, tmp_path: Path) -> None:
    mo.save_problem(mo.TransportProblem(P, SCHEMES["without"]), tmp_path / "p.json")
    proof = tmp_path / "proof.json"
    chosen = ("--method", "subset_selection", "--proof", proof)
    run_cli.shown("solve", tmp_path / "p.json", *chosen)
    assert checked(json.loads(proof.read_text()), tmp_path).returncode == 0
