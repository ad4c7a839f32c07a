"""A line on a terminal that shows the current work once a verb has been silent for a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from mdsd_opt.base.long_runs import line_of

if TYPE_CHECKING:
    from rich.progress import Progress

#: Seconds of silence before the line comes, and between two checks.
_SILENCE, _LOOK = 1.0, 0.25

#: Ends of texts after which the cursor stands at the beginning of a line, where nothing is lost.
_LINE_ENDS = ("\n", "\r", "\x1b[2K", "\x1b[?25h")


class _Stream:
    """Wrapper of a stream that notifies `line` before each write."""

    def __init__(self, stream: TextIO, line: _Line) -> None:
        self._stream = stream
        self._line = line

    def write(self, text: str) -> int:
        self._line.heard(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Line:
    """The line, which goes as soon as anything else is written."""

    def __init__(self, doing: str, terminal: TextIO) -> None:
        self._doing = doing
        self._terminal = terminal
        self._lock = threading.RLock()
        self._shown: Progress | None = None
        self._last = time.monotonic()
        self._is_free = True

    def heard(self, text: str) -> None:
        with self._lock:
            self.hide()
            if text:
                self._last = time.monotonic()
                self._is_free = text.endswith(_LINE_ENDS)

    def hide(self) -> None:
        with self._lock:
            if self._shown is not None:
                self._shown.stop()
                self._shown = None

    def watch(self, is_over: threading.Event) -> None:
        """Show the line whenever it is time, until all is over."""
        while not is_over.wait(_LOOK):
            with self._lock:
                is_silent = time.monotonic() - self._last > _SILENCE
                if self._shown is not None or not is_silent or not self._is_free:
                    continue
                if is_over.is_set():
                    return
                self._shown = line_of(self._doing, self._terminal)
                self._shown.start()


@contextmanager
def waiting(doing: str) -> Iterator[None]:
    """Show the work in progress, with its seconds, after a second of silence."""
    if not sys.stderr.isatty():
        yield
        return
    line, is_over = _Line(doing, sys.stderr), threading.Event()
    streams: tuple[Any, Any] = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Stream(stream, line) for stream in streams)
    threading.Thread(target=line.watch, args=(is_over,), daemon=True, name="waiting").start()
    try:
        yield
    finally:
        is_over.set()
        line.hide()
        sys.stdout, sys.stderr = streams
