"""A bound on work that no clock is read for: the lines of the package that a block runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import mdsd_opt

PACKAGE = str(Path(mdsd_opt.__file__).parent)
#: Kernels are compiled in the first process that needs them: that is no part of any answer.
COMPILING = str(Path(PACKAGE, "base", "numba_cache.py"))


class Counted:
    """Number of lines that have run."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.lines = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        return self.line if name.startswith(PACKAGE) and name != COMPILING else None

    def line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.lines += event == "line"
        if self.lines > self.most:
            raise AssertionError(f"more than {self.most:,} lines: {frame.f_code.co_qualname}")
        return self.line


@contextmanager
def few_lines(most: int = 20_000) -> Iterator[Counted]:
    """A block, threads that it starts among it, fails once the package has run more lines.

    What takes long is begun by a loop of Python, an array that no memory holds, or a kernel that
    does not come back: the first ends here, the others end the test as they are. A slow machine
    runs the same lines.
    """
    counted = Counted(most)
    before, in_threads = sys.gettrace(), threading.gettrace()
    threading.settrace(counted)
    sys.settrace(counted)
    try:
        yield counted
    finally:
        sys.settrace(before)
        threading.settrace(in_threads)  # type: ignore[arg-type]
