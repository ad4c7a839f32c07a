"""A line on a terminal that shows the progress of an audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from mdsd_opt.base.long_runs import line_of


@contextmanager
def running_line(wanted: bool | None, terminal: TextIO) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a line; it does nothing where nobody looks."""
    if wanted is False or (wanted is None and not terminal.isatty()):
        yield lambda text: None
        return
    line = line_of("asking the server what it is", terminal)
    (task,) = line.task_ids
    with line:
        yield lambda text: line.update(task, description=text)
