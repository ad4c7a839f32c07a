"""Reports as one HTML file: tables and pictures in it, nothing fetched from anywhere."""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdsd_opt._version import __version__
from mdsd_opt.base.files import atomic_write, check_writable
from mdsd_opt.cli.report.pictures import new_figure
from mdsd_opt.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

#: Widest that a picture is shown.
_PIXELS_AN_INCH = 100

_SUFFIXES = (".html", ".htm")


@dataclass(frozen=True, slots=True)
class PageTable:
    """Cells as text; which columns stand to the right, and which lines end a part."""

    title: str
    caption: str
    headings: Sequence[str]
    numbers: Sequence[bool]
    rows: Sequence[Sequence[str]]
    ends: Sequence[bool]

    @classmethod
    def of(cls, table: Table) -> PageTable:
        """What a terminal is shown."""
        from rich.text import Text

        cells = [[Text.from_markup(str(cell)).plain for cell in x.cells] for x in table.columns]
        return cls(
            str(table.title or ""),
            str(table.caption or ""),
            [str(column.header).replace("\n", " ") for column in table.columns],
            [column.justify == "right" for column in table.columns],
            list(zip(*cells, strict=True)),
            [row.end_section for row in table.rows],
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing as SVG, and what it shows in words."""

    svg: str
    shows: str

    @classmethod
    def of(cls, figure: Figure, shows: str) -> Picture:
        """Letters as outlines, so that no font is needed."""
        import matplotlib

        file = io.BytesIO()
        with matplotlib.rc_context({"svg.fonttype": "path"}):
            figure.savefig(file, format="svg")
        whole = file.getvalue().decode("utf-8")
        drawn = whole[whole.index("<svg") :]
        drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
        drawn = re.sub(r' (?:width|height)="[\d.]+pt"', "", drawn, count=2)
        width = _PIXELS_AN_INCH * figure.get_figwidth()
        return cls(f'<svg style="width: 100%; max-width: {width:.0f}px"{drawn[4:]}', shows)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report: any of text, labelled values, a picture, a table."""

    heading: str = ""
    text: str = ""
    values: Sequence[tuple[str, str]] = ()
    picture: Picture | None = None
    table: PageTable | None = None


def check_page_path(path: str | os.PathLike[str]) -> None:
    """Raise unless a report can be written there: better said before the numbers are computed.

    Raises
    ------
    InvalidInput
        The name does not end in .html, or the file cannot be written.
    MissingExtra
        Jinja or matplotlib is not installed.
    """
    if Path(path).suffix.lower() not in _SUFFIXES:
        raise InvalidInput(f"--report is {path}: give a name that ends in .html")
    check_writable(path)
    _template()
    new_figure()


def save_page(
    path: str | os.PathLike[str], title: str, findings: Sequence[str], sections: Sequence[Section]
) -> None:
    """Write a report that begins with what was found.

    Parameters
    ----------
    path : path
    title : str
    findings : sequence of str
        The conclusions, above everything else.
    sections : sequence of Section
    """
    page = _template().render(
        title=title,
        findings=findings,
        sections=sections,
        version=__version__,
        command=shlex.join(["mdsd-opt", *sys.argv[1:]]),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    with atomic_write(path) as file:
        file.write(page.encode())


def _template() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtra.of("Jinja", "report", "the report") from error
    loader = jinja2.PackageLoader("mdsd_opt", "cli/report")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html.jinja")
