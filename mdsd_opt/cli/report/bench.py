"""Views of measurements, and their files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mdsd_opt.base.files import atomic_write
from mdsd_opt.base.frames import markdown_table
from mdsd_opt.bench import (
    SHIFT,
    UNSOLVED,
    BenchReport,
    Change,
    Mean,
    Outcome,
    Record,
    Scaling,
    by_size,
    load_warning,
    means,
    not_installed,
    of_all,
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
    solving = [record for record in report.records if record.benchmark == "solvers"]
    tables = [_solvers_section(solving), *_overall_sections(solving)] if solving else []
    tables += [
        Section("" if n else "Measurements", None if n else MEANING, table=table, keys=NUM_KEYS,
                beside=BESIDE)
        for n, table in enumerate(records_tables(report))
    ]  # fmt: skip
    fitted = scaling_table(report.records)
    if fitted.row_count:
        tables.append(Section("Growth", table=fitted, shows=GROWTH, beside=("form",)))
    where = report.circumstances
    names = (name for name in _TOLD if name in where)
    circumstances = ", ".join(f"{name.replace('_', ' ')} {where[name]}" for name in names)
    warned = [x for x in (load_warning(where),) if x]
    if not report.finished:
        warned.append("this run was not finished: the same command goes on with it")
    earlier = [Section("Earlier run", table=changes_table(changes))] if changes else []
    return View(
        f"Speed\n{circumstances}",
        [*tables, Section(text=circumstances)],
        [*conclusion(report), *not_installed(report), *warned, *earlier],
        report.as_json().rstrip(),
        Drawing(
            partial(bench_figure, report),
            "Time of one call against the vocabulary, logarithmic axes, with the range over "
            "problems; a broad line is the fit that the legend has. Lower is better.",
        ),
        rows=report.csv_rows(),
    )


#: Meaning of the numbers in `records_tables`.
MEANING = (
    "milliseconds of one call, median and 90th percentile of the rounds where there are several; "
    "lower is better. Empty: there is no rival, or nothing to compare the answer with; -: did not "
    "finish."
)

#: Columns that a column of a paper has no room for.
BESIDE = ("note", "p90 ms", "setup ms", "threads")

#: Caption of the growth in a paper.
GROWTH = "Growth of the time with V at fixed K, and with K at fixed V, with 95 % intervals"

#: Circumstances that stand below the tables.
_TOLD = ("processor", "cpus", "load_average", "python", "numpy", "numba", "mdsd_opt")

#: Number of columns of `records_tables` that say what was measured, without the threads.
NUM_KEYS = 3


def records_tables(report: BenchReport) -> list[Table]:
    """Tables for each problem of each benchmark but solvers, one line per measurement."""
    rest = [record for record in report.records if record.benchmark != "solvers"]
    groups = groupby(rest, key=lambda record: (record.benchmark, record.problem))
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
        "median ms" if several else "ms": lambda record: _milliseconds(record.counted_ms),
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
        if any(record.outcome for record in done):  # what is not solved is not quick
            done = [record for record in done if record.solved]
        if not done:
            word = "solved" if records[0].outcome else "finished"
            lines.append(f"{benchmark}: nothing {word}")
            continue
        largest = max(record.vocab_size for record in done)
        here = [record for record in done if record.vocab_size == largest]
        if any(record.gap_kind == "error" for record in here):  # others give no answer
            here = [record for record in here if record.gap is not None]
        here = [record for record in here if record.solved] or here
        quickest = min(here, key=lambda record: record.counted_ms or 0.0)
        line = f"{benchmark}: at V = {largest:,}, {quickest.route} takes "
        line += f"{_milliseconds(quickest.counted_ms)} ms"
        if quickest.times_faster is not None and quickest.route != quickest.against:
            line += f", {_digits(quickest.times_faster)} times as fast as {quickest.against}"
        worst = max(records, key=lambda record: record.gap or 0.0)
        if worst.gap:
            line += f"; largest gap of all {_gap(worst)} ({worst.gap_kind}, {worst.route})"
        lines.append(line)
    false = dict.fromkeys(r.route for r in report.records if r.outcome == UNSOLVED[0])
    return [*lines, *(f"{route} claims what its certificate refutes" for route in false)]


def _gap(record: Record) -> str:
    return "" if record.gap is None else _power(record.gap)


def _power(gap: float) -> str:
    return f"{gap:.0e}"


def _milliseconds(time: float | None) -> str:
    return "-" if time is None else _digits(time)


def _digits(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


#: Factors of the quickest time in the table of performance profiles.
_FACTORS = (1, 2, 5, 10, 100)


def _solvers_section(records: Sequence[Record]) -> Section:
    """Section with a mean of every route over the problems of one kind and size."""
    rows = [
        (problem.replace("_", " "), f"{v:,}", str(k), *_mean_cells(mean, rivals))
        for (problem, v, k), group in by_size(records).items()
        for found in [means(group)]
        for rivals in [{mean.route: mean for mean in found}]
        for mean in found
    ]
    headings = ["problems", "V", "K", "route", "solved", "ms", "95 %", "x faster", "gap", "else"]
    columns = dict(zip(headings, zip(*rows, strict=True), strict=True))
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    same = {
        name: cells[0] for name, cells in columns.items()
        if name in ("problems", "K") and len(set(cells)) == 1
    }  # fmt: skip
    words = "".join(f", {x if name == 'problems' else f'K = {x}'}" for name, x in same.items())
    for name in (*same, *(["solved"] if set(columns["solved"]) == {"1 of 1"} else [])):
        del shown[name]
    starts = [n for n, row in enumerate(rows) if row[:3] != rows[n - 1][:3]]
    table = make_table(
        f"solvers{words}: {_method_words(records)}; lower is better",
        [*shown],
        zip(*shown.values(), strict=True),
        words=("problems", "route", "else"),
        caption=_solvers_caption(records),
    )
    for start in starts[1:]:
        table.rows[start - 1].end_section = True
    return Section(
        "Measurements", table=table, keys=4 - len(same), beside=("x faster", "gap", "else"),
        shows=f"Milliseconds to solve the transport problem{words}: {_method_words(records)}",
    )  # fmt: skip


def _method_words(records: Sequence[Record]) -> str:
    most = max(len(group) for group in by_size(records).values()) // len({r.route for r in records})
    limits = sorted({f"{r.limit_ms / 1e3:g} s" for r in records if r.limit_ms})
    text = "time of one problem"
    if most > 1:
        text = f"geometric mean of the times, shifted by {SHIFT:g} ms, and its 95 % interval"
    return text + (f"; what is not solved counts as {' or '.join(limits)}" if limits else "")


#: Outcomes other than solved of which the time tells something.
_ENDED = (Outcome.FALSE, Outcome.UNPROVED, Outcome.INEXACT, Outcome.BOUND)


def _mean_cells(mean: Mean, rivals: dict[str, Mean]) -> tuple[str, ...]:
    against = next((r.against for r in mean.records if r.against), "")
    rival = rivals.get(against or "")
    both = rival is not None and mean.solved == mean.total == rival.solved
    gaps = [record.gap for record in mean.records if record.gap is not None]
    unsolved = [
        f"{len(times)} {word}" + (f" in {_digits(float(np.median(done)))} ms" if done else "")
        for word in UNSOLVED
        if (times := [r.counted_ms for r in mean.records if r.outcome == word])
        for done in [[ms for ms in times if ms is not None and word in _ENDED]]
    ]
    slow = any(record.first_ms is not None for record in mean.records)
    return (
        mean.route,
        f"{mean.solved} of {mean.total}",
        _digits(mean.milliseconds) + ("*" if slow else ""),
        "" if mean.low is None else f"[{_digits(mean.low)}, {_digits(mean.high)}]",
        _digits(rival.milliseconds / mean.milliseconds) if both and rival else "",
        _power(max(gaps)) if gaps else "",
        ", ".join(unsolved),
    )


def _solvers_caption(records: Sequence[Record]) -> str | None:
    """Choices that methods made, and first calls that took longer than the next ones."""
    parts: list[str] = []
    forms: dict[str, dict[str, list[str]]] = {}
    for record in records:
        if record.form:
            sizes = forms.setdefault(record.route, {}).setdefault(record.form, [])
            sizes.append(f"V = {record.vocab_size:,}, K = {record.num_drafts}")
    for route, sizes_of in forms.items():
        where = len(sizes_of) > 1
        parts += [
            f"{route}: {form}" + (f" ({'; '.join(dict.fromkeys(sizes))})" if where else "")
            for form, sizes in sizes_of.items()
        ]
    if any(record.against for record in records):
        parts.append(f"x faster: than {_each(records, 'against', ', ')}, where both solved all")
    slow = [r for r in records if r.first_ms is not None and r.median_ms]
    if slow:
        worst = max(slow, key=lambda r: (r.first_ms or 0.0) / (r.median_ms or 1.0))
        factor = (worst.first_ms or 0.0) / (worst.median_ms or 1.0)
        parts.append(f"*: the first call of a problem counts, up to {_digits(factor)} times as "
                     f"long as the next ones ({worst.route})")  # fmt: skip
    return ". ".join(parts) or None


def _overall_sections(records: Sequence[Record]) -> list[Section]:
    """Sections on the problems that all routes were tried on, if there are several of both."""
    common = of_all(records)
    found = sorted(means(common), key=lambda mean: (-mean.solved, mean.milliseconds))
    if len(found) < 2 or found[0].total < 2:
        return []
    limit = "; what is not solved counts at the limit" if found[-1].solved < found[-1].total else ""
    title = f"over all problems: geometric mean of the times, shifted by {SHIFT:g} ms{limit}"
    rows = [_mean_cells(mean, {})[:3] for mean in found]
    of_means = make_table(f"{title}; lower is better", ("route", "solved", "ms"), rows)
    sections = [
        Section("Over all problems", table=of_means,
                shows=f"Shifted geometric mean of the time over all {found[0].total} problems in "
                f"milliseconds{limit}")
    ]  # fmt: skip
    total, ratios = performance_profile(records)
    if total:
        of_profiles = make_table(
            f"performance profiles: share of {total} problems on which a route took at most so "
            "many times as long as the quickest; higher is better",
            ("route", *(f"x {factor}" for factor in _FACTORS)),
            [
                (x.route, *(f"{sum(y <= factor for y in ratios[x.route]) / total:.2f}"
                            for factor in _FACTORS))
                for x in found
            ],
        )  # fmt: skip
        shows = f"Performance profiles: share of {total} problems on which a method takes at most "
        shows += "so many times as long as the quickest one"
        sections.append(Section("Over all problems", table=of_profiles, shows=shows))
    return sections


_GROWTH = ("route", "form", "problems", "at", "grows as", "95 %", "from", "to")


def scaling_table(records: Sequence[Record]) -> Table:
    """Table of the growth with V and with K."""
    rows = [_fit_cells(fit) for fit in scaling(records)]
    kept = [n for n, name in enumerate(_GROWTH) if name != "form" or any(row[n] for row in rows)]
    return make_table(
        "how time grows, over the sizes where all was solved; lower is better",
        [_GROWTH[n] for n in kept],
        ([row[n] for n in kept] for row in rows),
        words=("route", "form", "problems"),
    )


def _fit_cells(fit: Scaling) -> tuple[str, ...]:
    record, is_v = fit.record, fit.axis == "V"
    fixed = f"K = {record.num_drafts or 'any'}" if is_v else f"V = {record.vocab_size:,}"
    if record.threads > 1:
        fixed += f", {record.threads} threads"
    return (
        record.route, record.form, record.problem.replace("_", " "), fixed, fit.shown,
        f"[{fit.low:.3g}, {fit.high:.3g}]", f"{fit.smallest:,}", f"{fit.largest:,}",
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
        parts.append(markdown_table(_GROWTH, map(_fit_cells, fits)))
    return "\n".join(parts)


def _records_as_markdown(benchmark: str, records: Sequence[Record]) -> str:
    columns = _columns(records)
    rounds = sorted({record.rounds for record in records})
    table = markdown_table([*columns], [*zip(*columns.values(), strict=True)])
    return f"**{benchmark}**, rounds: {', '.join(map(str, rounds))}\n\n{table}"
