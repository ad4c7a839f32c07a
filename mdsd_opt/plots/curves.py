"""Curves: what acceptance beyond lossless costs, with rules in use below the closest laws.

Acceptance of several drafts by K.

Acceptance with filters of the draft, against its temperature.

Rates of a paper's experiment, as its figures have them, beside the numbers it states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

from mdsd_opt.base.checked import of_kind
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.planning import BestFilter, setting_shown
from mdsd_opt.plots.drawing import (
    COLUMN,
    MARKERS,
    MOST_WITH_INTERVALS,
    SMALL,
    axes_of,
    draw_intervals,
    finish,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mdsd_opt.corpora import Reproduction
    from mdsd_opt.planning import DraftComparison
    from mdsd_opt.solvers import FrontierPoint, RulePoint


def frontier_figure(points: Sequence[FrontierPoint], rules: Sequence[RulePoint]) -> Figure:
    """Draw acceptance against KL and against total variation, one column wide; a colour for each K.

    A rule stands below the best laws that spend its KL at each position, by what it gives away.
    """
    figure = new_figure(figsize=(COLUMN, 4.0 + 0.15 * len(rules)))
    panels = figure.subplots(2, 1, sharey=True)
    counts = sorted({point.num_drafts for point in points})
    labels = (("kl", "mean KL(output || target) of a step, nats"), ("tv", "mean total variation"))
    for axes, (name, label) in zip(panels, labels, strict=True):
        if name == "kl":
            axes.set_xscale("symlog", linthresh=1e-3)
        for n, k in enumerate(counts):
            line = [point for point in points if point.num_drafts == k]
            xs, ys = [getattr(x, name) for x in line], [x.acceptance_rate for x in line]
            axes.plot(xs, ys, color=f"C{n}", linewidth=1.5, label=f"K = {k}")
        for marker, rule in zip(cycle(MARKERS), rules):
            x = getattr(rule, name)
            if not math.isfinite(x):
                continue
            if name == "kl":
                ends = [rule.acceptance_rate, rule.best_acceptance_rate]
                axes.plot([x, x], ends, color="0.6", linewidth=0.8, marker="_", markersize=4)
            axes.plot(
                x, rule.acceptance_rate, color="0.2", linestyle="", marker=marker, markersize=4,
                label=f"{rule.name}: {rule.acceptance_rate:.4f}, "
                f"best {rule.best_acceptance_rate:.4f}",
            )  # fmt: skip
        axes.set_xlim(left=0)
        finish(axes, label)
    figure.supylabel("mean acceptance rate", fontsize=SMALL + 1)
    shown = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        [*shown.values()], [*shown], loc="outside lower center", ncols=2, frameon=False,
        fontsize=SMALL - 1, columnspacing=1.0, handletextpad=0.4,
    )  # fmt: skip
    return figure


def drafts_figure(found: DraftComparison) -> Figure:
    """Acceptance rate of every draft against K, of two together dashed."""
    figure = new_figure(figsize=(COLUMN, 2.6))
    axes = figure.add_subplot()
    for n, name in enumerate(dict.fromkeys(row.draft for row in found.rates)):
        rows = [row for row in found.rates if row.draft == name]
        draw_intervals(
            axes, [row.num_drafts for row in rows], [row.acceptance for row in rows], marker="o",
            markersize=3, color=f"C{n % 10}", linestyle="--" if " | " in name else "-", label=name,
        )  # fmt: skip
    finish(axes, "number of drafts K", "acceptance rate")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize=SMALL)
    return figure


#: Most filters that one picture tells apart.
_MOST_LINES = 6


def draft_filters(result: BestFilter, ax: Axes | None = None) -> Axes:
    """Acceptance against the temperature of the draft, a line for each of the best filters.

    Parameters
    ----------
    result : BestFilter
        Of `mdsd_opt.best_draft_filter`.
    ax : matplotlib.axes.Axes, optional
        New axes of one column's width unless given.
    """
    of_kind(result, BestFilter, "result", "what best_draft_filter returns")
    axes: Axes = axes_of(ax)
    rates = {row.sampling: row.acceptance.mean for row in result.rates if row.sampling is not None}
    filters = list(dict.fromkeys(replace(setting, temperature=1.0) for setting in rates))
    own, none = replace(result.target, temperature=1.0), Sampling()
    shown = list(dict.fromkeys([*filters[: _MOST_LINES - 2], own, none]))
    for number, setting in enumerate(shown):
        line = sorted(
            (x.temperature, rate) for x, rate in rates.items()
            if replace(x, temperature=1.0) == setting
        )  # fmt: skip
        name = setting_shown(setting).partition(", ")[2] or "no filter"
        label = f"{name} (as the target)" if setting == own and setting != none else name
        axes.plot(
            *zip(*line, strict=True), marker=".", linewidth=1.2, color=f"C{number}", label=label
        )
    point = [result.sampling.temperature], [result.acceptance.mean]
    axes.plot(*point, linestyle="", marker="*", markersize=9, color="C0")
    finish(axes, "temperature of the draft", "acceptance rate")
    axes.legend(fontsize=SMALL)
    return axes


_ACROSS = 3
_DASHES = ("-", "--", ":", "-.")

#: Share of a panel's width by which lines stand apart, so that their bars do not cover each other.
_APART = 0.008


def _parts(name: str) -> tuple[str, str]:
    """What the colour and what the dash of a rate stand for: drafts and verifier, or it alone."""
    first, _, second = name.partition(", ")
    return first, second


def reproduction_figure(result: Reproduction) -> Figure:
    """A panel for every table that is drawn, and for every value that splits it.

    A colour is one kind of drafts, or one quantity, in all panels, and a dash a verifier. Rings and
    shades are the paper's own numbers. Up to three lines of a panel have bars for their intervals.
    """
    from matplotlib.lines import Line2D

    panels = [
        (table, part, lines) for table in result.measured for part, lines in table.curves().items()
    ]
    across = min(_ACROSS, max(1, len(panels)))
    down = max(1, math.ceil(len(panels) / across))
    figure = new_figure(figsize=(3.4 * across, 2.8 * down))
    places = figure.subplots(down, across, squeeze=False).flat
    names = list(dict.fromkeys(name for *_, lines in panels for name in lines))
    colours, dashes = (list(dict.fromkeys(part)) for part in zip(*map(_parts, names), strict=True))
    looks: dict[str, dict[str, Any]] = {x: {"color": f"C{n % 10}"} for n, x in enumerate(colours)}
    styles: dict[str, dict[str, Any]] = {
        x: {"linestyle": _DASHES[n % 4], "marker": MARKERS[n]} for n, x in enumerate(dashes)
    }
    for axes, (table, part, lines) in zip(places, panels, strict=False):
        values = [x for points in lines.values() for x, _ in points]
        numbers = [float(x) for x in values]
        apart = _APART * (max(numbers) - min(numbers))
        for n, (name, points) in enumerate(lines.items()):
            colour, dash = _parts(name)
            look = {**looks[colour], **styles[dash], "markersize": 2.5}
            beside = (
                (n - (len(lines) - 1) / 2) * apart if len(lines) <= MOST_WITH_INTERVALS else 0.0
            )
            xs = [float(x) + beside for x, _ in points]
            if len(lines) <= MOST_WITH_INTERVALS:
                draw_intervals(axes, xs, [y for _, y in points], **look)
            else:
                axes.plot(xs, [y.mean for _, y in points], **look)
            for x, y in table.points.get(name, ()):
                axes.plot(x, y, marker="o", markersize=7, fillstyle="none", **looks[colour])
            if name in table.ranges:
                axes.axhspan(*table.ranges[name], alpha=0.12, linewidth=0, **looks[colour])
        if all(isinstance(x, str) for x in values):
            axes.set_xticks(sorted({*numbers}))
        finish(axes, table.columns[0], table.quantity, title=part or table.panel)
    for axes in list(places):
        axes.set_axis_off()
    entries = [Line2D([], [], label=name, **look) for name, look in looks.items()]
    grey: dict[str, Any] = {"color": "0.3", "markersize": 3}
    if len(styles) > 1:
        entries += [Line2D([], [], label=x, **look, **grey) for x, look in styles.items() if x]
    if any(table.points for table in result.measured):
        ring: dict[str, Any] = {
            "linestyle": "",
            "marker": "o",
            "markersize": 7,
            "fillstyle": "none",
        }
        entries.append(Line2D([], [], label="read off the paper", color="0.3", **ring))
    if any(table.ranges for table in result.measured):
        entries.append(Line2D([], [], label="stated range", color="0.3", linewidth=6, alpha=0.2))
    figure.legend(handles=entries, loc="outside lower center", ncols=across + 1, fontsize=SMALL)
    return figure
