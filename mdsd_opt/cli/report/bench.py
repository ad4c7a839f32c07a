"""Views of measurements, and their files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from mdsd_opt.base.files import atomic_write
from mdsd_opt.base.frames import markdown_table
from mdsd_opt.bench import (
    SHIFT,
    BenchReport,
    Change,
    Record,
    Scaling,
    geometric_means,
    load_warning,
    performance_profile,
    scaling,
)
from mdsd_opt.cli.output import make_table
from mdsd_opt.cli.view import Drawing, Section, View, save_view
from mdsd_opt.plots import bench_figure

if TYPE_CHECKING:
    from rich.table import Table


def bench_view(report: BenchReport, changes: Sequence[Change] = ()) -> View:
    """View of the measurements of a run, and their differences from those of an earlier one."""
    tables = [
        Section("" if n else "Measurements", None if n else MEANING, table=table, keys=NUM_KEYS)
        for n, table in enumerate(records_tables(report))
    ]
    tables += [Section("Over all problems", table=table) for table in means_tables(report)]
    fitted = scaling_table(report.records)
    if fitted.row_count:
        tables.append(Section("Growth", table=fitted))
    where = report.circumstances
    names = (name for name in _TOLD if name in where)
    circumstances = ", ".join(f"{name.replace('_', ' ')} {where[name]}" for name in names)
    warned = load_warning(where)
    earlier = [Section("Earlier run", table=changes_table(changes))] if changes else []
    return View(
        f"Speed\n{circumstances}",
        [*tables, Section(text=circumstances)],
        [*conclusion(report), *([warned] if warned else []), *earlier],
        report.as_json().rstrip(),
        Drawing(
            partial(bench_figure, report),
            "Time of one call against the vocabulary, both on logarithmic axes; lower is better.",
            ", ".join(dict.fromkeys(record.benchmark for record in report.records)),
        ),
        rows=[asdict(record) for record in report.records],
    )


#: Meaning of the numbers in `records_tables`.
MEANING = (
    "milliseconds of one call, median and 90th percentile of the rounds where there are several; "
    "lower is better. Setup, where a method tells it, is left out of them. Empty: there is no "
    "rival, or nothing to compare the answer with; -: did not finish."
)

#: Circumstances that stand below the tables.
_TOLD = ("processor", "cpus", "load_average", "python", "numpy", "numba", "mdsd_opt")

#: Number of columns of `records_tables` that say what was measured, without the threads.
NUM_KEYS = 3


def records_tables(report: BenchReport) -> list[Table]:
    """Tables for each problem of each benchmark, one line per measurement."""
    groups = groupby(report.records, key=lambda record: (record.benchmark, record.problem))
    return [_records_table(list(records)) for _, records in groups]


def _columns(records: Sequence[Record], any_number: str = "") -> dict[str, list[str]]:
    """Cells of the records by heading, without the columns that are empty throughout."""
    several = any(record.rounds > 1 for record in records)
    columns: dict[str, Callable[[Record], str]] = {
        "route": lambda record: record.route,
        "problem": lambda record: record.problem.replace("_", " "),
        "V": lambda record: f"{record.vocab_size:,}",
        "K": lambda record: str(record.num_drafts or any_number),
        "threads": lambda record: str(record.threads),
        "median ms" if several else "ms": lambda record: _milliseconds(record.median_ms),
        "p90 ms": lambda record: _milliseconds(record.p90_ms) if several else "",
        "setup ms": lambda record: _digits(record.setup_ms),
        f"{_FASTER} than {_each(records, 'against', ', ')}": lambda x: _digits(x.times_faster),
        _each(records, "gap_kind", " or "): _gap,
        "note": lambda record: record.note,
    }
    cells = {heading: [cell(x) for x in records] for heading, cell in columns.items()}
    return {heading: column for heading, column in cells.items() if any(column)}


#: Beginning of the heading of ratios to the rival.
_FASTER = "times faster"


def _each(records: Sequence[Record], name: str, between: str) -> str:
    """Values of a field, each once."""
    return between.join(sorted({x for record in records if (x := getattr(record, name))}))


def _records_table(records: Sequence[Record]) -> Table:
    first, against = records[0], _each(records, "against", ", ")
    title = f"{first.benchmark}: {first.problem.replace('_', ' ')}"
    columns = _columns(records, "any")
    columns.pop("problem", None)
    if len({record.threads for record in records}) == 1:
        del columns["threads"]
        title += f", {first.threads} thread" if first.threads == 1 else f", {first.threads} threads"
    if against:
        title += f"; x faster: than {against} in the same run"
    kinds = _each(records, "gap_kind", " or ")

    def broken(heading: str) -> str:
        if heading.startswith(_FASTER):
            return "x\nfaster"
        return f"gap:\n{heading}" if heading == kinds else heading.replace(" ms", "\nms")

    table = make_table(
        title,
        [*map(broken, columns)],
        zip(*columns.values(), strict=True),
        words=("route", "note"),
    )
    for row, record, following in zip(table.rows, records, records[1:], strict=False):
        row.end_section = following.place != record.place
    return table


def conclusion(report: BenchReport) -> list[str]:
    """Sentences about the quickest of each benchmark at its largest size, and the largest gap."""
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
        here = [record for record in here if record.solved] or here
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


#: Factors of the quickest time in the table of performance profiles.
_FACTORS = (1, 2, 5, 10, 100)


def means_tables(report: BenchReport) -> list[Table]:
    """Tables of the solvers over all problems, if there are two or more: means, and profiles."""
    records = [record for record in report.records if record.benchmark == "solvers"]
    means = geometric_means(records)
    if len(means) < 2:
        return []
    order = sorted(means, key=lambda route: (-means[route][0], means[route][2] or 0.0))
    of_means = make_table(
        f"over all problems: geometric mean of the times, shifted by {SHIFT:g} ms, on the "
        "problems that all of these routes solved; lower is better",
        ("route", "solved", "ms"),
        [
            (route, f"{solved} of {total}", _milliseconds(mean))
            for route, (solved, total, mean) in ((x, means[x]) for x in order)
        ],
    )
    total, ratios = performance_profile(records)
    if not total:
        return [of_means]
    of_profiles = make_table(
        f"performance profiles: share of {total} problems on which a route took at most so many "
        "times as long as the quickest; higher is better",
        ("route", *(f"x {factor}" for factor in _FACTORS)),
        [
            (x, *(f"{sum(y <= factor for y in ratios[x]) / total:.2f}" for factor in _FACTORS))
            for x in order
        ],
    )
    return [of_means, of_profiles]


def scaling_table(records: Sequence[Record]) -> Table:
    """Table of the exponents of V."""
    return make_table(
        "how time grows: V to the power of the exponent; lower is better",
        ("route", "problem", "K", "threads", "V from", "to", "exponent"),
        map(_fit_cells, scaling(records)),
        words=("route", "problem"),
    )


def _fit_cells(fit: Scaling) -> tuple[str, ...]:
    return (
        fit.record.route, fit.record.problem, str(fit.record.num_drafts), str(fit.record.threads),
        f"{fit.smallest:,}", f"{fit.largest:,}", f"{fit.exponent:.2f}",
    )  # fmt: skip


def changes_table(changes: Sequence[Change]) -> Table:
    """Table of the measurements that two runs have in common, the worst first."""
    rows = (
        (
            change.record.route,
            change.record.problem,
            f"{change.record.vocab_size:,}",
            str(change.record.num_drafts),
            f"{change.times_slower:.2f}{'*' if change.relative else ' '}",
            "LESS EXACT" if change.worse_gap else "SLOWER" if change.is_regression else "",
        )
        for change in changes
    )
    return make_table(
        "against the earlier run",
        ("route", "problem", "V", "K", "x slower", ""),
        rows,
        words=("route", "problem", ""),
        caption="* against the rival in the same run; others by time alone",
    )


_CIRCUMSTANCES = (
    "cpus", "load_average", "python", "numpy", "scipy", "numba", "highspy", "cvxpy", "pycddlib",
    "torch", "mdsd_opt",
)  # fmt: skip


def save_report(report: BenchReport, path: Path, view: View | None = None) -> None:
    """Write a report in the form that the name's end says."""
    texts: dict[str, Callable[[], str]] = {
        ".json": report.as_json, ".csv": report.as_csv, ".md": partial(markdown, report),
    }  # fmt: skip
    if path.suffix in texts:
        with atomic_write(path) as file:
            file.write(texts[path.suffix]().encode())
    else:
        save_view(view or bench_view(report), path)


def markdown(report: BenchReport) -> str:
    """Markdown of the circumstances, a table for each benchmark, and the growth of time with V."""
    where = report.circumstances
    facts = [f"{name} {where[name]}" for name in _CIRCUMSTANCES if name in where]
    parts = [f"{where.get('processor', 'unknown processor')}; {', '.join(facts)}.\n"]
    for benchmark, records in groupby(report.records, key=lambda record: record.benchmark):
        parts.append(_records_as_markdown(benchmark, list(records)))
    if fits := scaling(report.records):
        headings = ("route", "problem", "K", "threads", "V from", "to", "time ~ V to the power")
        lines = map(_fit_cells, fits)
        rows = [(route, problem.replace("_", " "), *rest) for route, problem, *rest in lines]
        parts.append(markdown_table(headings, rows))
    return "\n".join(parts)


def _records_as_markdown(benchmark: str, records: Sequence[Record]) -> str:
    columns = _columns(records)
    rounds = sorted({record.rounds for record in records})
    table = markdown_table([*columns], [*zip(*columns.values(), strict=True)])
    return f"**{benchmark}**, rounds: {', '.join(map(str, rounds))}\n\n{table}"
