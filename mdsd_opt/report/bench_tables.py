"""Measurements as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mdsd_opt.bench.comparison import Change
from mdsd_opt.bench.record import Record, Report
from mdsd_opt.bench.scaling import scaling

if TYPE_CHECKING:
    from rich.table import Table


def records_table(report: Report) -> Table:
    """One line a measurement."""
    from rich.table import Table

    where = report.circumstances
    told = ("processor", "cpus", "load_average", "python", "numpy", "numba", "mdsd_opt")
    table = Table(
        title="medians over the rounds; times faster than the rival on the same problem",
        caption=", ".join(f"{name} {where.get(name)}" for name in told),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("route")
    table.add_column("problem")
    kinds = sorted({record.gap_kind for record in report.records if record.gap_kind})
    gap = " or ".join(kinds) or "gap"
    for heading in ("V", "K", "threads", "median ms", "p90 ms", "x faster", gap):
        table.add_column(heading, justify="right")
    table.add_column("note")
    for record, following in zip(report.records, [*report.records[1:], None], strict=True):
        table.add_row(
            record.route,
            record.problem,
            f"{record.vocab_size:,}",
            str(record.num_drafts or ""),
            str(record.threads),
            "-" if record.median_ms is None else f"{record.median_ms:.3g}",
            "-" if record.p90_ms is None else f"{record.p90_ms:.3g}",
            "" if record.times_faster is None else f"{record.times_faster:.3g}",
            "" if record.gap is None else f"{record.gap:.0e}",
            record.note,
            end_section=following is not None and _place(following) != _place(record),
        )
    return table


def _place(record: Record) -> tuple[object, ...]:
    return record.benchmark, record.problem, record.vocab_size, record.num_drafts, record.threads


def scaling_table(records: Sequence[Record]) -> Table:
    """Exponents of V."""
    from rich.table import Table

    table = Table(title="time ~ V^exponent", title_justify="left")
    for heading in ("route", "problem"):
        table.add_column(heading)
    for heading in ("K", "threads", "V from", "to", "exponent"):
        table.add_column(heading, justify="right")
    for fit in scaling(records):
        table.add_row(
            fit.route,
            fit.problem,
            str(fit.num_drafts),
            str(fit.threads),
            f"{fit.smallest:,}",
            f"{fit.largest:,}",
            f"{fit.exponent:.2f}",
        )
    return table


def changes_table(found: Sequence[Change]) -> Table:
    """What two runs have in common, the worst first."""
    from rich.table import Table

    table = Table(
        title="against the earlier run",
        caption="* against the rival in the same run; others by time alone",
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("route", "problem"):
        table.add_column(heading)
    for heading in ("V", "K", "x slower"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for change in found:
        verdict = "LESS EXACT" if change.worse_gap else "SLOWER" if change.is_regression else ""
        table.add_row(
            change.record.route,
            change.record.problem,
            f"{change.record.vocab_size:,}",
            str(change.record.num_drafts),
            f"{change.times_slower:.2f}{'*' if change.relative else ' '}",
            verdict,
        )
    return table
