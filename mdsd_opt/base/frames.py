"""Results as documents, data frames, CSV, Markdown, and lines that fit a terminal."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import Any

from mdsd_opt.errors import MissingExtra


def data_frame(rows: Sequence[Mapping[Any, Any]], **options: Any) -> Any:
    """Data frame of the rows, a column for each name; `MissingExtra` without pandas."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise MissingExtra("to_pandas needs pandas: pip install pandas") from error
    return pandas.DataFrame(rows, **options)


def document(result: Any, *names: str) -> dict[str, Any]:
    """Fields of a result, ready for JSON: parts by their own documents, and NaN as None."""
    return {name: _ready(getattr(result, name)) for name in names}


def _ready(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): _ready(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_ready(item) for item in value]
    return None if value != value else value


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
    lines = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in (headings, *rows))
    heading, *others = (f"| {line} |\n" for line in lines)
    return "".join([heading, "|" + "---|" * len(headings) + "\n", *others])


#: Number of columns of a terminal, less the one that some need for the cursor.
_COLUMNS = 79


def folded(representation: str) -> str:
    """Text of a `repr` in lines that fit a terminal of 80 columns, arguments below arguments."""
    indent = " " * (representation.index("(") + 1)
    return fill(
        representation, _COLUMNS, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
