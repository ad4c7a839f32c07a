"""Output of verbs: tables to stdout, as broad as the terminal, remarks to stderr."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

from mdsd_opt.base.foreign import foreign
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from mdsd_opt.base.frames import Table


def parted(table: Table) -> list[tuple[list[str], bool]]:
    """Cells of each line, and whether it ends a part: there the first cell is written once."""
    lines = table.cells()
    ends = [table.grouped and a[0] != b[0] for a, b in pairwise(lines)] + [False] * bool(lines)
    again = [table.grouped and a[0] == b[0] for a, b in pairwise(lines)]
    for line, is_again in zip(lines[1:], again, strict=True):
        if is_again:
            line[0] = ""
    return [*zip(lines, ends, strict=True)]


def rich_table(table: Table) -> RichTable:
    """The table for a terminal, without title and caption."""
    from rich.markup import escape
    from rich.table import Table as RichTable

    made = RichTable()
    for column in table.shown:
        made.add_column(column.heading or column.key, justify="left" if column.is_text else "right")
    for cells, ends_part in parted(table):
        made.add_row(*map(escape, cells), end_section=ends_part)
    return made


#: Width in which no line of a table is broken that could be whole.
_UNBOUNDED = 10_000

#: Standard output, while a verb runs: what code that is not ours prints goes elsewhere.
_results: list[TextIO] = []


@contextlib.contextmanager
def to_results() -> Iterator[None]:
    """Print to standard output in this block, or function, of a verb."""
    if _results and _results[-1].closed:
        raise InvalidInput("code that is not of mdsd_opt closed standard output: leave it open")
    with contextlib.redirect_stdout(_results[-1] if _results else sys.stdout):
        yield


class _Beside:
    """Standard output for what is no result: standard error, which nobody can close here."""

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


@contextlib.contextmanager
def verb_running() -> Iterator[None]:
    """Run a verb: code that is not ours ends no program there, and prints no results."""
    with foreign("code that is not of mdsd_opt"):
        _results.append(sys.stdout)
        sys.stdout = cast(TextIO, _Beside())
        try:
            yield
        finally:
            _results.pop()


def show_table(table: Table, file: TextIO | None = None) -> None:
    """Print a table, of its columns those that have room, and a line on the others.

    There is room for the width of a terminal, else for `COLUMNS`, 80 unless that is set. The file
    is stdout unless given.
    """
    file = file or sys.stdout
    console = console_of(file)
    first = table.first()
    fitting = that_fit(first, console.width)
    if table.title:
        say(table.title, file)
    console.print(rich_table(fitting))
    if table.beyond:
        say(f"{table.beyond} more: --all, --csv or --json has them", file)
    if left := table.headings[len(fitting.columns) :]:
        say(f"no room here for: {'; '.join(left)} (COLUMNS=200, --csv or --json has them)", file)
    if table.caption:
        say(table.caption, file)


def console_of(file: TextIO, width: int | None = None) -> Console:
    """Console of rich that leaves it to `main` what is done where the reader (head) has gone.

    Rich's own ends the program, with the exit code of a negative verdict.
    """
    from rich.console import Console

    console = Console(width=width, file=file, highlight=False, emoji=False)
    console.on_broken_pipe = _reader_gone  # type: ignore[method-assign]
    return console


def _reader_gone() -> NoReturn:
    raise BrokenPipeError


@to_results()
def show_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print labels with the text under each; a terminal breaks lines between words."""
    width = max(len(label) for label, _ in rows)
    if not sys.stdout.isatty():
        for label, value in rows:
            print(f"{label:<{width}}  {value}")
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(Text(label), Text(value))
    console_of(sys.stdout).print(grid)


@to_results()
def say(text: object, file: TextIO | None = None) -> None:
    """Print prose, to stdout unless given; a terminal breaks lines between words."""
    file = file or sys.stdout
    if not file.isatty():
        print(text, file=file)
        return
    console_of(file).print(str(text), markup=False)


def look_here_for_modules() -> None:
    """Let ``module:attribute`` name a file in the current folder."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def remark(text: Any) -> None:
    """Print one line to stderr."""
    print(f"mdsd-opt: {text}", file=sys.stderr)


@contextlib.contextmanager
def warnings_as_remarks() -> Iterator[None]:
    """Print every warning of the block as one line to stderr, once."""
    with warnings.catch_warnings():
        warnings.simplefilter("once")
        warnings.showwarning = lambda message, *_, **__: remark(message)
        yield


@contextlib.contextmanager
def notices_afterwards() -> Iterator[None]:
    """Hold back what is written to stderr in the block: no notice in the middle of a text."""
    held = io.StringIO()
    try:
        with contextlib.redirect_stderr(held):
            yield
    finally:
        print(held.getvalue(), end="", file=sys.stderr, flush=True)


def that_fit(table: Table, width: int) -> Table:
    """The table with the columns that have room; its first ones, and at least one."""
    whole, kept = rich_table(table), table.shown
    measure = console_of(sys.stdout, _UNBOUNDED).measure
    while len(kept) > 1 and measure(whole).maximum > width:
        kept = kept[:-1]
        whole = rich_table(replace(table, columns=kept))
    return replace(table, columns=kept)
