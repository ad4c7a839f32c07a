"""What all pictures have in common: sizes, small letters, labels with a grid, error bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from mdsd_opt.base.checked import of_kind
from mdsd_opt.errors import MissingExtra
from mdsd_opt.evidence import MeanInterval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Width of a column of a paper, in inches, and the size of its small letters.
COLUMN, SMALL = 3.4, 7

#: Most lines of a panel with intervals: those of more lie over each other.
MOST_WITH_INTERVALS = 3

#: Markers that are told apart at this size.
MARKERS = "osDPXv<>*"


def new_figure(**options: Any) -> Any:
    """Empty matplotlib figure, whose parts will keep clear of each other."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra.of("matplotlib", "plot", "the picture") from error
    return Figure(layout="constrained", **options)


def axes_of(ax: Axes | None = None, height: float = 2.5, width: float = COLUMN) -> Any:
    """The axes that are given, or those of a figure of their own, of this size in inches."""
    figure = new_figure(figsize=(width, height))
    if ax is None:
        return figure.add_subplot()
    from matplotlib.axes import Axes

    return of_kind(ax, Axes, "ax", "axes of matplotlib, as plt.subplots() makes them")


def finish(
    axes: Axes,
    x: str = "",
    y: str = "",
    *,
    title: str = "",
    grid: Literal["both", "x", "y"] | None = "both",
) -> None:
    """Write labels in small letters, and draw a faint grid."""
    for write, text in ((axes.set_title, title), (axes.set_xlabel, x), (axes.set_ylabel, y)):
        if text:
            write(text, fontsize=SMALL + 1)
    axes.tick_params(labelsize=SMALL)
    if grid:
        axes.grid(alpha=0.3, axis=grid)


def add_scale(axes: Axes, shades: Any, label: str, **options: Any) -> None:
    """Put the scale of the shades beside the axes."""
    scale = axes.figure.colorbar(shades, ax=axes, **options)
    scale.set_label(label, fontsize=SMALL)
    scale.ax.tick_params(labelsize=SMALL)


def draw_intervals(
    axes: Axes, xs: Sequence[float], intervals: Sequence[MeanInterval], **look: Any
) -> None:
    """Draw means as points with their intervals as bars; no bar where there is no interval."""
    means = [one.mean for one in intervals]
    bars = [[abs(one.mean - getattr(one, end)) for one in intervals] for end in ("low", "high")]
    look = {"markersize": 3.5, "elinewidth": 0.7, "capsize": 1.5, "linestyle": "", **look}
    axes.errorbar(xs, means, yerr=bars, **look)
