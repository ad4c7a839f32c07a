"""Results of a verb as a `View`, and its forms: on a terminal, as JSON, CSV or a page.

A page is one HTML file, tables and picture in it; nothing is fetched from anywhere.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from mdsd_opt._version import __version__
from mdsd_opt.base.files import atomic_write, check_writable, write_text
from mdsd_opt.base.frames import as_csv, markdown_table
from mdsd_opt.cli.options import Page, Picture, Printed
from mdsd_opt.cli.output import (
    console_of,
    filled_down,
    remark,
    say,
    show_rows,
    show_table,
    to_results,
)
from mdsd_opt.errors import InvalidInput, MissingExtra, UnknownName

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table
    from rich.tree import Tree


_FORMATS = (".png", ".svg", ".pdf", ".pgf")

#: Settings of matplotlib by the name of a style; fonts of PDF files are embedded as TrueType, those
#: of LaTeX are the document's.
_ALWAYS = {"pdf.fonttype": 42, "ps.fonttype": 42, "pgf.rcfonts": False}
_STYLES: dict[str, dict[str, Any]] = {
    "screen": {},
    "paper": {
        "font.family": "serif",
        "mathtext.fontset": "cm",
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "lines.linewidth": 1.0,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
    },
}

#: Most pixels along a side of a picture.
MOST_PIXELS = 1600

#: Letters per inch in the title of a picture.
_LETTERS_AN_INCH = 16


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """Part of a view: any of prose, labelled values, and a table or tree."""

    heading: str | None = None  # on a page; None for what is for terminals alone
    text: str | None = None  # "" is an empty line
    values: Sequence[tuple[str, str]] = ()
    inline: bool = False  # each value right behind its label, instead of in a column
    table: Table | Tree | None = None
    keys: int = 1  # columns that all parts of a table have which is too wide for a terminal
    in_parts: bool = True  # else only the columns that fit are shown there
    shows: str = ""  # caption of the table in a paper; its title unless given
    beside: Sequence[str] = ()  # headings of columns that a paper has no room for


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """Picture that is drawn when somebody asks for it."""

    draw: Callable[[], Any]  # makes a figure of matplotlib
    shows: str = ""  # under it, on a page
    title: str = ""  # above it, in a file of its own


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Results of a verb, in every form that they can be shown in."""

    title: str = ""  # of a page
    tables: Sequence[Section] = ()
    conclusion: Sequence[str | Section] = ()  # last on a terminal, first on a page
    document: Mapping[str, Any] | str = ""  # as JSON
    figure: Drawing | None = None
    findings: Sequence[str] | None = None  # what a page begins with instead of the conclusion
    verdict: str = ""  # that in a word
    code: int = 0  # and as an exit code, which colours the word
    rows: Sequence[Mapping[str, Any]] = ()  # lines of CSV


@dataclass(frozen=True)
class Form(Printed, Picture):
    """Requested forms of a view; those that cannot be written are refused beforehand."""

    page: Page = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.style not in _STYLES:
            raise UnknownName.among("style", self.style, _STYLES)
        if self.width is not None and not 1 <= self.width <= 40:
            raise InvalidInput(f"--width is {self.width}: give inches from 1 to 40")
        changes = (self.width is not None, self.style != "screen", self.no_title)
        if self.plot is None and any(changes):
            raise InvalidInput("--width, --style and --no-title go with --plot")
        if self.plot is not None:
            check_plot_path(self.plot)
        if self.page is not None:
            check_page_path(self.page)


@to_results()
def present(view: View, form: Printed) -> None:
    """Print a view as tables, JSON or CSV, and save its picture and its page."""
    if form.as_json or form.of_tables:
        suffix = ".json" if form.as_json else ".csv" if form.as_csv else ".md"
        print(as_text(view, ".tex" if form.as_latex else suffix, form.words), end="")
    else:
        for part in (*view.tables, *view.conclusion):
            _show(part)
    if not isinstance(form, Form):
        return
    if form.plot is not None:
        assert view.figure is not None
        save_picture(view.figure, form)
        remark(f"picture saved as {form.plot}")
    if form.page is not None:
        save_page(form.page, view)
        remark(f"report saved as {form.page}")


def save_view(view: View, path: Path) -> None:
    """Save a view as text, a page or a picture, as the end of the name says."""
    suffix = path.suffix.lower()
    if suffix in _FORMATS:
        assert view.figure is not None
        save_picture(view.figure, Form(plot=path))
    elif suffix == ".html":
        save_page(path, view)
    else:
        head = f"# {view.title}\n\n" if suffix == ".md" else ""
        write_text(path, head + as_text(view, suffix))


def check_saved_path(path: Path) -> None:
    """Raise unless a view can be saved there."""
    if path.suffix.lower() in _FORMATS:
        check_plot_path(path)
    elif path.suffix.lower() == ".html":
        check_page_path(path)
    check_writable(path)


def save_picture(drawing: Drawing, form: Form) -> None:
    """Draw and save a picture as `form` says."""
    import matplotlib

    assert form.plot is not None
    with matplotlib.rc_context({**_ALWAYS, **_STYLES[form.style]}):
        figure = drawing.draw()
        if form.width is not None:
            wide, high = figure.get_size_inches()
            figure.set_size_inches(form.width, max(high * form.width / wide, 1.0))
        if drawing.title and not form.no_title:
            lines = drawing.title.splitlines()
            letters = int(_LETTERS_AN_INCH * figure.get_figwidth())
            title = "\n".join(part for line in lines for part in wrap(line, letters))
            figure.suptitle(title, fontsize=8, x=0.01, ha="left")
        dots = min(300.0, MOST_PIXELS / max(figure.get_size_inches()))
        kind = form.plot.suffix[1:].lower()
        with atomic_write(form.plot) as file:
            if kind == "pgf":
                _save_pgf(figure, file)
            else:
                figure.savefig(file, format=kind, dpi=dots)


def _save_pgf(figure: Figure, file: Any) -> None:
    """Save commands for LaTeX, which has to be installed: it measures the letters.

    They ask of a document that it loads pgf, and no more.
    """
    text = io.StringIO()
    try:
        figure.savefig(text, format="pgf")
    except ValueError as error:
        raise InvalidInput(
            f"this picture has parts in pixels, which .pgf cannot hold ({error}): give a name that "
            "ends in .pdf"
        ) from error
    except (RuntimeError, OSError) as error:  # LaTeX is missing, or has failed
        raise InvalidInput(
            f"a picture in .pgf needs LaTeX (xelatex), which measures its letters: {error}. "
            "Give a name that ends in .pdf"
        ) from error
    lines = [line for line in text.getvalue().splitlines() if not line.startswith("%%")]
    assert lines[0] == r"\begingroup%"
    file.write("\n".join([_PGF_HEAD, *lines[1:], ""]).encode())


#: First lines of a picture for LaTeX: in it an underscore is one in text, too.
_PGF_HEAD = r"""% In the preamble: \usepackage{pgf}. Here: \input{THIS FILE}.
\begingroup%
\providecommand{\mathdefault}[1]{#1}%
\catcode`\_=\active%
\begingroup\lccode`\~=`\_\lowercase{\endgroup\def~}{\ifmmode\sb\else\textunderscore\fi}%"""


def as_text(view: View, suffix: str, words: str | None = None) -> str:
    """View as JSON, CSV, Markdown or LaTeX, by the end of a file's name.

    Of several tables, `words` choose the first whose title has all of them.
    """
    from rich.table import Table

    if suffix == ".json":
        document = view.document
        return (document if isinstance(document, str) else as_json(document)) + "\n"
    if suffix == ".csv" and view.rows and words is None:
        return as_csv(view.rows)
    written = {".csv": _csv_table, ".md": _markdown_table, ".tex": _latex_table}[suffix]
    texts: dict[str, str] = {}
    for part in view.tables:
        if isinstance(part.table, Table):
            cells = _cells(part.table, "")
            headings = [heading for heading, _ in cells["columns"]]
            lines = [line for line, _ in cells["rows"]]
            firsts = filled_down(first for first, *_ in lines)
            if lines:
                rows = [[first, *line[1:]] for first, line in zip(firsts, lines, strict=True)]
                title = " ".join(cells["title"].split())
                texts[title] = texts.get(title, "") + written(title, headings, rows, part)
    if words is None:
        return "\n".join(texts.values())
    for title, text in texts.items():
        if all(word in title.lower() for word in words.lower().split()):
            return text
    there = "; ".join(texts) or "none"
    raise InvalidInput(f"--table is {words!r}, which no table's title has. There are: {there}")


def _csv_table(title: str, headings: list[str], rows: list[list[str]], part: Section) -> str:
    lines = ([cell.replace("\n", " ") for cell in row] for row in rows)
    return as_csv([dict(zip(headings, line, strict=True)) for line in lines])


def _markdown_table(title: str, headings: list[str], rows: list[list[str]], part: Section) -> str:
    return f"{title}\n\n{markdown_table(headings, rows)}"


#: Letters with a meaning in LaTeX, and those that pdfLaTeX does not know, each with what shows it.
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "≥": r"$\ge$", "≤": r"$\le$", "†": r"$\dagger$", "‡": r"$\ddagger$",
    "<": r"$<$", ">": r"$>$",
}  # fmt: skip

#: Cells that are mathematics: numbers with their intervals, powers, and the paper's letters.
_NUMBERS = re.compile(r"[-+]?[\d.,]+(e[-+]\d+)?\*?( ?± ?[\d.,]+)?|\[[^]a-z]+\]|[VKpq]")
_POWER = re.compile(r"V\^[-\d.]+|[\d.,]+\^K")


def _latex_cell(text: str) -> str:
    if "\n" in text:
        return r"\shortstack[l]{" + r"\\".join(map(_latex_cell, text.splitlines())) + "}"
    if _POWER.fullmatch(text):
        text = re.sub(r"\^(.*)", r"^{\1}", text)
    elif not _NUMBERS.fullmatch(text):
        return "".join(_LATEX.get(x, x) for x in text)
    text = re.sub(r"e([-+])0*(\d+)", lambda x: rf"\times10^{{{x[1].strip('+')}{x[2]}}}", text)
    text = re.sub(r"(?<=\d),(?=\d)", "{,}", text)
    return f"${text.replace('±', chr(92) + 'pm').replace('*', '^*')}$"


def _latex_table(title: str, headings: list[str], rows: list[list[str]], part: Section) -> str:
    """Table in LaTeX, with the rules of the package booktabs, in the width of a column."""
    kept = [n for n, heading in enumerate(headings) if heading not in part.beside]
    columns = part.table.columns  # type: ignore[union-attr]
    sides = "".join("r" if columns[n].justify == "right" else "l" for n in kept)
    sides = f"@{{}}{sides}@{{}}"

    def line(cells: list[str]) -> str:
        return " & ".join(_latex_cell(cells[n]) for n in kept) + r" \\"

    caption = part.shows or title[:1].upper() + title[1:]
    label = "-".join(re.findall(r"[a-z0-9]+", title.lower())[:_WORDS_OF_A_LABEL])
    return "\n".join(
        [
            f"% {title}",
            r"\begin{table}",
            r"\centering\footnotesize\setlength{\tabcolsep}{2pt}",
            rf"\caption{{{''.join(_LATEX.get(x, x) for x in caption)}.}}",
            rf"\label{{tab:{label}}}",
            rf"\begin{{tabular}}{{{sides}}}",
            r"\toprule",
            line([str(x.header) for x in columns]),
            r"\midrule",
            *map(line, rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


#: Words of a title that the label of its table has.
_WORDS_OF_A_LABEL = 6


def as_json(document: Mapping[str, Any]) -> str:
    """JSON text, readable and without NaN."""
    return json.dumps(document, indent=2, allow_nan=False)


def _show(part: str | Section) -> None:
    if isinstance(part, str):
        say(part)
        return
    if part.text is not None:
        say(part.text)
    if part.inline:
        for label, value in part.values:
            say(f"{label}: {value}")
    elif part.values:
        show_rows(part.values)
    if part.table is None:
        return
    from rich.table import Table

    if isinstance(part.table, Table):
        show_table(part.table, part.keys, in_parts=part.in_parts)
    else:
        console_of(sys.stdout).print(part.table)


def check_plot_path(path: str | os.PathLike[str]) -> None:
    """Raise unless a picture can be drawn and written there."""
    from mdsd_opt.plots import new_figure

    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise InvalidInput(f"cannot draw {path}: give a name that ends in {', '.join(_FORMATS)}")
    check_writable(path)
    new_figure()


#: Pixels per inch at which a picture is shown at most.
_PIXELS_AN_INCH = 100

_PAGES = (".html", ".htm")


def check_page_path(path: str | os.PathLike[str]) -> None:
    """Raise unless a page can be made, and written there."""
    from mdsd_opt.plots import new_figure

    if Path(path).suffix.lower() not in _PAGES:
        raise InvalidInput(f"--report is {path}: give a name that ends in .html")
    check_writable(path)
    _template()
    new_figure()


def save_page(path: str | os.PathLike[str], view: View) -> None:
    """Write a view as a page that begins with the findings."""
    from rich.table import Table

    findings = view.findings or [part for part in view.conclusion if isinstance(part, str)]
    sections = [
        {
            "heading": part.heading,
            "text": part.text,
            "labelled": part.values,
            "table": _cells(part.table, view.title) if isinstance(part.table, Table) else None,
        }
        for part in (*view.conclusion, *view.tables)
        if isinstance(part, Section) and part.heading is not None
    ]
    page = _template().render(
        title=view.title,
        findings=findings,
        verdict=view.verdict,
        tone={0: "good", 1: "bad"}.get(view.code, "open"),
        svg=_svg(view.figure.draw()) if view.figure else "",
        shows=view.figure.shows if view.figure else "",
        sections=sections,
        version=__version__,
        command=shlex.join(["mdsd-opt", *sys.argv[1:]]),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    write_text(path, page)


def _cells(table: Table, page_title: str) -> dict[str, Any]:
    """Cells that a terminal is shown, without what the title of the page already says."""
    from rich.text import Text

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
    """SVG of a picture with its letters as outlines, so that no font is needed."""
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
