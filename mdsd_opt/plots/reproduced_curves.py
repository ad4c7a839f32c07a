"""Rates of a paper's experiment, as its figures have them, beside the numbers it states."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mdsd_opt.plots.drawing import MARKERS, SMALL, draw_intervals, finish, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mdsd_opt.corpora import Reproduction

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
    shades are the paper's own numbers.
    """
    from matplotlib.lines import Line2D

    panels = [
        (table, part, lines) for table in result.tables for part, lines in table.curves().items()
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
            xs = [float(x) + (n - (len(lines) - 1) / 2) * apart for x, _ in points]
            draw_intervals(axes, xs, [y for _, y in points], **look)
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
    if any(table.points for table in result.tables):
        ring: dict[str, Any] = {
            "linestyle": "",
            "marker": "o",
            "markersize": 7,
            "fillstyle": "none",
        }
        entries.append(Line2D([], [], label="read off the paper", color="0.3", **ring))
    if any(table.ranges for table in result.tables):
        entries.append(Line2D([], [], label="stated range", color="0.3", linewidth=6, alpha=0.2))
    figure.legend(handles=entries, loc="outside lower center", ncols=across + 1, fontsize=SMALL)
    return figure
