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
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from mdsd_opt._version import __version__
from mdsd_opt.base.files import atomic_write, check_writable, write_text
from mdsd_opt.base.frames import Result, Table, as_csv, as_one_line
from mdsd_opt.cli.output import (
    console_of,
    parted,
    remark,
    say,
    show_rows,
    show_table,
    to_results,
)
from mdsd_opt.errors import InvalidInput, MissingExtra, UnknownName

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.tree import Tree


_FORMATS, _PAGES = (".png", ".svg", ".pdf", ".pgf"), (".html", ".htm")
_TEXTS = (".json", ".csv", ".md", ".tex")
_ENDS = ", ".join((*_TEXTS, _PAGES[0], *_FORMATS))

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
    """Part of a view that is no table: any of prose, labelled values, and a tree."""

    heading: str | None = None  # on a page; None for what is for terminals alone
    text: str | None = None  # "" is an empty line
    values: Sequence[tuple[str, str]] = ()
    inline: bool = False  # each value right behind its label, instead of in a column
    tree: Tree | None = None


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
    tables: Sequence[Section | Table] = ()
    conclusion: Sequence[str | Section | Table] = ()  # first on a page
    document: Result | str = ""  # as JSON
    figure: Drawing | None = None
    findings: Sequence[str] | None = None  # what a page begins with instead of the conclusion
    verdict: str = ""  # that in a word
    code: int = 0  # and as an exit code, which colours the word
    rows: Sequence[Mapping[str, Any]] = ()  # lines of CSV in place of the first table
    rows_are_all: bool = False  # these are all of CSV, as the tables are made of them
    decides: bool = False  # the conclusion is first on a terminal, too, and not last

    @property
    def all_tables(self) -> list[Table]:
        """Tables, without what stands between them; those of the document where there are none."""
        shown = [part for part in self.tables if isinstance(part, Table)]
        return shown or ([] if isinstance(self.document, str) else self.document.tables())


_OUT = "Also save all to this file, by the end of the name: .json, .csv, .md, .tex, .html"


@dataclass(frozen=True)
class TableForm:
    """Requested forms of a view without a picture; what cannot be written is refused beforehand."""

    #: Whether there is a picture; whether a folder may be among the files, the verb's own affair.
    PICTURE: ClassVar[bool] = False
    FOLDER: ClassVar[bool] = False

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False
    as_latex: Annotated[
        bool, typer.Option("--latex", help="Print tables for LaTeX, with booktabs.")
    ] = False
    words: Annotated[
        str | None,
        typer.Option("--table", help="Of several tables, the one with these words in its title."),
    ] = None
    out: Annotated[list[Path] | None, f"{_OUT}; may be repeated."] = None

    def __post_init__(self) -> None:
        for path in self.files:
            check_saved_path(path)
            if path.suffix.lower() in _FORMATS and not self.PICTURE:
                raise InvalidInput(f"{path}: there is no picture of this")
        if self.folder is not None and not self.FOLDER:
            raise InvalidInput(f"--out is {self.folder}: give a name that ends in {_ENDS}")
        names = [f"--{x}" for x in ("json", "csv", "latex") if getattr(self, f"as_{x}")]
        if len(names) > 1:
            raise InvalidInput(f"{' and '.join(names)} both given: choose one")
        if self.words is not None and not (self.as_csv or self.as_latex or self.files):
            raise InvalidInput("--table goes with --latex, --csv, or such a file of --out")

    @property
    def suffix(self) -> str | None:
        """Form that is printed for other programs, by the end of such a file; None for people."""
        printed = {".json": self.as_json, ".csv": self.as_csv, ".tex": self.as_latex}
        return next((suffix for suffix, wanted in printed.items() if wanted), None)

    @property
    def files(self) -> list[Path]:
        """Files to save, pictures among them."""
        return [x for x in self.out or () if x.suffix]

    @property
    def folder(self) -> Path | None:
        """Folder among them."""
        return next((path for path in self.out or () if not path.suffix), None)


@dataclass(frozen=True)
class Form(TableForm):
    """Those of a view that has a picture, and how it looks."""

    PICTURE: ClassVar[bool] = True

    out: Annotated[
        list[Path] | None, f"{_OUT} or a picture ({', '.join(_FORMATS)}); may be repeated."
    ] = None
    plot: Annotated[Path | None, "Save the picture (.png, .svg, .pdf, or .pgf for LaTeX)."] = None
    width: Annotated[float | None, "Of the picture, in inches; 3.4 is a column of a paper."] = None
    style: Annotated[str, "Of the picture: screen, or paper for letters with serifs."] = "screen"
    no_title: Annotated[bool, "Leave out what stands above the picture."] = False

    def __post_init__(self) -> None:
        if self.plot is not None:
            check_plot_path(self.plot)
        super().__post_init__()
        if self.style not in _STYLES:
            raise UnknownName.among("style", self.style, _STYLES)
        if self.width is not None and not 1 <= self.width <= 40:
            raise InvalidInput(f"--width is {self.width}: give inches from 1 to 40")
        changes = (self.width is not None, self.style != "screen", self.no_title)
        if any(changes) and not self.drawn:
            raise InvalidInput("--width, --style and --no-title go with --plot")

    @property
    def files(self) -> list[Path]:
        """Files to save, that of --plot among them."""
        return [*super().files, *filter(None, [self.plot])]

    @property
    def drawn(self) -> bool:
        """Whether a picture is asked for, alone or in a page."""
        return any(path.suffix.lower() in (*_FORMATS, *_PAGES) for path in self.files)


@to_results()
def present(view: View, form: TableForm) -> None:
    """Print a view as tables, JSON or CSV, and save it in all files."""
    if form.words is not None:
        _chosen(view, form.words)  # or nothing is printed
    if (suffix := form.suffix) is not None:
        print(as_text(view, suffix, form.words), end="")
    else:
        first, last = (view.conclusion, view.tables)[:: 1 if view.decides else -1]
        for part in (*first, *last):
            _show(part)
    save_all(view, form)


def save_all(view: View, form: TableForm) -> None:
    """Save a view in all files; none where one would be refused."""
    if form.words is not None:
        _chosen(view, form.words)
    for path in form.files:
        save_view(view, path, form)
        remark(f"saved as {path}")


def save_view(view: View, path: Path, form: TableForm = Form()) -> None:  # frozen
    """Save a view as text, a page or a picture, as the end of the name says."""
    suffix = path.suffix.lower()
    if suffix in _FORMATS:
        if view.figure is None or not isinstance(form, Form):
            raise InvalidInput(f"{path}: there is no picture of this")
        save_picture(path, view.figure, form)
    elif suffix in _PAGES:
        save_page(path, view)
    else:
        words = form.words if suffix != ".json" else None
        is_whole = suffix == ".md" and words is None
        write_text(path, _markdown(view) if is_whole else as_text(view, suffix, words))


def _markdown(view: View) -> str:
    """All of a view in Markdown: the title, the conclusion, tables and what is said of them."""
    parts = [f"# {view.title}"]
    for part in (*view.conclusion, *view.tables):
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, Table):
            parts.append(part.markdown().rstrip())
        else:
            lines = (": ".join(filter(None, (x.strip(), y))) for x, y in part.values)
            parts += [part.text or "", "\n".join(f"- {line}" for line in lines)]
    return "\n\n".join(filter(None, parts)) + "\n"


def check_saved_path(path: Path) -> None:
    """Raise unless a view can be saved there."""
    suffix = path.suffix.lower()
    if suffix in _FORMATS:
        check_plot_path(path)
    elif suffix in _PAGES:
        check_page_path(path)
    elif suffix not in _TEXTS:
        raise InvalidInput(f"--out is {path}: give a name that ends in {_ENDS}")
    check_writable(path)


def save_picture(path: Path, drawing: Drawing, form: Form) -> None:
    """Draw and save a picture as `form` says."""
    import matplotlib

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
        kind = path.suffix[1:].lower()
        with atomic_write(path) as file:
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
    if suffix == ".json":
        document = view.document
        text = document if isinstance(document, str) else as_json(document.to_dict())
        return text + "\n"
    if suffix == ".csv" and view.rows and words is None:
        others = [] if view.rows_are_all else view.all_tables[1:]
        return "\n".join([as_csv(view.rows), *(x.csv() for x in others if x.rows)])
    written = {".csv": Table.csv, ".md": Table.markdown, ".tex": Table.latex}[suffix]
    return "\n".join("".join(map(written, alike)) for alike in _chosen(view, words))


def _chosen(view: View, words: str | None) -> list[list[Table]]:
    """Tables that have lines, those of one title together; with words the first that has them."""
    titled: dict[str, list[Table]] = {}
    for table in view.all_tables:
        if table.rows:
            titled.setdefault(as_one_line(table.title), []).append(table)
    if words is None:
        return [*titled.values()]
    for title, alike in titled.items():
        if all(word in title.lower() for word in words.lower().split()):
            return [alike]
    there = "; ".join(titled) or "none"
    raise InvalidInput(f"--table is {words!r}, which no table's title has. There are: {there}")


def as_json(document: Mapping[str, Any]) -> str:
    """JSON text, readable and without NaN."""
    return json.dumps(document, indent=2, allow_nan=False)


def _show(part: str | Section | Table) -> None:
    if isinstance(part, str):
        say(part)
        return
    if isinstance(part, Table):
        show_table(part)
        return
    if part.text is not None:
        say(part.text)
    if part.inline:
        for label, value in part.values:
            say(f"{label}: {value}")
    elif part.values:
        show_rows(part.values)
    if part.tree is not None:
        console_of(sys.stdout).print(part.tree)


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


def check_page_path(path: str | os.PathLike[str]) -> None:
    """Raise unless a page can be made, and written there."""
    from mdsd_opt.plots import new_figure

    if Path(path).suffix.lower() not in _PAGES:
        raise InvalidInput(f"--out is {path}: give a name that ends in .html")
    check_writable(path)
    _template()
    new_figure()


def save_page(path: str | os.PathLike[str], view: View) -> None:
    """Write a view as a page that begins with the findings."""
    findings = view.findings or [part for part in view.conclusion if isinstance(part, str)]
    sections = [
        {"heading": part.heading, "table": _cells(part, view.title)}
        if isinstance(part, Table)
        else {"heading": part.heading, "text": part.text, "labelled": part.values}
        for part in (*view.conclusion, *view.tables)
        if not isinstance(part, str) and part.heading is not None
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
    return {
        "title": "\n".join(x for x in table.title.splitlines() if x not in page_title),
        "caption": table.caption,
        "columns": [
            (name, not x.is_text) for name, x in zip(table.headings, table.shown, strict=True)
        ],
        "rows": parted(table),
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
    loader = jinja2.PackageLoader("mdsd_opt", "cli")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html.jinja")
