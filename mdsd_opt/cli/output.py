"""How verbs speak: tables to stdout, remarks to stderr."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


def show_table(table: Table, keys: int = 1) -> None:
    """Print a table at its natural width; on a terminal that is too narrow, in parts that fit.

    Every part repeats the first `keys` columns.
    """
    from rich.console import Console

    from mdsd_opt.report.fitting import natural_width, parts_that_fit

    if not sys.stdout.isatty():
        width = max(120, natural_width(table))
        Console(width=width, highlight=False, emoji=False).print(table)
        return
    console = Console(highlight=False, emoji=False)
    for part in parts_that_fit(table, console.width, keys):
        console.print(part)


def look_here_for_modules() -> None:
    """Let ``module:attribute`` name a file in the folder where the user stands."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def remark(text: Any) -> None:
    """One line to stderr."""
    print(f"mdsd-opt: {text}", file=sys.stderr)


@contextlib.contextmanager
def warnings_as_remarks() -> Iterator[None]:
    """Every warning meanwhile is one line to stderr, once."""
    with warnings.catch_warnings():
        warnings.simplefilter("once")
        warnings.showwarning = lambda message, *_, **__: remark(message)
        yield


@contextlib.contextmanager
def notices_afterwards() -> Iterator[None]:
    """Hold back what is written to stderr meanwhile: no notice in the middle of a text."""
    held = io.StringIO()
    try:
        with contextlib.redirect_stderr(held):
            yield
    finally:
        print(held.getvalue(), end="", file=sys.stderr, flush=True)
