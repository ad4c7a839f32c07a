"""A line where nothing is said for long, and nothing of it where something is."""

from __future__ import annotations

import io
import sys
import time

import pytest
from support.fake_terminal import Terminal

from mdsd_opt.base import long_runs as module
from mdsd_opt.base.long_runs import waiting


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> tuple[Terminal, io.StringIO]:
    """In place of stderr, and a pipe in place of stdout."""
    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", pipe)
    monkeypatch.setattr(module, "_SILENCE", 0.05)
    monkeypatch.setattr(module, "_LOOK", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    return terminal, pipe


def until(condition: str, terminal: Terminal) -> bool:
    """Whether the text comes within a minute."""
    deadline = time.monotonic() + 60
    while condition not in terminal.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition in terminal.getvalue()


def test_a_line_comes_and_goes_with_the_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, pipe = a_terminal(monkeypatch)
    with waiting("rates"):
        assert until("rates", terminal)
        print("a result")
        assert terminal.getvalue().endswith("\x1b[2K")  # it has been wiped
        assert pipe.getvalue() == "a result\n"
    assert (sys.stderr, sys.stdout) == (terminal, pipe)


def test_a_line_that_has_begun_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, _ = a_terminal(monkeypatch)
    with waiting("decode"):
        print("Once upon", end="")
        time.sleep(0.3)
        assert "decode" not in terminal.getvalue()
        print(" a time")
        assert until("decode", terminal)


def test_a_pipe_is_not_touched(capsys: pytest.CaptureFixture[str]) -> None:
    streams = sys.stdout, sys.stderr
    with waiting("rates"):
        assert (sys.stdout, sys.stderr) == streams
        time.sleep(0.1)
    assert capsys.readouterr() == ("", "")
