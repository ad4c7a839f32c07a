"""Bars, and lines of what takes nobody knows how long."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from support.fake_terminal import Terminal

from mdsd_opt.base import long_runs
from mdsd_opt.base.long_runs import progress_bar, working


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In place of stderr; not a fixture, as pytest puts its own there before each test."""
    said = Terminal()
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return said


class AtOnce:
    """In place of a timer: does what it is for when it starts."""

    def __init__(self, seconds: float, draw: Callable[[], None]) -> None:
        self.start, self.join, self.cancel = draw, lambda: None, lambda: None


def test_work_is_named_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with working("compiling, once: rates [of rows]"):
        pass
    assert "compiling, once: rates [of rows]" in terminal.getvalue()


def test_nothing_is_drawn_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with working("compiling"):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_bar_that_is_drawn_tells_it_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with progress_bar("rows", 3, wanted=True) as advance:
        advance(1)
        with pytest.raises(ZeroDivisionError), working("compiling"):
            raise ZeroDivisionError
        terminal.truncate(0)
        advance(2)
    assert "rows" in terminal.getvalue()
    assert "compiling" not in terminal.getvalue()


def test_a_bar_that_has_ended_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with progress_bar("rows", 1, wanted=True):
        pass
    terminal.truncate(0)
    with working("loading"):
        pass
    assert "loading" in terminal.getvalue()
    assert "rows" not in terminal.getvalue()


def test_a_bar_that_nobody_asked_for_comes_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with progress_bar("rows", 2, wanted=None) as advance:
        advance(2)
    assert terminal.getvalue() == ""
    monkeypatch.setattr(long_runs, "Timer", AtOnce)
    with progress_bar("rows", 2, wanted=None) as advance:
        advance(1)
    assert "rows" in terminal.getvalue()
    assert "1/2" in terminal.getvalue()


def test_a_bar_that_nobody_asked_for_is_not_drawn_into_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(long_runs, "Timer", AtOnce)
    with progress_bar("rows", 2, wanted=None):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_bar_that_is_asked_for_tells_a_log_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(long_runs, "_PAUSE", 0.0)
    with progress_bar("rows", 3, True) as advance:
        advance(1)
        assert "1/3" in capsys.readouterr().err
        monkeypatch.setattr(long_runs, "_PAUSE", 100.0)
        advance(1)
        assert capsys.readouterr().err == ""


def test_a_bar_goes_when_it_is_done(monkeypatch):
    """Of the bars on a terminal none is left: the last that is written wipes the line."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("rates", 3, True) as advance:
        advance(3)
    shown = terminal.getvalue()
    assert "rates" in shown
    assert shown.rstrip("\r\n").endswith("\x1b[2K")
