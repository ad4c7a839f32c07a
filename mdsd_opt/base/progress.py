"""The progress bar of long runs, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    title: str, total: int, wanted: bool, finished: int = 0
) -> Iterator[Callable[[int], None]]:
    """Yield what to call with the number of steps done; without effect where no bar is wanted."""
    with token_progress_bar(title, total, wanted, finished) as advance:
        yield lambda steps: advance(steps, None)


@contextmanager
def token_progress_bar(
    title: str, total: int, wanted: bool, finished: int = 0
) -> Iterator[Callable[[int, int | None], None]]:
    """`progress_bar`, called with steps and tokens done, which also shows tokens a second.

    Steps with 0 tokens were done in an earlier run: they count neither for the speed nor for the
    estimate of the end. None: tokens are not counted.
    """
    if not wanted:
        yield lambda steps, tokens: None
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
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), speed)
    began = time.monotonic()
    done = 0
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, completed=finished, speed="")

        def advance(steps: int, tokens: int | None) -> None:
            nonlocal began, done, finished
            if tokens == 0:
                finished += steps
                began = time.monotonic()
                bar.reset(task, completed=finished)  # forgets the speed, too
                return
            bar.advance(task, steps)
            if tokens is not None:
                done += tokens
                bar.update(task, speed=f"{done / (time.monotonic() - began):,.1f} tokens/s")

        yield advance
