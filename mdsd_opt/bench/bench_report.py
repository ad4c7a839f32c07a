"""Reports of measurements with their circumstances: files, changes between two, what they tell."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.frames import Column, Result, Table, data_frame, wrapped
from mdsd_opt.base.installed import versions
from mdsd_opt.bench.record import (
    SHIFT,
    UNSOLVED,
    Mean,
    Outcome,
    Record,
    Summary,
    by_size,
    document,
    means,
    of_all,
    performance_profile,
    scaling,
)
from mdsd_opt.errors import UnreadableFile


@dataclass(frozen=True, slots=True)
class BenchReport(Result):
    """Measurements of one run, and their circumstances."""

    records: tuple[Record, ...]
    circumstances: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)  # what was asked for
    finished: bool = True  # else it was written while others were to come

    columns: ClassVar = (
        "circumstances", "settings", "finished", "records",
        Column("summary", of=lambda report: document(report.records), holds=Summary),
    )  # fmt: skip

    def as_json(self) -> str:
        """BenchReport as JSON: circumstances once, measurements, and what sums them up."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    def csv_rows(self) -> list[dict[str, Any]]:
        """Measurements with circumstances in every line, but for what is empty in all lines."""
        where = {k: v for k, v in self.circumstances.items() if v != "not installed"}
        rows = [{**asdict(record), **where} for record in self.records]
        told = {name for row in rows for name, value in row.items() if value not in (None, "")}
        return [{name: x for name, x in row.items() if name in told} for row in rows]

    def told(self) -> list[str | Table]:
        """Tables of the measurements and of what sums them up, and what is said between them."""
        return [*_told(self.records)]

    def tables(self) -> list[Table]:
        """Those tables alone."""
        return [part for part in self.told() if isinstance(part, Table)]

    def conclusion(self) -> list[str]:
        """Sentences about the quickest of each benchmark, and the largest gap."""
        return _conclusion(self.records)

    def to_pandas(self) -> Any:
        """Data frame with a line for each measurement; `MissingExtra` without pandas."""
        return data_frame([asdict(record) for record in self.records])


def load_report(path: Path) -> BenchReport:
    """BenchReport that was saved as JSON."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        records = tuple(Record(**record) for record in document["records"])
        circumstances = dict(document["circumstances"])
        settings, finished = dict(document.get("settings", {})), document.get("finished", True)
    except FileNotFoundError:
        raise UnreadableFile(f"{path} does not exist") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableFile(
            f"{path} is no report of mdsd-opt bench --out FILE.json: {error}"
        ) from None
    return BenchReport(records, circumstances, settings, finished is True)


def circumstances() -> dict[str, Any]:
    """Machine, load and versions."""
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {"processor": _processor(), "load_average": load, **versions()}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def load_warning(circumstances: Mapping[str, Any]) -> str | None:
    """Sentence on a load above the cores, by which times are too long; None if it was not."""
    load, cores = circumstances.get("load_average"), os.cpu_count() or 1
    if load is None or load <= cores:
        return None
    return (
        f"the load was {load:g} on {cores} cores when this began: others were waiting, and times "
        "are longer than on an idle machine"
    )


#: Changes by less than this factor are within the noise of a busy machine.
NOTABLE = 1.3


@dataclass(frozen=True, slots=True)
class Change(Result):
    """One measurement in both runs.

    Where both have the same rival beside it, `times_slower` is how much it has lost against the
    rival, so that another machine or another load cancels; else it is the ratio of the times.
    """

    record: Record  # of the new run
    times_slower: float
    relative: bool  # to the rival
    worse_gap: bool  # the answer is further from the truth, by more than a factor of 10

    columns: ClassVar = ("*record", "times_slower", "relative", "worse_gap", "is_regression")

    @property
    def is_regression(self) -> bool:
        """Whether the new run is notably slower, or less exact."""
        return self.times_slower > NOTABLE or self.worse_gap


def changes(old: BenchReport, new: BenchReport) -> list[Change]:
    """Changes between two runs, the worst first, without those that did not finish in either."""
    before = {record.key: record for record in old.records}
    differences = []
    for record in new.records:
        past = before.get(record.key)
        if past is None or not past.median_ms or not record.median_ms:
            continue
        relative = past.against == record.against and bool(past.times_faster)
        if relative and past.times_faster and record.times_faster:
            slower = past.times_faster / record.times_faster
        else:
            slower, relative = record.median_ms / past.median_ms, False
        worse = (record.gap or 0.0) > 10.0 * max(past.gap or 0.0, 1e-12)
        differences.append(Change(record, slower, relative, worse))
    return sorted(differences, key=lambda change: (not change.worse_gap, -change.times_slower))


# --- what a report tells ---


def _told(records: Sequence[Record]) -> Iterator[str | Table]:
    """Tables of measurements, and what is said of them before and behind."""
    solving = [record for record in records if record.benchmark == "solvers"]
    if solving:
        yield from _solvers_tables(solving)
        yield from _overall_tables(solving)
    if others := list(_records_tables(records)):
        yield MEANING
        yield from others
    yield from _growth_tables(records)


#: Meaning of the numbers in `_records_tables`.
MEANING = (
    "milliseconds of one call, median and 90th percentile of the rounds where there are several; "
    "lower is better. Empty: there is no rival, or nothing to compare the answer with; -: did not "
    "finish."
)

#: Columns that a column of a paper has no room for.
_BESIDE = ("note", "p90 ms", "setup ms", "threads", "x faster", "else", "over")

#: Headings of columns that are no numbers.
_WORDS = ("route", "problem", "note", "else", "")


def _table(title: str, rows: Sequence[dict[str, str]], **options: Any) -> Table:
    """Table of the rows, without the columns that are empty throughout."""
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    lines = ([row[name] for name in names] for row in rows)
    return Table.of(title, names, lines, words=_WORDS, beside=_BESIDE, **options)


def _each(records: Sequence[Record], name: str, between: str = ", ") -> str:
    """Values of a field, each once."""
    return between.join(sorted({x for record in records if (x := getattr(record, name))}))


def _records_tables(records: Sequence[Record]) -> Iterator[Table]:
    """Tables for each problem of each benchmark but solvers, one line per measurement."""
    rest = [record for record in records if record.benchmark != "solvers"]
    for _, group in groupby(rest, key=lambda record: (record.benchmark, record.problem)):
        yield _records_table(list(group))


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


def _conclusion(records: Sequence[Record]) -> list[str]:
    """Sentences about the quickest of each benchmark at its largest size, and the largest gap."""
    lines = []
    for benchmark, each in groupby(records, key=lambda record: record.benchmark):
        group = list(each)
        done = [record for record in group if record.median_ms is not None]
        if any(record.outcome for record in done):  # what is not solved is not quick
            done = [record for record in done if record.solved]
        if not done:
            word = "solved" if group[0].outcome else "finished"
            lines.append(f"{benchmark}: nothing {word}")
            continue
        largest = max(record.vocab_size for record in done)
        here = [record for record in done if record.vocab_size == largest]
        if any(record.gap_kind == "error" for record in here):  # others give no answer
            here = [record for record in here if record.gap is not None]
        here = [record for record in here if record.solved] or here
        quickest = min(here, key=lambda record: record.counted_ms or 0.0)
        several = len({(record.problem, record.num_drafts) for record in here}) > 1
        where = f" on {quickest.problem}, K = {quickest.num_drafts}," if several else ""
        line = f"{benchmark}: at V = {largest:,},{where} {quickest.route} takes "
        line += f"{_milliseconds(quickest.counted_ms)} ms"
        if quickest.times_faster is not None and quickest.route != quickest.against:
            line += f", {_digits(quickest.times_faster)} times as fast as {quickest.against}"
        worst = max(group, key=lambda record: record.gap or 0.0)
        if worst.gap:
            line += f"; largest gap of all {_gap(worst.gap)} ({worst.gap_kind}, {worst.route})"
        lines.append(line)
    false = dict.fromkeys(r.route for r in records if r.outcome == UNSOLVED[0])
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


def _solvers_tables(records: Sequence[Record]) -> Iterator[str | Table]:
    """Tables for each kind of problem, with a mean of every route over those of one size."""
    words = _method_words(records)
    yield f"{words}; lower is better"
    for (problem, k), sizes in groupby(by_size(records).items(), key=lambda x: x[0][:2]):
        rows = [
            {"V": f"{v:,}", **_mean_cells(mean, rivals)}
            for (_, _, v), group in sizes
            for rivals in [{mean.route: mean for mean in means(group)}]
            for mean in rivals.values()
        ]
        kind = f"{problem.replace('_', ' ')}, K = {k}"
        shows = f"Milliseconds to solve the transport problem, {kind}: {words}"
        yield _table(f"solvers: {kind}", rows, grouped=True, shows=shows)
    if notes := _solvers_notes(records):
        yield notes


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


def _overall_tables(records: Sequence[Record]) -> Iterator[Table]:
    """Tables of the problems that all routes were tried on, if there are several of both."""
    found = sorted(means(of_all(records)), key=lambda mean: (-mean.solved, mean.milliseconds))
    if len(found) < 2 or found[0].total < 2:
        return
    limit = "; what is not solved counts at the limit" if found[-1].solved < found[-1].total else ""
    title = f"over all problems: geometric mean of the times, shifted by {SHIFT:g} ms{limit}"
    shows = f"Shifted geometric mean of the time over all {found[0].total} problems in milliseconds"
    names = ("route", "solved", "ms")
    rows = [{name: _mean_cells(mean, {})[name] for name in names} for mean in found]
    overall = "Over all problems"
    yield _table(f"{title}; lower is better", rows, heading=overall, shows=shows + limit)
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
        shows = title[:1].upper() + title[1:]
        yield _table(f"{title}; higher is better", rows, heading=overall, shows=shows)


def _growth_tables(records: Sequence[Record]) -> Iterator[Table]:
    """Tables of the growth with V and with K, for each kind of problem."""
    fits = scaling(records)
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
        shows = f"Growth of the time with V and with K, with 95 % intervals: {kind}"
        yield _table(f"{title}; lower is better", rows, heading="Growth", shows=shows)


def changes_table(changes: Sequence[Change]) -> Table:
    """Table of the measurements that two runs have in common, the worst first."""
    rows = [
        {
            "route": change.record.route,
            "x slower": f"{change.times_slower:.2f}{'*' if change.relative else ' '}",
            "": "LESS EXACT" if change.worse_gap else "SLOWER" if change.is_regression else "",
            "V": f"{change.record.vocab_size:,}",
            "K": str(change.record.num_drafts),
            "problem": change.record.problem,
        }
        for change in changes
    ]
    caption = "* against the rival in the same run; others by time alone"
    return _table("against the earlier run", rows, caption=caption, heading="Earlier run")
