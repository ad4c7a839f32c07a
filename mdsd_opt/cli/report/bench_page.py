"""Measurements as a page."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mdsd_opt.cli.bench.comparison import Change
from mdsd_opt.cli.bench.record import Report
from mdsd_opt.cli.report.bench_plot import bench_figure
from mdsd_opt.cli.report.bench_tables import (
    MEANING,
    changes_table,
    circumstances_line,
    conclusion,
    records_tables,
    scaling_table,
)
from mdsd_opt.cli.report.pages import PageTable, Picture, Section, save_page


def save_bench_page(
    path: str | os.PathLike[str], report: Report, changes: Sequence[Change] = ()
) -> None:
    """What `bench` shows, as a page.

    Parameters
    ----------
    path : path
    report : Report
    changes : sequence of Change
        Against an earlier run.
    """
    shows = "Time of one call against the vocabulary, both on logarithmic axes; lower is better."
    sections = [Section(picture=Picture.of(bench_figure(report), shows))]
    if changes:
        sections.append(Section("Earlier run", table=PageTable.of(changes_table(changes))))
    tables = [PageTable.of(table) for table in records_tables(report)]
    sections += [Section("" if n else "Measurements", "" if n else MEANING, table=table)
                 for n, table in enumerate(tables)]  # fmt: skip
    fitted = scaling_table(report.records)
    if fitted.row_count:
        sections.append(Section("Growth", table=PageTable.of(fitted)))
    save_page(path, f"Speed\n{circumstances_line(report)}", conclusion(report), sections)
