"""How many tokens may change if logits move a little."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mdsd_opt.plots.drawing import draw_intervals, finish, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mdsd_opt.corpora import TextStability


def stability(result: TextStability, ax: Axes | None = None) -> Axes:
    """Share of tokens that may change against how far logits move, greedy ones at every distance.

    Parameters
    ----------
    result : TextStability
        Of `mdsd_opt.text_stability`.
    ax : matplotlib.axes.Axes, optional
        New axes of one column's width unless given.
    """
    axes: Axes = new_axes() if ax is None else ax
    if result.temperature == 0 and result.moved is None:
        half = np.sort(result.margins / 2.0)
        share = np.arange(1, half.size + 1) / half.size
        shown = np.isfinite(half)
        axes.step(half[shown], share[shown], where="post", linewidth=1.2, color="C0")
    deltas, may_change = [row.delta for row in result.rows], [row.may_change for row in result.rows]
    draw_intervals(axes, deltas, may_change, marker="o", color="C0")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    finish(axes, "logits move by at most", "tokens that may change")
    return axes
