"""The progress bar of long runs, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    title: str, total: int, wanted: bool, finished: int = 0
) -> Iterator[Callable[[int], None]]:
    """Yield what to call with the number of steps done; without effect where no bar is wanted."""
    if not wanted:
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, completed=finished)
        yield lambda steps: bar.advance(task, steps)
