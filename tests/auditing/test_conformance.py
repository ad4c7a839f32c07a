"""Checks of objects in tests: what is right passes, and what is wrong fails by the right one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.trees import TreeRule, get_rule, rule_names

FEW: dict[str, Any] = {"num_trials": 400, "detect": 1.0}
AUDITS = ["lossless", *(f"lossless_{scheme}" for scheme in mo.drafts.SINGLE_MODEL_SCHEMES)]
SingleDraft: Any = type(mo.verifiers.get("single_draft"))


class TakesAll(SingleDraft):  # type: ignore[misc]
    """Wrong on purpose: every first draft is accepted."""

    name = "takes_all"

    def decide(self, problem: Any, drafts: Any, exact: bool = False) -> Any:
        decision = super().decide(problem, drafts, exact)
        decision.accept[0] = 1.0
        return decision


def takes_the_chain(p: Any, q: Any, drafts: Any, rng: Any) -> list[int]:
    """Wrong on purpose, as a chain."""
    return [*map(int, drafts), int(rng.choice(p.shape[1], p=p[-1]))]


def chain(p: Any, q: Any, drafts: Any, rng: Any) -> list[int]:
    """Right in any precision: masses are summed as they are drawn."""

    def drawn(masses: Any) -> int:
        reached = np.cumsum(masses.astype(np.float64))
        return int(np.searchsorted(reached, rng.random() * reached[-1], side="right"))

    tokens: list[int] = []
    for n, x in enumerate(drafts.tolist()):
        if rng.random() * q[n, x] < p[n, x]:
            tokens.append(x)
        else:
            return [*tokens, drawn(np.maximum(p[n] - q[n], 0))]
    return [*tokens, drawn(p[len(drafts)])]


@mo.parametrize_with_checks([chain, *rule_names()], leave_out=AUDITS, **FEW)  # type: ignore[untyped-decorator]
def test_what_is_right_passes(subject: Any, check: Any) -> None:
    check(subject)


def test_everything_has_checks_with_names() -> None:
    mark = mo.parametrize_with_checks(["rrs", "race", "traversal", chain, TakesAll()])
    named = {case.id for case in mark.mark.args[1]}
    assert named >= {"rrs-lossless_without_replacement", "race-acceptance", "traversal-edge_laws",
                     "chain-precision", "takes_all-same_seed"}  # fmt: skip


class Boasts(SingleDraft):  # type: ignore[misc]
    """Its rate is one, which no decision is."""

    name = "boasts"

    def acceptance_rate(self, problem: Any) -> float:
        return 1.0


class Modest(SingleDraft):  # type: ignore[misc]
    """It leaves out the residual that hits another draft."""

    name = "modest"

    def acceptance_rate(self, problem: Any) -> float:
        return float(np.minimum(problem.target, problem.drafts.q).sum())


class Remembers(SingleDraft):  # type: ignore[misc]
    """Every second call has a token of its own."""

    name = "remembers"
    calls = 0

    def _verify(self, problem: Any, tokens: Any, uniforms: Any) -> Any:
        self.calls += 1
        return super()._verify(
            problem, tokens * (self.calls % 2) + tokens[::-1] * (1 - self.calls % 2), uniforms
        )


class Reads(SingleDraft):  # type: ignore[misc]
    """Drafts are taken modulo V."""

    name = "reads"

    def verify(self, problem: Any, drafts: Any, rng: Any, relax: Any = None) -> Any:
        return super().verify(problem, drafts % problem.vocab_size, rng)


class AtTheEdge(SingleDraft):  # type: ignore[misc]
    """Laws that have no token in common are taken for equal."""

    name = "at_the_edge"

    def decide(self, problem: Any, drafts: Any, exact: bool = False) -> Any:
        decision = super().decide(problem, drafts, exact)
        if not np.minimum(problem.target, problem.drafts.q).any():
            decision.accept[0] = 1.0
        return decision


class Writes(TreeRule):
    """Right, but it clears the target of the root."""

    name = "writes"

    def stops(self, root: Any) -> Any:
        ways = get_rule("traversal").stops(root)
        root.draws[:] = 0
        return ways


def in_place(p: Any, q: Any, drafts: Any, rng: Any) -> list[int]:
    answer = chain(p, q, drafts, rng)
    p[0] -= q[0]
    return answer


def by_choice(p: Any, q: Any, drafts: Any, rng: Any) -> list[int]:
    """`choice` refuses masses whose sum is off by more than their own type could tell."""
    if abs(p[-1].astype(np.float64).sum() - 1.0) > 1e-9 and rng.random() < 0.5:
        raise ValueError("probabilities do not sum to 1")
    return chain(p, q, drafts, rng)


def wraps(p: Any, q: Any, drafts: Any, rng: Any) -> list[int]:
    return chain(p, q, drafts % p.shape[1], rng)


WRONG = [
    (Boasts(), "acceptance", "the optimum"),
    (Modest(), "acceptance", "decisions accept"),
    (Remembers(), "same_seed", "depend on earlier calls"),
    (Reads(), "drafts_out_of_range", "is taken"),
    (AtTheEdge(), "edge_laws", "not the target's"),
    (TakesAll(), "lossless_with_replacement", "NOT LOSSLESS"),
    (Writes(), "inputs_kept", "writes to"),
    (in_place, "inputs_kept", "writes to"),
    (by_choice, "precision", "float32: "),
    (wraps, "drafts_out_of_range", "is taken"),
    (takes_the_chain, "lossless", "NOT LOSSLESS"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("subject", "name", "told"), WRONG, ids=[f"{n}-{x[1]}" for n, x in enumerate(WRONG)]
)
def test_what_is_wrong_fails_by_the_right_check(subject: Any, name: str, told: str) -> None:
    cases = mo.parametrize_with_checks([subject], **FEW).mark.args[1]
    (check,) = [case.values[1] for case in cases if repr(case.values[1]) == name]
    with pytest.raises(AssertionError) as failed:
        check(subject)
    first, *rest = str(failed.value).splitlines()
    assert told in first
    assert len(rest) == 1
    assert rest[0].startswith("example: ")


def test_one_call_runs_all_checks() -> None:
    with pytest.raises(AssertionError, match="acceptance_rate is"):
        mo.check_verifier(Boasts(), **FEW)
    with pytest.raises(AssertionError, match="writes to"):
        mo.check_tree_rule(Writes(), **FEW)


TESTS = """
import pytest
import mdsd_opt as mo

def takes_all(p, q, drafts):
    p[0] *= 1.0
    return [*map(int, drafts), 0]

def fails(p, q, drafts):
    raise RuntimeError("out of order")

FUNCTIONS = [takes_all, fails, lambda p, q, drafts: None, lambda p: [0]]

@mo.parametrize_with_checks(FUNCTIONS, num_trials=400)
def test_checks(subject, check):
    check(subject)

@pytest.mark.parametrize("verify", FUNCTIONS)
def test_lossless(verify):
    mo.assert_lossless(verify, num_trials=400)
"""


def test_a_failure_in_pytest_takes_two_lines(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TESTS)
    code = "import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-rN']))"
    environment = {**os.environ, "PYTHONPATH": str(Path(mo.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    (_, *failures) = re.split(r"^_+ (test_\S+) _+$", done.stdout, flags=re.MULTILINE)
    assert len(failures[::2]) >= 20
    for name, told in zip(failures[::2], failures[1::2], strict=True):
        lines = [line for line in told.splitlines() if line.startswith("E  ")]
        assert 1 <= len(lines) <= 2, (name, told)
    assert "mdsd_opt/" not in done.stdout, done.stdout
    assert not re.search("Captured std(out|err)", done.stdout)
