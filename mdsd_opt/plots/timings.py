"""Time of a call against V, of everything that was measured side by side."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd_opt.base.checked import is_among, of_kind
from mdsd_opt.bench import BenchReport, Record, load_report, performance_profile, scaling
from mdsd_opt.errors import InvalidInput
from mdsd_opt.plots.drawing import COLUMN, MOST_WITH_INTERVALS, SMALL, axes_of, finish, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "x")


def _quickest(records: Sequence[Record]) -> list[Record]:
    """Records of what a route did on a problem as it promises, with the threads that are best."""
    best: dict[tuple[Any, ...], Record] = {}
    for record in records:
        if record.finished and record.counted_ms:
            key = replace(record, threads=0).key
            known = best.setdefault(key, record)
            best[key] = min(known, record, key=lambda record: record.counted_ms or 0.0)
    return list(best.values())


def _lines(records: Sequence[Record]) -> dict[tuple[str, str, int], dict[int, list[float]]]:
    """Times at each V, in rising order."""
    lines: dict[tuple[str, str, int], dict[int, list[float]]] = {}
    for record in records:
        line = record.route, record.problem, record.num_drafts
        times = lines.setdefault(line, {}).setdefault(record.vocab_size, [])
        times.append(record.counted_ms or 0.0)
    return {line: dict(sorted(sizes.items())) for line, sizes in lines.items()}


def bench(
    result: BenchReport | str | os.PathLike[str],
    ax: Axes | None = None,
    *,
    benchmark: str | None = None,
) -> Axes:
    """Time of a call against V, both logarithmic, a line for each route.

    Parameters
    ----------
    result : BenchReport or path
        Report that ``mdsd-opt bench --out FILE.json`` has saved, or its path.
    ax : matplotlib.axes.Axes, optional
        New axes unless given.
    benchmark : str, optional
        Which of the benchmarks in it; the first unless given.

    Raises
    ------
    InvalidInput, UnreadableFile
        Nothing was measured, or the file is no report.
    MissingExtra
        There is no matplotlib.
    """
    if isinstance(result, str | os.PathLike):
        result = load_report(Path(result))
    report = of_kind(result, BenchReport, "result", "a report of mdsd-opt bench, or its path")
    done = [record for record in report.records if record.median_ms is not None]
    known = list(dict.fromkeys(record.benchmark for record in done))
    if not known or not is_among(benchmark, known):
        raise InvalidInput(f"benchmark is {benchmark!r:.60}: measured are {known}")
    axes: Axes = axes_of(ax)
    _draw_times(axes, [record for record in done if record.benchmark == (benchmark or known[0])])
    return axes


#: Most entries of a legend; lines beyond are drawn without one.
_MOST_ENTRIES = 12


def bench_figure(report: BenchReport) -> Figure:
    """Picture of time against V, a line for each route, a panel for each benchmark.

    Below the times of solvers that had the same problems, three or more, stand their performance
    profiles; alone where no line has three sizes.
    """
    done = [record for record in report.records if record.median_ms is not None]
    panels = [[*records] for _, records in groupby(done, key=lambda record: record.benchmark)]
    solving = [record for record in report.records if record.benchmark == "solvers"]
    profiled = [solving] if _num_solved(solving) >= _MANY else []
    several = len(panels) > 1
    panels = [
        x for x in panels
        if not (profiled and x[0].benchmark == "solvers")
        or max(map(len, _lines(x).values()), default=0) > 2
    ]  # fmt: skip
    count = len(panels) + len(profiled)
    figure = new_figure(figsize=(1.5 * COLUMN, 3.8 * count or 1.0))
    all_axes = figure.subplots(max(count, 1), 1, squeeze=False)[:, 0]
    for axes, records in zip(all_axes, panels, strict=False):
        _draw_times(axes, records)
        if several:
            axes.set_title(records[0].benchmark, fontsize=SMALL + 1)
    for axes, records in zip(all_axes[len(panels) :], profiled, strict=True):
        _draw_profiles(axes, records)
    return figure


#: Least number of problems whose profiles are drawn.
_MANY = 3


def _num_solved(records: Sequence[Record]) -> int:
    total, ratios = performance_profile(records)
    return total if sum(map(bool, ratios.values())) > 1 else 0


def _draw_profiles(axes: Axes, records: Sequence[Record]) -> None:
    """Draw the share of problems against the factor of the quickest time, for each route."""
    total, ratios = performance_profile(records)
    longest = max(x for values in ratios.values() for x in values)
    for n, (route, values) in enumerate(ratios.items()):
        factors = [1.0, *values, 2 * longest]
        shares = [sum(x <= factor for x in values) / total for factor in factors]
        look: dict[str, Any] = {"color": f"C{n % 10}", "linestyle": _STYLES[n // 10 % len(_STYLES)]}
        axes.plot(factors, shares, drawstyle="steps-post", label=route, **look)
    axes.set(xscale="log", ylim=(-0.02, 1.02))
    finish(axes, "times as long as the quickest", f"share of {total} problems")
    _put_legend_below(axes)


def _put_legend_below(axes: Axes, **options: Any) -> None:
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.22), "ncols": 2}
    axes.legend(fontsize=SMALL, frameon=False, **place, **options)


def _draw_times(axes: Axes, records: Sequence[Record]) -> None:
    """Draw time against V, a line for each route, problem and K, for one benchmark.

    Points are geometric means over problems with the range of their times; a broad line, of up
    to three, is a fit.
    Colours, line styles and markers have entries of their own in the legend, so that it stays short
    where there are many lines; of more than twelve the rest are counted.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import NullLocator

    records = [replace(x, problem=x.problem.replace("_", " ")) for x in _quickest(records)]
    lines = _lines(records)
    routes, problems, drafts = ({*part} for part in zip(*lines, strict=True))
    shared: Callable[[str], str] = str
    if len(routes) + len(problems) + len(drafts) > _MOST_ENTRIES:
        shared = _without_options  # options have their method's look
    by_problem = len(problems) > len({*map(shared, routes)})  # colours, of which there are most

    def named(route: str, problem: str) -> tuple[str, str]:
        """What has the colour, and what the dash."""
        return (problem, shared(route)) if by_problem else (shared(route), problem)

    colours, styles = map(dict.fromkeys, zip(*(named(*x[:2]) for x in lines), strict=True))
    looks: dict[str, dict[str, Any]] = {
        name: {"color": f"C{n % 10}"} for n, name in enumerate(colours)
    }
    dashes = {name: {"linestyle": _STYLES[n % len(_STYLES)]} for n, name in enumerate(styles)}
    marks = {k: {"marker": _MARKERS[n % len(_MARKERS)]} for n, k in enumerate(sorted(drafts))}
    for (route, problem, num_drafts), points in lines.items():
        colour, style = named(route, problem)
        means = np.exp([np.mean(np.log(times)) for times in points.values()])
        look: dict[str, Any] = {**looks[colour], **dashes[style], **marks[num_drafts]}
        axes.plot([*points], means, markersize=4, **look)
        ranges = [(min(times), max(times)) for times in points.values()]
        axes.vlines([*points], *zip(*ranges, strict=True), linewidth=0.7, **looks[colour])
    growth: dict[str, set[str]] = {name: set() for name in looks}
    for fit in scaling(records):
        if fit.axis == "V":
            record = fit.record
            colour, _ = named(record.route, record.problem)
            growth[colour].add(f"{colour}, ${fit.shown.replace('^', '^{')}}}$")
            if len(lines) > MOST_WITH_INTERVALS:
                continue
            points = lines[(record.route, record.problem, record.num_drafts)]
            logs = [(np.log(v), np.log(ms)) for v, times in points.items() for ms in times]
            v, ms = np.exp(np.mean(logs, axis=0))
            ends = np.array([fit.smallest, fit.largest])
            axes.plot(ends, ms * (ends / v) ** fit.rate, linewidth=3, alpha=0.25, **looks[colour])
    keys: list[tuple[str, dict[str, Any]]] = [
        (min(growth[name]) if len(growth[name]) == 1 else name, look)
        for name, look in looks.items()
    ]
    keys += [(name, {"color": "0.3", **look}) for name, look in dashes.items() if len(dashes) > 1]
    keys += [
        (f"K = {k or 'any'}", {"color": "0.3", "linestyle": "", **look})
        for k, look in marks.items()
        if len(marks) > 1
    ]
    if any(growth.values()) and len(lines) <= MOST_WITH_INTERVALS:
        keys.append(("fit: a power of V", {"color": "0.3", "linewidth": 3, "alpha": 0.25}))
    shown = keys if len(keys) <= _MOST_ENTRIES else keys[: _MOST_ENTRIES - 1]
    entries: list[Any] = [Line2D([], [], label=name, markersize=4, **look) for name, look in shown]
    if len(shown) < len(keys):
        entries.append(Line2D([], [], linestyle="", label=f"and {len(keys) - len(shown)} more"))
    axes.set(xscale="log", yscale="log")
    finish(axes, "vocabulary size V", "milliseconds")
    _put_legend_below(axes, handles=entries)
    sizes = sorted({record.vocab_size for record in records})
    if len(sizes) <= _MOST_TICKS:
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())


def _without_options(route: str) -> str:
    """Name of a route without what follows it as ``option=value``."""
    return re.sub(r"(,? \w+=\S+)+$", "", route)


#: Most sizes that are all written under a picture.
_MOST_TICKS = 8
