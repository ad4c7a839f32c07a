"""Measurements as files: for programs, for spreadsheets, and as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from mdsd_opt.base.files import atomic_write
from mdsd_opt.cli.bench.record import Record, Report
from mdsd_opt.cli.bench.scaling import Scaling, scaling

_CIRCUMSTANCES = (
    "cpus", "load_average", "python", "numpy", "scipy", "numba", "highspy", "cvxpy", "pycddlib",
    "torch", "mdsd_opt",
)  # fmt: skip


def save_report(report: Report, path: Path) -> None:
    """As CSV or Markdown where the name ends so, else as JSON."""
    if path.suffix == ".csv":
        text = report.as_csv()
    elif path.suffix == ".md":
        text = markdown(report)
    else:
        text = report.as_json()
    with atomic_write(path) as file:
        file.write(text.encode())


def markdown(report: Report) -> str:
    """The circumstances, a table for each benchmark, and how time grows with V."""
    where = report.circumstances
    told = [f"{name} {where[name]}" for name in _CIRCUMSTANCES if name in where]
    parts = [f"{where.get('processor', 'unknown processor')}; {', '.join(told)}.\n"]
    for benchmark, records in groupby(report.records, key=lambda record: record.benchmark):
        parts.append(_records_table(benchmark, list(records)))
    fits = scaling(report.records)
    if fits:
        parts.append(_scaling_table(fits))
    return "\n".join(parts)


def _records_table(benchmark: str, records: Sequence[Record]) -> str:
    against = sorted({record.against for record in records if record.against})
    rival = f"times faster than {', '.join(against)}" if against else "times faster"
    kinds = sorted({record.gap_kind for record in records if record.gap_kind})
    headings = (
        "route", "problem", "V", "K", "threads", "median ms", "p90 ms", rival,
        " or ".join(kinds) or "gap", "note",
    )  # fmt: skip
    rows = [
        (
            record.route,
            record.problem.replace("_", " "),
            f"{record.vocab_size:,}",
            str(record.num_drafts or ""),
            str(record.threads),
            _milliseconds(record.median_ms),
            _milliseconds(record.p90_ms),
            "" if record.times_faster is None else f"{record.times_faster:.3g}",
            "" if record.gap is None else f"{record.gap:.0e}",
            record.note,
        )
        for record in records
    ]
    rounds = sorted({record.rounds for record in records})
    said = f"**{benchmark}**, rounds: {', '.join(map(str, rounds))}\n\n"
    return said + _table(headings, rows)


def _scaling_table(fits: Iterable[Scaling]) -> str:
    headings = (
        "route",
        "problem",
        "K",
        "threads",
        "V from",
        "to",
        "time ~ V to the power",
    )
    rows = [
        (
            fit.route,
            fit.problem.replace("_", " "),
            str(fit.num_drafts),
            str(fit.threads),
            f"{fit.smallest:,}",
            f"{fit.largest:,}",
            f"{fit.exponent:.2f}",
        )
        for fit in fits
    ]
    return _table(headings, rows)


def _milliseconds(time: float | None) -> str:
    if time is None:
        return "-"
    return f"{time:,.0f}" if time >= 1000 else f"{time:.3g}"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns that are empty throughout are left out."""
    rows = list(rows)
    kept = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    lines = [[headings[i] for i in kept], ["---"] * len(kept)]
    lines += [[row[i].replace("|", "\\|") for i in kept] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
