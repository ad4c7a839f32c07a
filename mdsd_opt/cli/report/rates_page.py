"""Acceptance rates as a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mdsd_opt.cli.report.rates_plot import rates_figure
from mdsd_opt.cli.report.tables import comparison_table, conclusion, rates_table
from mdsd_opt.cli.view import Drawing, Section, View
from mdsd_opt.corpora.rates import RateRow

if TYPE_CHECKING:
    from mdsd_opt.corpora.draft_choice import SchemeComparison


def rates_view(
    rows: Sequence[RateRow],
    title: str,
    refused: Mapping[str, str],
    comparison: SchemeComparison | None = None,
    **known: Any,
) -> View:
    """The rates of a source, why a verifier has none, and perhaps draft schemes ranked.

    Parameters
    ----------
    rows : sequence of RateRow
    title : str
        What the rates are of, the name in the first line.
    refused : mapping of str to str
        Why a verifier has no rates.
    comparison : SchemeComparison, optional
    **known
        What else the document says of the source.
    """
    tables = [
        Section("Rates", table=rates_table(rows, title), keys=2),
        *([Section("Left out", values=list(refused.items()), inline=True)] if refused else []),
    ]
    lines = [row.to_dict() for row in rows]
    document = {**known, "rows": lines, "refused": dict(refused)}
    if comparison is not None:
        tables.append(Section("Draft schemes", table=comparison_table(comparison)))
        document["comparison"] = comparison.to_dict()
    drawing = Drawing(
        partial(rates_figure, rows),
        "Mean acceptance rate against the number of drafts, with intervals; higher is better.",
        title,
    )
    heading = f"Acceptance rates of {title}"
    return View(heading, tables, [conclusion(rows)], document, drawing, rows=lines)
