"""Functions that take milliseconds a call: a fault comes first, and what is right is not in doubt.

The clock moves by the calls alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.chain_verifiers import limit_laws, mistaken, residual, standard
from support.moved_clock import Clock, moved_clock  # noqa: F401
from support.reused_states import verifier

import mdsd_opt as mo

WRONG = {
    "residual clamped at 1e-4": mistaken(left=lambda p, q, x: np.maximum(p - q, 1e-4)),
    "argmax of the residual": mistaken(
        left=lambda p, q, x: np.eye(p.size)[np.argmax(residual(p, q))]
    ),
    "bonus from q": mistaken(bonus=lambda p, q: q[-1]),
}


@pytest.mark.parametrize("milliseconds", [10, 50])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_fault_of_a_slow_function_is_found_at_once(
    wrong: str, milliseconds: int, clock: Clock
) -> None:
    began = clock.now
    report = mo.audit_chain(clock.slow(WRONG[wrong], milliseconds / 1_000))
    assert report.verdict_class == "lossy", report.verdict
    assert clock.now < began + 30.0


@pytest.mark.parametrize("wrong", WRONG)
def test_a_fault_is_found_where_the_limit_is_given(wrong: str, clock: Clock) -> None:
    began = clock.now
    report = mo.audit_chain(clock.slow(WRONG[wrong], 0.001), seconds=20)
    assert report.verdict_class == "lossy", report.verdict
    assert clock.now < began + 30.0


@pytest.mark.parametrize("milliseconds", [10, 50])
def test_what_is_right_is_told_what_it_needs(milliseconds: int, clock: Clock) -> None:
    began = clock.now
    report = mo.audit_chain(clock.slow(standard, milliseconds / 1_000))
    assert report.answer() == "TOO WEAK", report.verdict
    assert clock.now < began + 60.0
    (told,) = [note for note in report.notes if note.startswith("the time was up")]
    assert "minutes at the speed of this function: give seconds=" in told
    needed = float(told.rpartition("seconds=")[2])
    assert needed > 50_000 * milliseconds / 1_000
    said = mo.evidence.Bar().told(report)
    assert told in said
    assert "times as long" not in said


def test_a_limit_that_is_long_enough_changes_nothing(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_laws(monkeypatch, "random", "reversed")
    function = clock.slow(WRONG["bonus from q"], 1e-6)
    free, limited = (
        mo.audit_chain(function, num_trials=500, seconds=seconds) for seconds in (None, 3_600)
    )
    assert [x.report.method for x in free.tried] == [x.report.method for x in limited.tried]
    assert limited.tried[0].report.method == "driven"
    assert limited.verdict == free.verdict


def test_a_limit_leaves_laws_out_and_says_which(clock: Clock) -> None:
    report = mo.audit_chain(clock.slow(standard, 0.05), seconds=30)
    assert report.clean
    assert not report.lossless
    assert report.detectable_bias == 1.0
    tried = {one.law for one in report.tried}
    (told,) = [note for note in report.notes if note.startswith("not tried: ")]
    left = told.removeprefix("not tried: ").split(", ")
    assert left
    assert not tried.intersection(left)


def stopping(verify: Callable[..., Any], at: int) -> tuple[list[int], Callable[..., Any]]:
    """The function, which the user stops in a call, and the number of its calls in a list."""
    calls = [0]

    def stopped(*given: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            os.kill(os.getpid(), signal.SIGINT)
        return verify(*given)

    return calls, stopped


@pytest.fixture
def handles() -> Iterator[Callable[[Any], None]]:
    """Function that sets the handler of Ctrl-C for a test."""
    before = signal.getsignal(signal.SIGINT)
    yield lambda handler: signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("wrong", [False, True])
def test_ctrl_c_gives_the_verdict_so_far(wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_laws(monkeypatch, "random", "reversed")
    verify = WRONG["argmax of the residual"] if wrong else standard
    calls, stopped = stopping(verify, 5_000)
    report = mo.audit_chain(stopped, num_trials=1_000, driven_checks=5)
    assert report.answer() == ("FAIL" if wrong else "TOO WEAK"), report.verdict
    assert any(note.startswith("stopped by you after ") for note in report.notes)
    assert calls[0] < 6_000

    calls[0] = 4_999
    with pytest.raises(KeyboardInterrupt):  # nothing was seen
        mo.audit_chain(stopped, num_trials=1_000)


def test_a_line_off_a_terminal_says_how_far_it_is(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    mo.audit_chain(clock.slow(standard, 0.05), seconds=40)
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 4
    assert all(line.startswith("audit: ") and " calls in " in line for line in lines)
    mo.audit_chain(clock.slow(standard, 0.05), seconds=20, progress=False)
    assert not capsys.readouterr().err


one_token = verifier(left=residual)
clamped = verifier(left=lambda p, q: np.maximum(p - q, 1e-4))
absolute = verifier(left=lambda p, q: np.abs(p - q))


def test_a_fault_of_single_decisions_is_found_at_once(clock: Clock) -> None:
    began = clock.now
    report = mo.audit_portfolio(clock.slow(clamped, 0.01), num_drafts=1)
    assert report.verdict_class == "lossy", report.verdict
    assert clock.now < began + 20.0


def test_single_decisions_that_are_right_are_told_what_they_need(clock: Clock) -> None:
    began = clock.now
    report = mo.audit_portfolio(clock.slow(one_token, 0.01), num_drafts=1)
    assert report.answer() == "TOO WEAK", report.verdict
    assert clock.now < began + 45.0
    assert "minutes at the speed of this function: give seconds=" in mo.evidence.Bar().told(report)


@pytest.mark.parametrize("verify", [one_token, absolute], ids=["right", "wrong"])
def test_ctrl_c_gives_the_verdict_on_single_decisions_so_far(verify: Any, clock: Clock) -> None:
    calls, stopped = stopping(verify, 16_000)
    few: Any = {"num_drafts": 1, "method": "sampling", "num_trials": 4_000, "edge_probes": 0}
    report = mo.audit_portfolio(stopped, **few)
    assert report.answer() == ("FAIL" if verify is absolute else "TOO WEAK"), report.verdict
    assert any(note.startswith("stopped by you after ") for note in report.notes)
    calls[0] = 15_999
    with pytest.raises(KeyboardInterrupt):  # nothing was seen
        mo.audit_portfolio(stopped, **few)


STOPPED = """
import os, signal
import numpy as np
calls = 0

def verify(p, q, drafts):
    global calls
    calls += 1
    if calls == int(os.environ["STOPPED_AT"]):
        os.kill(os.getpid(), signal.SIGINT)
    for n, x in enumerate(drafts):
        if np.random.random() * q[n, x] >= p[n, x]:
            left = p[n] if "WRONG" in os.environ else np.maximum(p[n] - q[n], 0)
            return [*drafts[:n], np.random.choice(left.size, p=left / left.sum())]
    return [*drafts, np.random.choice(p.shape[1], p=p[-1])]
"""


@pytest.mark.parametrize(
    ("at", "wrong", "code"), [(20, {}, 130), (3_000, {}, 3), (3_000, {"WRONG": "1"}, 1)]
)
def test_the_exit_code_after_ctrl_c_is_that_of_the_verdict(
    at: int, wrong: dict[str, str], code: int, tmp_path: Path
) -> None:
    (tmp_path / "stopped.py").write_text(STOPPED)
    command = "from mdsd_opt.cli import main; main()", "audit", "chain", "stopped:verify"
    paths = {"PYTHONPATH": str(Path(mo.__file__).parents[1]), "STOPPED_AT": str(at)}
    done = subprocess.run(
        [sys.executable, "-c", *command], cwd=tmp_path, env={**os.environ, **paths, **wrong},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert ("stopped by you after" in done.stdout) == (code != 130)
    assert "Traceback" not in done.stderr


PROBLEM = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 1))


def test_a_fault_on_one_problem_is_found_at_once(clock: Clock) -> None:
    began = clock.now
    report = mo.audit(clock.slow(absolute, 0.01), PROBLEM)
    assert report.verdict_class == "lossy", report.verdict
    assert clock.now < began + 20.0


def test_the_time_that_is_told_on_one_problem_ends_in_a_pass(clock: Clock) -> None:
    few: Any = {"num_trials": 3_000, "detect": 0.1}
    began = clock.now
    short = mo.audit(clock.slow(one_token, 0.05), PROBLEM, **few)
    assert short.answer() == "TOO WEAK", short.verdict
    assert clock.now < began + 22.0
    told = mo.evidence.Bar(0.1).told(short)
    assert "minutes at the speed of this function: give seconds=" in told
    limit = float(told.partition("give seconds=")[2].partition(";")[0])
    began = clock.now
    long = mo.audit(clock.slow(one_token, 0.05), PROBLEM, seconds=limit, **few)
    assert long.answer() == "PASS", long.verdict
    assert clock.now < began + limit
    assert not any(note.startswith("the time was up") for note in long.notes)


class Compiled:
    """A handler of Ctrl-C that ours cannot call, as that of cysignals is."""

    def __call__(self, number: int, frame: Any) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("handler", [signal.default_int_handler, Compiled()])
@pytest.mark.parametrize("verify", [one_token, absolute], ids=["right", "wrong"])
def test_ctrl_c_gives_the_verdict_on_one_problem_so_far(
    verify: Any, handler: Any, handles: Callable[[Any], None]
) -> None:
    handles(handler)
    calls, stopped = stopping(verify, 3_000)
    report = mo.audit(stopped, PROBLEM, method="sampling")
    assert report.answer() == ("FAIL" if verify is absolute else "TOO WEAK"), report.verdict
    assert report.notes[-1] == "stopped by you after 3,000 calls"
    assert 2_900 < report.num_trials < 3_000
    calls[0] = 2_980
    with pytest.raises(KeyboardInterrupt):  # nothing was seen
        mo.audit(stopped, PROBLEM, method="sampling")


def filtered(p: Any, q: Any, drafts: Any) -> Any:
    """The target is filtered as promised, the draft is not."""
    kept = np.where(p >= np.sort(p)[:, -2:-1], p, 0)
    return standard(kept / kept.sum(axis=1, keepdims=True), q, drafts)


def test_the_cause_is_found_by_calls_however_long_they_take(clock: Clock) -> None:
    report = mo.audit_chain(clock.slow(filtered, 0.01), promise=mo.Sampling(top_k=2))
    assert report.verdict_class == "lossy"
    assert report.cause.startswith("the draft is not filtered as was promised")


def test_few_calls_of_a_slow_function_are_made_beyond_the_limit(clock: Clock) -> None:
    began = clock.now
    mo.audit_portfolio(clock.slow(one_token, 0.05), num_drafts=1, seconds=5)
    assert clock.now - began < 5 + 0.05 * 150
