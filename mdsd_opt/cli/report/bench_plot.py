"""Measurements as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mdsd_opt.cli.bench.record import Record, Report
from mdsd_opt.cli.report.pictures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "x")


def _lines(records: Sequence[Record]) -> dict[tuple[str, str, int], list[tuple[int, float]]]:
    """Points of V and time; several of the same V, with other threads, keep the fastest."""
    best: dict[tuple[str, str, int], dict[int, float]] = {}
    for record in records:
        if record.median_ms is not None:
            points = best.setdefault((record.route, record.problem, record.num_drafts), {})
            known = points.get(record.vocab_size, record.median_ms)
            points[record.vocab_size] = min(known, record.median_ms)
    return {key: list(points.items()) for key, points in best.items()}


def bench_figure(report: Report) -> Figure:
    """Time against V, a line for each route, a panel for each benchmark.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    done = [record for record in report.records if record.median_ms is not None]
    panels = {
        benchmark: _lines([record for record in done if record.benchmark == benchmark])
        for benchmark in dict.fromkeys(record.benchmark for record in done)
    }
    heights = [max(3.6, 0.15 * len(lines) + 0.7) for lines in panels.values()]
    figure = new_figure(figsize=(10.0, sum(heights)))
    all_axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (benchmark, lines) in zip(all_axes, panels.items(), strict=True):
        routes, problems, drafts = (list(dict.fromkeys(part)) for part in zip(*lines, strict=True))
        by_problem = len(problems) > len(routes)  # colours, of which there are most
        colours, styles = (problems, routes) if by_problem else (routes, problems)
        for (route, problem, num_drafts), points in lines.items():
            axes.plot(
                *zip(*sorted(points), strict=True),
                color=f"C{colours.index((route, problem)[by_problem]) % 10}",
                linestyle=_STYLES[styles.index((problem, route)[by_problem]) % len(_STYLES)],
                marker=_MARKERS[drafts.index(num_drafts) % len(_MARKERS)],
                markersize=4,
                label=f"{route}, {problem.replace('_', ' ')}"
                + (f", K = {num_drafts}" if num_drafts else ""),
            )
        axes.set(xscale="log", yscale="log", xlabel="V", ylabel="milliseconds", title=benchmark)
        axes.legend(fontsize=6, loc="upper left", bbox_to_anchor=(1.01, 1.0))
        axes.grid(alpha=0.3)
    return figure
