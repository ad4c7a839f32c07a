"""How verbs speak: tables to stdout, remarks to stderr."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.table import Table


def show_table(table: Table, keys: int = 1, file: TextIO | None = None) -> None:
    """Print a table at its natural width; on a terminal that is too narrow, in parts that fit.

    Every part repeats the first `keys` columns. The title stands above all of them and the caption
    below, as broad as the terminal. The file is stdout unless given.
    """
    from rich.console import Console

    from mdsd_opt.cli.report.fitting import natural_width, parts_that_fit

    file = file or sys.stdout
    title, caption = table.title, table.caption
    table = copy(table)  # a page may show the same one
    table.title = table.caption = None
    if title:
        say(title, file)
    width = None if file.isatty() else natural_width(table)
    console = Console(width=width, file=file, highlight=False, emoji=False)
    for part in parts_that_fit(table, console.width, keys):
        console.print(part)
    if caption:
        say(caption, file)


def show_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print labels and what is said under each; a terminal breaks lines between words."""
    width = max(len(label) for label, _ in rows)
    if not sys.stdout.isatty():
        for label, value in rows:
            print(f"{label:<{width}}  {value}")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(Text(label), Text(value))
    Console(highlight=False, emoji=False).print(grid)


def say(text: object, file: TextIO | None = None) -> None:
    """Print prose, to stdout unless given; a terminal breaks lines between words."""
    file = file or sys.stdout
    if not file.isatty():
        print(text, file=file)
        return
    from rich.console import Console

    Console(file=file, highlight=False, emoji=False, markup=False).print(str(text))


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
