"""Long runs: shared among threads, and shown by a bar or a line on stderr.

The line of `waiting` comes once a verb has been silent for a second.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


Item = TypeVar("Item")
Result = TypeVar("Result")


#: Seconds below which a run shows no bar, and between two of its lines where there is no terminal.
_SHORT, _PAUSE = 1.0, 5.0

#: Bar that is drawn now, if any: a terminal has room for one.
_drawn: list[tuple[Progress, TaskID]] = []


#: Names, by `numba_cache.kernel_name`, of the kernels that may be called from Python, by which
#: those to be compiled are counted; empty if nobody has set them, and too many do no harm.
expected_kernels: tuple[str, ...] = ()


def expect_kernels(kernels: tuple[str, ...]) -> None:
    """Set the kernels that may be called, for as long as the process lives."""
    global expected_kernels
    expected_kernels = kernels


def available_threads() -> int:
    """Number of processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threaded(
    function: Callable[[Item], Result], items: Sequence[Item], num_threads: int, name: str
) -> Iterator[Result]:
    """Results of the function for all items, in order; of several errors the first is raised."""
    workers = min(num_threads, len(items))
    if workers <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix=name) as pool:
        try:
            yield from pool.map(function, items)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def map_rows(
    function: Callable[[int], Result], num_rows: int, num_threads: int, name: str
) -> list[Result]:
    """Results function(0), ..., function(num_rows - 1), see `threaded`."""
    return list(threaded(function, range(num_rows), num_threads, name))


@contextmanager
def progress_bar(
    title: str, total: int, wanted: bool | None, finished: int = 0
) -> Iterator[Callable[..., None]]:
    """Yield a function that takes the number of steps done; it does nothing without a bar.

    It also takes their tokens, of which the bar then shows how many come a second; steps with 0
    tokens were done in an earlier run: they count neither for the speed nor for the estimate of the
    end. None: wanted on a terminal, if it takes longer than a second. It goes when it is done.
    """
    if not isinstance(wanted, bool | None):
        from mdsd_opt.base.checked import check_truth  # which imports numpy: a start is without

        check_truth(progress=wanted)
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda steps, tokens=None: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    speed = TextColumn("{task.fields[speed]}")
    doing = TextColumn("{task.description}", markup=False)
    columns = (doing, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), speed)
    began = shown = time.monotonic()
    done = 0
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, transient=console.is_terminal)
    task = bar.add_task(title, total=total, completed=finished, speed="")
    with _shown(bar, task, _SHORT if wanted is None else 0.0):

        def advance(steps: int, tokens: int | None = None) -> None:
            nonlocal began, shown, done, finished
            if tokens == 0:
                finished += steps
                began = time.monotonic()
                bar.reset(task, completed=finished)  # forgets the speed, too
                return
            bar.advance(task, steps)
            if tokens is not None:
                done += tokens
                bar.update(task, speed=f"{done / (time.monotonic() - began):,.1f} tokens/s")
            if not console.is_terminal and time.monotonic() - shown > _PAUSE:
                shown = time.monotonic()
                console.print(bar.get_renderable())

        yield advance


@contextmanager
def _shown(bar: Progress, task: TaskID, after: float) -> Iterator[None]:
    """Draw a bar after so many seconds."""

    def draw() -> None:
        bar.start()
        _drawn.append((bar, task))

    timer = Timer(after, draw)
    timer.daemon = True
    if after > 0.0:
        timer.start()
    else:
        draw()
    try:
        yield
    finally:
        timer.cancel()
        if after > 0.0:
            timer.join()
        if (bar, task) in _drawn:
            _drawn.remove((bar, task))
            bar.stop()


def line_of(doing: str, terminal: TextIO) -> Progress:
    """Line with the current work and its seconds: not drawn yet, and wiped when it stops."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    line = Progress(
        *columns, console=Console(file=terminal), transient=True,
        redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip
    line.add_task(doing, total=None)
    return line


@contextmanager
def working(doing: str, wanted: bool | None = None) -> Iterator[Callable[[str], None]]:
    """Show the current work where nobody knows how long it takes; yield what changes the words.

    A line on stderr, with the seconds that have passed, which goes when it is done; where a bar is
    drawn, its title. None: wanted on a terminal.
    """
    if _drawn:
        bar, task = _drawn[-1]
        title = bar.tasks[bar.task_ids.index(task)].description
        bar.update(task, description=doing, refresh=True)
        try:
            yield lambda text: bar.update(task, description=text)
        finally:
            bar.update(task, description=title)
        return
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda text: None
        return
    with line_of(doing, sys.stderr) as line:
        line.refresh()
        yield lambda text: line.update(line.task_ids[0], description=text)


@contextmanager
def told_after(seconds: float, text: str) -> Iterator[None]:
    """Write a line to stderr if the block takes longer than so many seconds."""
    timer = Timer(seconds, lambda: print(text, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
