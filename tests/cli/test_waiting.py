"""A line where nothing is said for long, and nothing of it where something is."""

from __future__ import annotations

import io
import sys
import threading

import pytest
from support.fake_terminal import Terminal
from support.until import until

from mdsd_opt.base import long_runs as module
from mdsd_opt.base.long_runs import waiting


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> tuple[Terminal, io.StringIO]:
    """In place of stderr, and a pipe in place of stdout; any silence is long enough."""
    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", pipe)
    monkeypatch.setattr(module, "_SILENCE", -1.0)
    monkeypatch.setattr(module, "_LOOK", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    return terminal, pipe


class Looks(threading.Event):
    """Is over after so many looks, between which no time passes."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_line_comes_and_goes_with_the_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, pipe = a_terminal(monkeypatch)
    with waiting("rates"):
        until(lambda: "rates" in terminal.getvalue())
        monkeypatch.setattr(module, "_SILENCE", 1e9)  # it does not come again
        print("a result")
        assert terminal.getvalue().endswith("\x1b[2K")  # it has been wiped
        assert pipe.getvalue() == "a result\n"
    assert (sys.stderr, sys.stdout) == (terminal, pipe)


def test_a_line_that_has_begun_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, _ = a_terminal(monkeypatch)
    line = module._Line("decode", terminal)
    line.heard("Once upon")
    line.watch(Looks(3))
    assert terminal.getvalue() == ""
    line.heard(" a time\n")
    line.watch(Looks(1))
    line.hide()
    assert "decode" in terminal.getvalue()


def test_a_silence_that_is_short_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, _ = a_terminal(monkeypatch)
    monkeypatch.setattr(module, "_SILENCE", 1e9)
    module._Line("rates", terminal).watch(Looks(3))
    assert terminal.getvalue() == ""


def test_a_pipe_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = a_terminal(monkeypatch)[1], io.StringIO()
    monkeypatch.setattr(sys, "stderr", streams[1])
    before = {*threading.enumerate()}  # one of another test may be about to end
    with waiting("rates"):
        assert (sys.stdout, sys.stderr) == streams
        assert "waiting" not in {thread.name for thread in {*threading.enumerate()} - before}
