"""Rates of a paper's experiment, as its figures have them."""

from __future__ import annotations

import math
from textwrap import fill
from typing import TYPE_CHECKING

from mdsd_opt.plots.drawing import MARKERS, SMALL, draw_intervals, finish, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mdsd_opt.corpora import Reproduction

_ACROSS, _LETTERS = 3, 34


def reproduction_figure(result: Reproduction) -> Figure:
    """A panel for every table that is drawn, and for every value that splits it."""
    panels = [
        (table, part, lines) for table in result.tables for part, lines in table.curves().items()
    ]
    across = min(_ACROSS, max(1, len(panels)))
    down = max(1, math.ceil(len(panels) / across))
    figure = new_figure(figsize=(3.4 * across, 3.1 * down))
    places = figure.subplots(down, across, squeeze=False).flat
    names = list(dict.fromkeys(name for *_, lines in panels for name in lines))
    looks = {
        name: {"color": f"C{n % 10}", "marker": MARKERS[n % len(MARKERS)], "linestyle": "-"}
        for n, name in enumerate(names)
    }
    drawn: dict[str, object] = {}
    for axes, (table, part, lines) in zip(places, panels, strict=False):
        for name, points in lines.items():
            values = [x for x, _ in points]
            xs = [x if isinstance(x, float) else n for n, x in enumerate(values)]
            if all(isinstance(x, str) for x in values):
                axes.set_xticks(range(len(values)), [str(x) for x in values])
            draw_intervals(axes, xs, [y for _, y in points], label=name, **looks[name])
        drawn |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        title = fill(f"{table.title}; {part}" if part else table.title, _LETTERS)
        finish(axes, table.columns[0], "acceptance rate", title=title)
        axes.set_ylim(0, 1.02)
    for axes in list(places):
        axes.set_axis_off()
    figure.legend(
        drawn.values(), drawn.keys(), loc="outside lower center", ncols=across, fontsize=SMALL
    )
    return figure
