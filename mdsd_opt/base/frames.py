"""Results told: facts with their words, documents, data frames, CSV, Markdown, folded lines."""

from __future__ import annotations

import csv
import importlib
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from fractions import Fraction
from itertools import accumulate
from operator import itemgetter
from pathlib import PurePath
from string import Formatter
from textwrap import fill, wrap
from typing import Any, ClassVar, NamedTuple

from mdsd_opt.errors import MissingExtra


class If(NamedTuple):
    """Words for a result that meets a condition, and for others.

    The condition is a function of the result, or names a part of its words, or a field.
    """

    condition: str | Callable[[Any], Any]
    then: Words
    otherwise: Words = ""


#: Words about a result: a format of its fields and of the parts of its words by name, of values by
#: their numbers; or a function of the values, of the result where there are none.
Words = str | If | Callable[..., Any]


def told(words: Words, result: Any, *values: Any) -> Any:
    """Text of words about a result, with the values that they are about.

    The class of the result has the parts of its words, which are words themselves, as `parts`.
    """
    names = _Names(result)
    while isinstance(words, If):
        test = words.condition
        holds = test(result) if callable(test) else Formatter().get_field(test, (), names)[0]
        words = words.then if holds else words.otherwise
    if callable(words):
        return words(*values or (result,))
    return Formatter().vformat(words, values, names)


class _Names(dict[str, Any]):
    """Fields of a result, and the parts of its words."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def __missing__(self, name: str) -> Any:
        part = self.result.parts.get(name)
        return getattr(self.result, name) if part is None else told(part, self.result)


@dataclass(frozen=True, slots=True)
class Column:
    """A fact that results have: a column of a table of them, or lines of what one of them tells.

    Attributes
    ----------
    key : str
        Name of the field, dotted where it is one of a field.
    heading : str
        Name for people, the key unless given; in lines it may have the value as ``{0}``, its number
        as ``{1}``.
    shown : str, If or callable
        Words about the value, which is ``{0}``, and the result; "" for what is in records alone.
    of : str or callable, optional
        Name of the field where that is another, or a function of the result.
    is_text : bool
        Whether a table has it to the left, as words, not as numbers.
    holds : type, optional
        Of the value of a function; fields and properties have their own.
    """

    key: str
    heading: str = ""
    shown: Words = "{0}"
    of: str | Callable[[Any], Any] | None = None
    is_text: bool = False
    holds: Any = None

    def value(self, result: Any) -> Any:
        """Value that a result has; None also where a field on the way is None."""
        if callable(self.of):
            return self.of(result)
        for name in (self.of or self.key).split("."):
            result = None if result is None else getattr(result, name)
        return result

    def cell(self, result: Any) -> str:
        """Text of the value in a table, empty where there is none."""
        value = self.value(result)
        return "" if value is None else str(told(self.shown, result, value))

    def lines(self, result: Any) -> Iterator[tuple[str, str]]:
        """Heading and text of the value, of each one in a list; of nothing where there is none."""
        value = self.value(result)
        for number, item in enumerate(value if type(value) in (list, tuple) else [value], 1):
            text = "" if item is None else told(self.shown, result, item)
            if text:
                heading = self.heading or self.key.replace("_", " ")
                yield told(heading, result, item, number), text


def data_frame(rows: Sequence[Mapping[Any, Any]], **options: Any) -> Any:
    """Data frame of the rows, a column for each name; `MissingExtra` without pandas."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise MissingExtra("to_pandas needs pandas: pip install pandas") from error
    return pandas.DataFrame(rows, **options)


class Result:
    """A result that tells its `columns`, ready for JSON; all fields of a dataclass, without these.

    A column has a key of its own, or is the name of a field or property; one that begins with *
    stands for all that the part of that name tells, one that ends with ? is left out where it is
    empty. Those `derived` stand behind them. Their types are the schema of the document.
    """

    __slots__ = ()
    columns: ClassVar[Sequence[str | Column]] = ()
    derived: ClassVar[Sequence[str | Column]] = ()

    @classmethod
    def all_columns(cls) -> Sequence[str | Column]:
        """All that is told: a field of a dataclass is not if its name begins with _."""
        own: Any = cls.columns or [x.name for x in fields(cls) if x.name[0] != "_"]  # type: ignore[arg-type]
        return [*own, *cls.derived]

    def to_dict(self) -> dict[str, Any]:
        """Fields, ready for JSON; what is not known, or infinite, is None."""
        told: dict[str, Any] = {}
        for key in self.all_columns():
            if isinstance(key, Column):
                told[key.key] = plain(key.value(self))
            elif key.startswith("*"):
                told |= plain(getattr(self, key[1:])) or {}
            else:
                name = key.removesuffix("?")
                value = plain(getattr(self, name))
                if name == key or value not in (None, "", [], {}):
                    told[name] = value
        return told

    def tables(self) -> list[Table]:
        """One table of all that it tells, unless a class has others."""
        return one_table(self)


def plain(value: Any) -> Any:
    """Value ready for JSON: parts by what they tell, and what is not finite as None."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "_asdict"):  # of a named tuple
        value = value._asdict()
    elif is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if callable(value):
        return "function"
    return str(value) if isinstance(value, (Fraction, PurePath)) else value


def flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Fields of a row, those inside others as ``outer.inner``."""
    fields: dict[str, Any] = {}
    for name, value in row.items():
        fields |= (
            flat(value, f"{before}{name}.")
            if isinstance(value, Mapping)
            else {before + name: value}
        )
    return fields


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """CSV text of rows; None is an empty field, and what a field holds by names has columns."""
    lines = [flat(row) for row in rows]
    names = list(dict.fromkeys(name for line in lines for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Table in Markdown, a line for each row."""
    lines = (
        " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row)
        for row in (headings, *rows)
    )
    heading, *others = (f"| {line} |\n" for line in lines)
    return "".join([heading, "|" + "---|" * len(headings) + "\n", *others])


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Results in lines: CSV, Markdown and LaTeX, and what terminals and pages show, is made of it.

    Attributes
    ----------
    title : str
    columns : sequence of Column
        In the order of use: the last are left out where there is no room.
    rows : sequence
        A result for each line.
    caption : str
        What stands below it.
    grouped : bool
        Whether lines with the same first cell are a part, which has it once.
    heading : str
        Of its part of a page; none unless given.
    most : int
        Lines that people are shown unless they ask for all; 0 for all of them.
    shows : str
        Caption in a paper; the title unless given.
    beside : sequence of str
        Headings of columns that a paper has no room for.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Any]
    caption: str = ""
    grouped: bool = False
    heading: str = ""
    most: int = 0
    shows: str = ""
    beside: Sequence[str] = ()

    @classmethod
    def of(
        cls, title: str, headings: Sequence[str], rows: Iterable[Sequence[Any]],
        words: Sequence[str] | None = None, **parts: Any,
    ) -> Table:  # fmt: skip
        """Table of cells, where columns that are not in `words`, by default the first, are numbers.

        Lines may lack their last cells.
        """
        empty = (None,) * len(headings)
        lines = [(*row, *empty[len(row) :]) for row in rows]
        columns = [
            Column(
                _in_a_line(heading), heading, of=itemgetter(n),
                is_text=heading in (headings[:1] if words is None else words),
            )
            for n, heading in enumerate(headings)
        ]  # fmt: skip
        return cls(title, columns, lines, **parts)

    @property
    def shown(self) -> list[Column]:
        """Columns that people are shown."""
        return [column for column in self.columns if column.shown != ""]

    @property
    def headings(self) -> list[str]:
        """Headings of those, each in a line."""
        return [_in_a_line(column.heading or column.key) for column in self.shown]

    @property
    def beyond(self) -> int:
        """Number of lines that are shown to those alone who ask for all."""
        return max(len(self.rows) - self.most, 0) if self.most else 0

    def about(self, text: str) -> Table:
        """The table, with what it is about below its title."""
        return replace(self, title=f"{self.title}\n{text}")

    def first(self) -> Table:
        """The lines that are shown."""
        return replace(self, rows=self.rows[: self.most or None])

    def cells(self) -> list[list[str]]:
        """Texts of each line."""
        return [[column.cell(row) for column in self.shown] for row in self.rows]

    def records(self) -> list[dict[str, Any]]:
        """Values of each line by the keys of columns, ready for JSON."""
        return [{x.key: plain(x.value(row)) for x in self.columns} for row in self.rows]

    def __str__(self) -> str:
        """Its first lines, in the columns that have room in 80, and at least in two."""
        lines = [self.headings, *self.first().cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        ends = accumulate(widths, lambda end, width: end + 2 + width)
        room = max(sum(end <= _COLUMNS for end in ends), 2)
        texts = (
            "  ".join(
                cell.ljust(width) if column.is_text else cell.rjust(width)
                for cell, width, column in zip(line, widths[:room], self.shown, strict=False)
            ).rstrip()
            for line in lines
        )
        return "\n".join(filter(None, [self.title, *texts, self.caption]))

    def csv(self) -> str:
        """CSV text, with the keys of columns as names."""
        return as_csv(self.records())

    def markdown(self) -> str:
        """Table in Markdown between its title and its caption."""
        table = markdown_table(self.headings, self.cells())
        below = f"\n{as_one_line(self.caption)}\n" if self.caption else ""
        return f"{as_one_line(self.title)}\n\n{table}{below}"

    def latex(self) -> str:
        """Table in LaTeX, with the rules of the package booktabs, in the width of a column."""
        kept = [
            x for x, name in zip(self.shown, self.headings, strict=True) if name not in self.beside
        ]
        sides = "".join("l" if x.is_text else "r" for x in kept)
        title = as_one_line(self.title)
        is_word = re.match(r"[a-z-]+([ ,:;]|$)", title)  # a file's name keeps its letters
        caption = _in_a_line(self.shows) or (title[:1].upper() + title[1:] if is_word else title)
        label = "-".join(re.findall(r"[a-z0-9]+", title.lower())[:_WORDS_OF_A_LABEL])
        lines = ([x.cell(row) for x in kept] for row in self.rows)
        written = [[x.heading or x.key for x in kept], *lines]
        heading, *rows = (" & ".join(map(_latex_cell, line)) + r" \\" for line in written)
        return "\n".join(
            [
                *(f"% {x}" for x in (title, as_one_line(self.caption)) if x),
                r"\begin{table}",
                r"\centering\footnotesize\setlength{\tabcolsep}{2pt}",
                rf"\caption{{{_latex_text(caption)}.}}",
                rf"\label{{tab:{label}}}",
                rf"\begin{{tabular}}{{@{{}}{sides}@{{}}}}",
                r"\toprule",
                heading,
                r"\midrule",
                *rows,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )


def one_table(result: Any) -> list[Table]:
    """Table of what a result tells, a line for each name."""
    title = re.sub(r"(?<!^)(?=[A-Z])", " ", type(result).__name__).lower()
    return [Table.of(title, ("name", "value"), flat(plain(result)).items(), ("name", "value"))]


def _in_a_line(text: str) -> str:
    return " ".join(text.split())


def as_one_line(text: str) -> str:
    """Lines of a title or caption, each about something else, as one."""
    return "; ".join(filter(None, map(_in_a_line, text.splitlines())))


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


def _latex_text(text: str) -> str:
    text = text.replace(">=", "≥").replace("<=", "≤")
    return "".join(_LATEX.get(x, x) for x in text)


def _latex_cell(text: str) -> str:
    if "\n" in text:
        return r"\shortstack[l]{" + r"\\".join(map(_latex_cell, text.splitlines())) + "}"
    if _POWER.fullmatch(text):
        text = re.sub(r"\^(.*)", r"^{\1}", text)
    elif not _NUMBERS.fullmatch(text):
        return _latex_text(text)
    text = re.sub(r"e[-+]0+(?!\d)", "", text)
    text = re.sub(r"e([-+])0*(\d+)", lambda x: rf"\times10^{{{x[1].strip('+')}{x[2]}}}", text)
    text = re.sub(r"(?<=\d),(?=\d)", "{,}", text)
    return f"${text.replace('±', chr(92) + 'pm').replace('*', '^*')}$"


#: Words of a title that the label of its table has.
_WORDS_OF_A_LABEL = 6


def wrapped(text: str, width: int) -> str:
    """Text of a cell in lines, so that a table has room on a terminal, and in a paper's column."""
    return "\n".join(wrap(text, width, break_long_words=False, break_on_hyphens=False))


#: Number of columns of a terminal, less the one that some need for the cursor.
_COLUMNS = 79


def folded(representation: str) -> str:
    """Text of a `repr` in lines that fit a terminal of 80 columns, arguments below arguments."""
    indent = " " * (representation.index("(") + 1)
    return fill(
        representation, _COLUMNS, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
