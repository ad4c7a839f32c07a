"""Views of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd_opt.bench import (
    SHIFT,
    UNSOLVED,
    BenchReport,
    Change,
    Mean,
    Outcome,
    Record,
    by_size,
    load_warning,
    means,
    not_installed,
    of_all,
    performance_profile,
    scaling,
)
from mdsd_opt.cli.output import make_table, wrapped
from mdsd_opt.cli.view import Drawing, Section, View
from mdsd_opt.plots import bench_figure

if TYPE_CHECKING:
    from rich.table import Table


def bench_view(report: BenchReport, changes: Sequence[Change] = ()) -> View:
    """View of the measurements of a run, and their differences from those of an earlier one."""
    solving = [record for record in report.records if record.benchmark == "solvers"]
    tables = [*_solvers_sections(solving), *_overall_sections(solving)] if solving else []
    others = records_tables(report)
    tables += [Section("Measurements", MEANING)] if others else []
    tables += [Section("", table=table, keys=3, beside=BESIDE) for table in others]
    tables += _growth_sections(report.records)
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
BESIDE = ("note", "p90 ms", "setup ms", "threads", "x faster", "else", "over")

#: Circumstances that stand below the tables.
_TOLD = (
    "processor", "cpus", "load_average", "python", "numpy", "scipy", "numba", "highspy", "mdsd_opt",
)  # fmt: skip


#: Headings of columns that are no numbers.
_WORDS = ("route", "problem", "note", "else", "")


def _table(title: str, rows: Sequence[dict[str, str]], **options: Any) -> Table:
    """Table of the rows, without the columns that are empty throughout."""
    told = [name for name in rows[0] if any(row[name] for row in rows)]
    lines = ([row[name] for name in told] for row in rows)
    return make_table(title, told, lines, words=_WORDS, **options)


def _each(records: Sequence[Record], name: str, between: str = ", ") -> str:
    """Values of a field, each once."""
    return between.join(sorted({x for record in records if (x := getattr(record, name))}))


def records_tables(report: BenchReport) -> list[Table]:
    """Tables for each problem of each benchmark but solvers, one line per measurement."""
    rest = [record for record in report.records if record.benchmark != "solvers"]
    groups = groupby(rest, key=lambda record: (record.benchmark, record.problem))
    return [_records_table(list(records)) for _, records in groups]


def _records_table(records: Sequence[Record]) -> Table:
    first, against = records[0], _each(records, "against")
    several = any(record.rounds > 1 for record in records)
    threads = first.threads if len({record.threads for record in records}) == 1 else 0
    title = f"{first.benchmark}: {first.problem.replace('_', ' ')}"
    title += f", {threads} thread{'s' if threads > 1 else ''}" if threads else ""
    title += f"; x faster: than {against} in the same run" if against else ""
    rows = [
        {
            "V": f"{record.vocab_size:,}",
            "K": str(record.num_drafts or "any"),
            "route": record.route,
            "threads": "" if threads else str(record.threads),
            "median\nms" if several else "ms": _milliseconds(record.counted_ms),
            "p90\nms": _milliseconds(record.p90_ms) if several else "",
            "setup\nms": _digits(record.setup_ms),
            "x\nfaster": _digits(record.times_faster),
            f"gap:\n{_each(records, 'gap_kind', ' or ')}": _gap(record.gap),
            "note": record.note,
        }
        for record in records
    ]
    return _table(title, rows, grouped=True)


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
            line += f"; largest gap of all {_gap(worst.gap)} ({worst.gap_kind}, {worst.route})"
        lines.append(line)
    false = dict.fromkeys(r.route for r in report.records if r.outcome == UNSOLVED[0])
    return [*lines, *(f"{route} claims what its certificate refutes" for route in false)]


def _gap(gap: float | None) -> str:
    return "" if gap is None else f"{gap:.0e}"


def _milliseconds(time: float | None) -> str:
    return "-" if time is None else _digits(time)


def _digits(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


#: Factors of the quickest time in the table of performance profiles.
_FACTORS = (1, 2, 5, 10, 100)


def _solvers_sections(records: Sequence[Record]) -> list[Section]:
    """Sections for each kind of problem, with a mean of every route over those of one size."""
    words = _method_words(records)
    sections = [Section("Measurements", f"{words}; lower is better")]
    for (problem, k), sizes in groupby(by_size(records).items(), key=lambda x: x[0][:2]):
        rows = [
            {"V": f"{v:,}", **_mean_cells(mean, rivals)}
            for (_, _, v), group in sizes
            for rivals in [{mean.route: mean for mean in means(group)}]
            for mean in rivals.values()
        ]
        kind = f"{problem.replace('_', ' ')}, K = {k}"
        table = _table(f"solvers: {kind}", rows, grouped=True)
        shows = f"Milliseconds to solve the transport problem, {kind}: {words}"
        sections.append(Section("", table=table, keys=2, beside=BESIDE, shows=shows))
    return [*sections, Section("", told)] if (told := _solvers_notes(records)) else sections


def _method_words(records: Sequence[Record]) -> str:
    most = max(len(group) for group in by_size(records).values()) // len({r.route for r in records})
    limits = sorted({f"{r.limit_ms / 1e3:g} s" for r in records if r.limit_ms})
    text = "time of one problem"
    if most > 1:
        text = f"geometric mean of the times, shifted by {SHIFT:g} ms, and its 95 % interval"
    return text + (f"; what is not solved counts as {' or '.join(limits)}" if limits else "")


#: Outcomes other than solved of which the time tells something.
_ENDED = (Outcome.FALSE, Outcome.UNPROVED, Outcome.INEXACT, Outcome.BOUND)


def _mean_cells(mean: Mean, rivals: dict[str, Mean]) -> dict[str, str]:
    rival = rivals.get(next((r.against for r in mean.records if r.against), ""))
    both = rival is not None and mean.solved == mean.total == rival.solved
    unsolved = []
    for word in UNSOLVED:
        found = [record for record in mean.records if record.outcome == word]
        done = [r.counted_ms for r in found if r.counted_ms is not None and word in _ENDED]
        took = f" in {_digits(float(np.median(done)))} ms" if done else ""
        gaps = [record.gap for record in found if record.gap is not None]
        left = f", gap {_gap(max(gaps))}" if gaps else ""
        unsolved += [f"{len(found)} {word}{took}{left}"] if found else []
    slow = any(record.first_ms is not None for record in mean.records)
    return {
        "route": wrapped(mean.route, 20),
        "solved": f"{mean.solved} of {mean.total}",
        "ms": _digits(mean.milliseconds) + ("*" if slow else ""),
        "95 %": "" if mean.low is None else f"[{_digits(mean.low)}, {_digits(mean.high)}]",
        "x\nfaster": _digits(rival.milliseconds / mean.milliseconds) if both and rival else "",
        "else": "; ".join(unsolved),
    }


def _solvers_notes(records: Sequence[Record]) -> str:
    """Choices that methods made, and first calls that took longer than the next ones."""
    forms: dict[str, dict[str, list[str]]] = {}
    for record in records:
        if record.form:
            sizes = forms.setdefault(record.route, {}).setdefault(record.form, [])
            sizes.append(f"V = {record.vocab_size:,}, K = {record.num_drafts}")
    parts = [
        f"{route}: {form}" + (f" ({'; '.join(dict.fromkeys(sizes))})" if len(sizes_of) > 1 else "")
        for route, sizes_of in forms.items()
        for form, sizes in sizes_of.items()
    ]
    if against := _each(records, "against"):
        parts.append(f"x faster: than {against}, where both solved all")
    slow = {(r.first_ms / r.median_ms, r.route) for r in records if r.first_ms and r.median_ms}
    if slow:
        factor, route = max(slow)
        parts.append(f"*: the first call of a problem counts, up to {_digits(factor)} times as "
                     f"long as the next ones ({route})")  # fmt: skip
    return ". ".join(parts)


def _overall_sections(records: Sequence[Record]) -> list[Section]:
    """Sections on the problems that all routes were tried on, if there are several of both."""
    found = sorted(means(of_all(records)), key=lambda mean: (-mean.solved, mean.milliseconds))
    if len(found) < 2 or found[0].total < 2:
        return []
    limit = "; what is not solved counts at the limit" if found[-1].solved < found[-1].total else ""
    title = f"over all problems: geometric mean of the times, shifted by {SHIFT:g} ms{limit}"
    shows = f"Shifted geometric mean of the time over all {found[0].total} problems in milliseconds"
    names = ("route", "solved", "ms")
    rows = [{name: _mean_cells(mean, {})[name] for name in names} for mean in found]
    table = _table(f"{title}; lower is better", rows)
    sections = [Section("Over all problems", table=table, shows=shows + limit)]
    total, ratios = performance_profile(records)
    if total:
        title = f"performance profiles: share of {total} problems on which a route took at most "
        title += "so many times as long as the quickest"
        rows = [
            {"route": wrapped(x.route, 20)}
            | {
                f"x {factor}": f"{sum(y <= factor for y in ratios[x.route]) / total:.2f}"
                for factor in _FACTORS
            }
            for x in found
        ]
        table, shows = _table(f"{title}; higher is better", rows), title[:1].upper() + title[1:]
        sections.append(Section("Over all problems", table=table, shows=shows))
    return sections


def _growth_sections(records: Sequence[Record]) -> list[Section]:
    """Sections on the growth with V and with K, for each kind of problem."""
    fits = scaling(records)
    sections = []
    for problem in dict.fromkeys(fit.record.problem for fit in fits):
        rows = [
            {
                "route": wrapped(record.route, 20),
                "threads": "" if record.threads == 1 else str(record.threads),
                "at": f"K = {record.num_drafts or 'any'}" if is_v else f"V = {record.vocab_size:,}",
                "over": f"{fit.smallest:,}-{fit.largest:,}",
                "grows as": fit.shown,
                "95 %": f"[{fit.low:.2f}, {fit.high:.2f}]",
            }
            for fit in fits
            if fit.record.problem == problem
            for record, is_v in [(fit.record, fit.axis == "V")]
        ]
        kind = problem.replace("_", " ")
        title = f"how time grows, {kind}: over the sizes where all was solved"
        table = _table(f"{title}; lower is better", rows)
        shows = f"Growth of the time with V and with K, with 95 % intervals: {kind}"
        sections.append(Section("Growth", table=table, shows=shows, beside=BESIDE))
    return sections


def changes_table(changes: Sequence[Change]) -> Table:
    """Table of the measurements that two runs have in common, the worst first."""
    rows = [
        {
            "route": change.record.route,
            "problem": change.record.problem,
            "V": f"{change.record.vocab_size:,}",
            "K": str(change.record.num_drafts),
            "x slower": f"{change.times_slower:.2f}{'*' if change.relative else ' '}",
            "": "LESS EXACT" if change.worse_gap else "SLOWER" if change.is_regression else "",
        }
        for change in changes
    ]
    caption = "* against the rival in the same run; others by time alone"
    return _table("against the earlier run", rows, caption=caption)
