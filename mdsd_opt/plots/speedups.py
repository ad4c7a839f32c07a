"""Speed-ups over plain decoding: of ways to draft, by batch, and of chains of drafts.

A planned tree of drafts with the chance of each, and its forecast beside other trees'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mdsd_opt.base.checked import of_kind
from mdsd_opt.planning import Advice, scheme_title
from mdsd_opt.plots.drawing import (
    COLUMN,
    SMALL,
    add_scale,
    axes_of,
    draw_intervals,
    finish,
    new_figure,
)
from mdsd_opt.trees import Place, Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mdsd_opt.planning import CountAdvice

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


#: Look of the line of plain decoding.
_PLAIN: dict[str, Any] = {"color": "0.3", "linewidth": 0.8, "linestyle": "--"}


def advice(result: Advice, ax: Axes | None = None) -> Axes:
    """Speed-ups of the ways to draft over plain decoding, as bars; the advised one is coloured.

    Parameters
    ----------
    result : Advice
        Advice of `mdsd_opt.advise`.
    ax : matplotlib.axes.Axes, optional
        New axes of one column's width unless given.
    """
    axes: Axes = axes_of(ax, _height(of_kind(result, Advice, "result", "what advise returns")))
    rows = result.rows[::-1]
    names = [f"{scheme_title(row.scheme)}\n{row.tree_name}".strip() for row in rows]
    values = [row.speedup.mean for row in rows]
    widths = [0.0 if x != x else x for x in (row.speedup.half_width for row in rows)]
    colors = ["C0" if row.tree is result.tree else "0.7" for row in rows]
    axes.barh(range(len(rows)), values, xerr=widths, color=colors, ecolor="0.3", height=0.7)
    axes.axvline(1.0, **_PLAIN)
    axes.set_yticks(range(len(rows)), names, fontsize=SMALL - 1, linespacing=0.95)
    axes.set_xlabel("speed-up over plain decoding", fontsize=SMALL + 1)
    axes.tick_params(axis="x", labelsize=SMALL)
    return axes


def _height(result: Advice) -> float:
    return 0.6 + 0.27 * len(result.rows)


def advice_figure(result: Advice) -> Figure:
    """Bars of the options; below them, where passes have rows, curves against the batch.

    At the end stands the advised tree, if it is more than a chain.
    """
    heights = [_height(result)]
    draws: list[Callable[[Axes], Any]] = [lambda axes: advice(result, axes)]
    if result.batches:
        heights.append(2.0)
        draws.append(lambda axes: _draw_batches(axes, result))
    if result.tree.num_nodes > result.tree.depth:
        heights.append(0.5 + 0.25 * result.tree.depth)
        draws.append(lambda axes: _draw_tree(axes, result))
    figure = new_figure(figsize=(COLUMN, sum(heights)))
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, draw in zip(parts, draws, strict=True):
        draw(part.add_subplot())
    return figure


def _draw_tree(axes: Axes, result: Advice) -> None:
    across = draw_lines(axes, result.tree)
    places = [place for place in across if place]
    axes.plot([across[x] for x in places], [-len(x) for x in places], "o", markersize=3)
    axes.set_title(f"advised: {result.tree.name}, {result.best.in_words}", fontsize=SMALL)


def _draw_batches(axes: Axes, result: Advice) -> None:
    sizes = [point.batch_size for point in result.batches]
    axes.plot(sizes, [point.tree for point in result.batches], "o-", markersize=3, label="tree")
    chains = [point.chain for point in result.batches]
    axes.plot(sizes, chains, "s--", markersize=3, label="single drafts")
    axes.axhline(1.0, label="none", **_PLAIN)
    if result.crossover is not None:
        axes.axvline(
            result.crossover, color="C3", linewidth=0.8, linestyle=":", label="none is faster from"
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    finish(axes, "texts decoded together", "speed-up")
    axes.legend(fontsize=SMALL)


def chains_figure(result: CountAdvice) -> Figure:
    """Speed-up against the drafts of a step, with bars for chance and all assumptions."""
    rows = sorted((x for x in result.rows if x.kind != "none"), key=lambda x: x.depth)
    figure = new_figure(figsize=(COLUMN, 2.2))
    axes = figure.add_subplot()
    for counted in (True, False):
        of = [row for row in rows if result.is_counted(row) is counted]
        if of:
            draw_intervals(
                axes, [row.depth for row in of], [row.speedup for row in of], marker="o",
                markersize=3, ecolor="0.5", elinewidth=0.8, capsize=0, color="C0",
                linestyle="-" if counted else ":", markerfacecolor="C0" if counted else "white",
                label="counted" if counted else "forecast",
            )  # fmt: skip
    axes.axhline(1.0, **_PLAIN)
    axes.xaxis.get_major_locator().set_params(integer=True)
    finish(axes, "drafts of a step", "speed-up")
    axes.legend(fontsize=SMALL)
    return figure
