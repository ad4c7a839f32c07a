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


def show_table(*tables: Table) -> None:
    """Print the first of some tables, widest first, that fits, or the last of them.

    A pipe or file gets a table at its natural width or 120, a terminal at its own.
    """
    from rich.console import Console

    unlimited = Console(width=10_000)
    widths = [unlimited.measure(table).maximum for table in tables]
    if sys.stdout.isatty():
        console = Console(highlight=False, emoji=False)
    else:
        console = Console(width=max(120, widths[-1]), highlight=False, emoji=False)
    fitting = (table for table, width in zip(tables, widths, strict=True) if width <= console.width)
    console.print(next(fitting, tables[-1]))


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
