"""A planned tree of drafts with the chance of each, and its forecast beside other trees'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mdsd_opt.plots.drawing import COLUMN, SMALL, add_scale, finish, new_figure
from mdsd_opt.trees import Place, Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Most leaves side by side at which every node has its number, and at which letters have room.
_MOST_NUMBERED, _ROOMY = 24, 12


def tree_figure(
    topology: Topology, chances: Mapping[Place, float], forecasts: Sequence[tuple[str, float]]
) -> Figure:
    """Draw a tree, each draft with its chance, and bars for the forecasts, the first its own."""
    heights = (0.4 + 0.4 * topology.depth, 0.3 + 0.2 * len(forecasts))
    figure = new_figure(figsize=(COLUMN, sum(heights) + 0.3))
    tree, bars = figure.subplots(2, 1, height_ratios=heights)
    places = [place for place in chances if place]
    across = draw_lines(tree, topology)
    dots = tree.scatter(
        [across[place] for place in places],
        [-len(place) for place in places],
        s=[4 + 20 * chances[place] for place in places],
        c=[chances[place] for place in places],
        cmap="viridis_r",
        vmin=0,
        vmax=1,
        zorder=2,
    )
    add_scale(tree, dots, "chance to be accepted", location="right", shrink=0.6, aspect=25)
    leaves = 1 + max(across.values())
    for place in places if leaves <= _MOST_NUMBERED else ():
        tree.annotate(
            f"{chances[place]:.2f}".lstrip("0"), (across[place], -len(place)), (0, -4),
            textcoords="offset points", ha="center", va="top",
            fontsize=SMALL - 1 if leaves <= _ROOMY else 4,
            bbox={"facecolor": "white", "lw": 0, "pad": 0.4},
        )  # fmt: skip
    names, values = zip(*forecasts, strict=True)
    boxes = bars.barh(names, values, color=["C0"] + ["0.7"] * (len(names) - 1))
    bars.bar_label(boxes, fmt="%.2f", padding=2, fontsize=SMALL)
    bars.margins(x=0.15)
    bars.invert_yaxis()
    finish(bars, "accepted drafts, forecast", grid=None)
    return figure


def draw_lines(axes: Axes, topology: Topology) -> dict[Place, float]:
    """Draw a tree's root and the lines to its drafts; horizontal places of all."""
    across = _columns(topology)
    for place in across:
        if place:
            ends = [across[place[:-1]], across[place]], [1 - len(place), -len(place)]
            axes.plot(*ends, color="0.7", linewidth=0.8, zorder=1)
    axes.annotate(
        "root: the text so far", (across[()], 0), (0, 4), textcoords="offset points",
        ha="center", fontsize=SMALL,
    )  # fmt: skip
    axes.plot(across[()], 0, "ks", markersize=4)
    axes.set_ylim(-topology.depth - 0.6, 0.6)
    axes.set_axis_off()
    return across


def _columns(topology: Topology) -> dict[Place, float]:
    """Horizontal places: leaves side by side, every other node centred above its drafts."""
    columns: dict[Place, float] = {}
    leaves = 0
    waiting: list[tuple[Place, bool]] = [((), False)]
    while waiting:
        place, seen = waiting.pop()
        count = topology.drafts_at(place)
        if count == 0:
            columns[place] = float(leaves)
            leaves += 1
        elif seen:
            columns[place] = (columns[*place, 0] + columns[*place, count - 1]) / 2
        else:
            waiting.append((place, True))
            waiting += [((*place, rank), False) for rank in reversed(range(count))]
    return columns
