"""Measurements as a view."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mdsd_opt.cli.bench.comparison import Change
from mdsd_opt.cli.bench.record import Report
from mdsd_opt.cli.report.bench_plot import bench_figure
from mdsd_opt.cli.report.bench_tables import (
    MEANING,
    NUM_KEYS,
    changes_table,
    circumstances_line,
    conclusion,
    records_tables,
    scaling_table,
)
from mdsd_opt.cli.view import Drawing, Section, View


def bench_view(report: Report, changes: Sequence[Change] = ()) -> View:
    """The measurements of a run, and how they differ from those of an earlier one."""
    tables = [
        Section("" if n else "Measurements", None if n else MEANING, table=table, keys=NUM_KEYS)
        for n, table in enumerate(records_tables(report))
    ]
    fitted = scaling_table(report.records)
    if fitted.row_count:
        tables.append(Section("Growth", table=fitted))
    circumstances = circumstances_line(report)
    earlier = [Section("Earlier run", table=changes_table(changes))] if changes else []
    return View(
        f"Speed\n{circumstances}",
        [*tables, Section(text=circumstances)],
        [*conclusion(report), *earlier],
        report.as_json().rstrip(),
        Drawing(
            partial(bench_figure, report),
            "Time of one call against the vocabulary, both on logarithmic axes; lower is better.",
        ),
    )
