"""What acceptance beyond lossless costs: the closest laws, and rules in use below them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from mdsd_opt.plots.drawing import COLUMN, MARKERS, SMALL, finish, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
