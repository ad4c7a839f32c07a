"""Acceptance rates as a page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mdsd_opt.cli.report.pages import PageTable, Picture, Section, save_page
from mdsd_opt.cli.report.rates_plot import rates_figure
from mdsd_opt.cli.report.tables import comparison_table, conclusion, rates_table
from mdsd_opt.corpora.rates import RateRow

if TYPE_CHECKING:
    from mdsd_opt.corpora.draft_choice import SchemeComparison


def save_rates_page(
    path: str | os.PathLike[str],
    rows: Sequence[RateRow],
    title: str,
    refused: Mapping[str, str],
    comparison: SchemeComparison | None = None,
) -> None:
    """What `rates` shows, as a page.

    Parameters
    ----------
    path : path
    rows : sequence of RateRow
    title : str
        What the rates are of, the name in the first line.
    refused : mapping of str to str
        Why a verifier has no rates.
    comparison : SchemeComparison, optional
    """
    shows = "Mean acceptance rate against the number of drafts, with intervals; higher is better."
    sections = [
        Section(picture=Picture.of(rates_figure(rows), shows)),
        Section("Rates", table=PageTable.of(rates_table(rows, ""))),
    ]
    if refused:
        sections.append(Section("Left out", values=list(refused.items())))
    if comparison is not None:
        sections.append(Section("Draft schemes", table=PageTable.of(comparison_table(comparison))))
    save_page(path, f"Acceptance rates of {title}", [conclusion(rows)], sections)
