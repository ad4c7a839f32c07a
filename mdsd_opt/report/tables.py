"""Tables for terminals, and the same rows as JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mdsd_opt.report.intervals import MeanInterval
from mdsd_opt.report.rates import RateRow

if TYPE_CHECKING:
    from rich.table import Table

#: Scheme names as they are written for readers.
SCHEME_TITLES = {
    "with_replacement": "with replacement",
    "without_replacement": "without replacement",
    "greedy": "greedy",
    "top_k": "top-K",
}


def as_json(document: Mapping[str, Any]) -> str:
    """Readable JSON, no NaN."""
    return json.dumps(document, indent=2, allow_nan=False)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the header of the first; None is an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def rates_table(rows: Sequence[RateRow], title: str) -> Table:
    """One line for each scheme and K, one column for each verifier."""
    from rich.table import Table

    verifiers = list(dict.fromkeys(row.verifier for row in rows))
    table = Table(title=title, title_justify="left")
    table.add_column("drafts")
    table.add_column("K", justify="right")
    for verifier in verifiers:
        table.add_column(f"acceptance, {verifier}", justify="right")
    table.add_column("tokens / target call", justify="right")
    cells = {(row.scheme, row.num_drafts, row.verifier): row for row in rows}
    lines = list(dict.fromkeys((row.scheme, row.num_drafts) for row in rows))
    previous = None
    for scheme, k in lines:
        if previous not in (None, scheme):
            table.add_section()
        name = SCHEME_TITLES.get(scheme, scheme) if scheme != previous else ""
        found = [cells.get((scheme, k, verifier)) for verifier in verifiers]
        first = next(row for row in found if row is not None)
        table.add_row(
            name,
            str(k),
            *("" if row is None else with_interval(row.acceptance) for row in found),
            f"{first.tokens_per_call:.3f}",
        )
        previous = scheme
    return table


def with_interval(value: MeanInterval) -> str:
    """0.7234 ± 0.0051, or the mean alone if there is no interval."""
    if value.half_width != value.half_width:
        return f"{value.mean:.4f}"
    return f"{value.mean:.4f} ± {value.half_width:.4f}"
