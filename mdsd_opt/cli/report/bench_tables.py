"""Measurements as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from mdsd_opt.cli.bench.comparison import Change
from mdsd_opt.cli.bench.record import Record, Report
from mdsd_opt.cli.bench.scaling import scaling

if TYPE_CHECKING:
    from rich.table import Table


#: What the numbers of `records_tables` are.
MEANING = (
    "milliseconds of one call, median and 90th percentile of the rounds; lower is better. Empty: "
    "there is no rival, or nothing to compare the answer with; -: did not finish."
)

#: Columns of `records_tables` that say what was measured, but for the threads.
NUM_KEYS = 3


def records_tables(report: Report) -> list[Table]:
    """One for each problem of each benchmark, one line a measurement."""
    groups = groupby(report.records, key=lambda record: (record.benchmark, record.problem))
    return [_records_table(list(records)) for _, records in groups]


def _records_table(records: Sequence[Record]) -> Table:
    from rich.table import Table

    first = records[0]
    title = f"{first.benchmark}: {first.problem.replace('_', ' ')}"
    columns: list[tuple[str, Callable[[Record], str]]] = [
        ("route", lambda record: record.route),
        ("V", lambda record: f"{record.vocab_size:,}"),
        ("K", lambda record: str(record.num_drafts or "any")),
        ("median\nms", lambda record: _milliseconds(record.median_ms)),
        ("p90\nms", lambda record: _milliseconds(record.p90_ms)),
    ]
    threads = {record.threads for record in records}
    if len(threads) > 1:
        columns.insert(NUM_KEYS, ("threads", lambda record: str(record.threads)))
    else:
        title += f", {first.threads} thread{'s' * (first.threads != 1)}"
    against = sorted({record.against for record in records if record.against})
    if against:
        title += f"; x faster: than {', '.join(against)} in the same run"
        columns.append(("x\nfaster", lambda record: _digits(record.times_faster)))
    kinds = sorted({record.gap_kind for record in records if record.gap_kind})
    if kinds:
        columns.append((f"gap:\n{' or '.join(kinds)}", _gap))
    if any(record.note for record in records):
        columns.append(("note", lambda record: record.note))
    table = Table(title=title)
    for heading, _ in columns:
        table.add_column(heading, justify="left" if heading in ("route", "note") else "right")
    for record, following in zip(records, [*records[1:], None], strict=True):
        table.add_row(
            *(cell(record) for _, cell in columns),
            end_section=following is not None and _place(following) != _place(record),
        )
    return table


def circumstances_line(report: Report) -> str:
    """Where it was measured."""
    told = ("processor", "cpus", "load_average", "python", "numpy", "numba", "mdsd_opt")
    where = report.circumstances
    return ", ".join(f"{name.replace('_', ' ')} {where[name]}" for name in told if name in where)


def conclusion(report: Report) -> list[str]:
    """Of each benchmark, the quickest at the largest size, and the largest gap."""
    lines = []
    for benchmark, group in groupby(report.records, key=lambda record: record.benchmark):
        records = list(group)
        done = [record for record in records if record.median_ms is not None]
        if not done:
            lines.append(f"{benchmark}: nothing finished")
            continue
        largest = max(record.vocab_size for record in done)
        here = [record for record in done if record.vocab_size == largest]
        if any(record.gap_kind == "error" for record in here):  # others give no answer
            here = [record for record in here if record.gap is not None]
        quickest = min(here, key=lambda record: record.median_ms or 0.0)
        line = f"{benchmark}: at V = {largest:,}, {quickest.route} takes "
        line += f"{_milliseconds(quickest.median_ms)} ms"
        if quickest.times_faster is not None and quickest.route != quickest.against:
            line += f", {_digits(quickest.times_faster)} times as fast as {quickest.against}"
        worst = max(records, key=lambda record: record.gap or 0.0)
        if worst.gap:
            line += f"; largest gap of all {_gap(worst)} ({worst.gap_kind}, {worst.route})"
        lines.append(line)
    return lines


def _gap(record: Record) -> str:
    return "" if record.gap is None else f"{record.gap:.0e}"


def _milliseconds(time: float | None) -> str:
    return "-" if time is None else _digits(time)


def _digits(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _place(record: Record) -> tuple[object, ...]:
    return record.vocab_size, record.num_drafts, record.threads


def scaling_table(records: Sequence[Record]) -> Table:
    """Exponents of V."""
    from rich.table import Table

    table = Table(title="how time grows: V to the power of the exponent; lower is better")
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
