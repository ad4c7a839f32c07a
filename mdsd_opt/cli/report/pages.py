"""A view as one HTML file: tables and picture in it, nothing fetched from anywhere."""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from mdsd_opt._version import __version__
from mdsd_opt.base.files import atomic_write, check_writable
from mdsd_opt.cli.view import Section, View, new_figure
from mdsd_opt.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: Widest that a picture is shown.
_PIXELS_AN_INCH = 100

_SUFFIXES = (".html", ".htm")


def check_page_path(path: str | os.PathLike[str]) -> None:
    """Raise unless a page can be made, and written there."""
    if Path(path).suffix.lower() not in _SUFFIXES:
        raise InvalidInput(f"--report is {path}: give a name that ends in .html")
    check_writable(path)
    _template()
    new_figure()


def save_page(path: str | os.PathLike[str], view: View) -> None:
    """Write a view as a page that begins with what was found."""
    findings = view.findings or [part for part in view.conclusion if isinstance(part, str)]
    sections = [
        {
            "heading": part.heading,
            "text": part.text,
            "labelled": part.values,
            "table": _table(part.table, view.title) if isinstance(part.table, Table) else None,
        }
        for part in (*view.conclusion, *view.tables)
        if isinstance(part, Section) and part.heading is not None
    ]
    page = _template().render(
        title=view.title,
        findings=findings,
        verdict={True: "PASS", False: "FAIL", None: ""}[view.verdict],
        svg=_svg(view.figure.draw()) if view.figure else "",
        shows=view.figure.shows if view.figure else "",
        sections=sections,
        version=__version__,
        command=shlex.join(["mdsd-opt", *sys.argv[1:]]),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    with atomic_write(path) as file:
        file.write(page.encode())


def _table(table: Table, page_title: str) -> dict[str, Any]:
    """What a terminal is shown, without what the title of the page says already."""
    cells = [[Text.from_markup(str(cell)).plain for cell in x.cells] for x in table.columns]
    title = str(table.title or "").splitlines()
    return {
        "title": "\n".join(line for line in title if line not in page_title),
        "caption": str(table.caption or ""),
        "columns": [
            (str(x.header).replace("\n", " "), x.justify == "right") for x in table.columns
        ],
        "rows": [
            (line, row.end_section)
            for line, row in zip(zip(*cells, strict=True), table.rows, strict=True)
        ],
    }


def _svg(figure: Figure) -> str:
    """A picture with its letters as outlines, so that no font is needed."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "path"}):
        figure.savefig(file, format="svg")
    whole = file.getvalue().decode("utf-8")
    drawn = whole[whole.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r' (?:width|height)="[\d.]+pt"', "", drawn, count=2)
    width = _PIXELS_AN_INCH * figure.get_figwidth()
    return f'<svg style="width: 100%; max-width: {width:.0f}px"{drawn[4:]}'


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
