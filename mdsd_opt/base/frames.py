"""Tables of results as data frames of pandas, which is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from mdsd_opt.errors import MissingExtra


def data_frame(rows: Sequence[Mapping[Any, Any]], **options: Any) -> Any:
    """Data frame of the rows, a column for each name; `MissingExtra` without pandas."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise MissingExtra("to_pandas needs pandas: pip install pandas") from error
    return pandas.DataFrame(rows, **options)


def flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Fields of a row, those inside others as ``outer.inner``."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        found |= (
            flat(value, f"{before}{name}.")
            if isinstance(value, Mapping)
            else {before + name: value}
        )
    return found
