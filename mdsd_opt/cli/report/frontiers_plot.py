"""The picture of the frontier: acceptance against distance, rules in use as points."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.base.files import atomic_write
from mdsd_opt.cli.report.pictures import check_plot_path, new_figure
from mdsd_opt.solvers.frontier.survey import FrontierPoint, RulePoint

#: Labels stand to the right of points up to here, in widths of a panel, and so far from them.
_RIGHT, _ASIDE = 0.64, 0.02


def save_frontier_plot(
    points: Sequence[FrontierPoint],
    rules: Sequence[RulePoint],
    path: str | os.PathLike[str],
    title: str,
) -> None:
    """Draw acceptance against KL and against total variation, a colour for each K.

    A rule stands below the best laws that spend its KL at each position, by what it gives away.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    check_plot_path(path)
    figure = new_figure(figsize=(11.0, 5.2))
    panels = figure.subplots(1, 2, sharey=True)
    counts = sorted({point.num_drafts for point in points})
    lowest = min([x.acceptance_rate for x in points] + [x.acceptance_rate for x in rules])
    labels = (("kl", "mean KL(output || target) of a step, nats"), ("tv", "mean total variation"))
    for axes, (name, label) in zip(panels, labels, strict=True):
        if name == "kl":
            axes.set_xscale("symlog", linthresh=1e-3)
        axes.set_ylim(lowest - 0.04, 1.04)
        for n, k in enumerate(counts):
            line = [point for point in points if point.num_drafts == k]
            xs, ys = [getattr(x, name) for x in line], [x.acceptance_rate for x in line]
            axes.plot(xs, ys, color=f"C{n}", linewidth=2)
            if name == "kl":
                axes.annotate(
                    f"K = {k}", (xs[0], ys[0]), (8, 8), textcoords="offset points",
                    color=f"C{n}", fontsize=9, fontweight="bold",
                )  # fmt: skip
        _draw_rules(axes, name, [rule for rule in rules if math.isfinite(getattr(rule, name))])
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("mean acceptance rate")
    figure.suptitle(
        "What acceptance costs. Lines: the closest laws, K drafts. "
        "Points: rules in use, one draft, and the best that spend their KL.\n" + title,
        fontsize=10, x=0.01, ha="left",
    )  # fmt: skip
    with atomic_write(path) as file:
        figure.savefig(file, format=Path(path).suffix[1:].lower(), dpi=150)


def _draw_rules(axes: Any, name: str, rules: Sequence[RulePoint]) -> None:
    """Each rule with what it accepts, and how much the best laws do at its KL."""
    xs = [getattr(rule, name) for rule in rules]
    room = 1.45 if name == "tv" else 40.0  # for the labels
    axes.set_xlim(0, room * max([*xs, *(x for line in axes.lines for x in line.get_xdata())]))
    low, high = axes.get_ylim()
    height = np.inf  # of the label above
    for rule, x in sorted(zip(rules, xs, strict=True), key=lambda item: -item[0].acceptance_rate):
        text = f"{rule.name}: {rule.acceptance_rate:.4f}"
        if name == "kl":
            text += f", best {rule.best_acceptance_rate:.4f}"
            ends = [rule.acceptance_rate, rule.best_acceptance_rate]
            axes.plot([x, x], ends, color="0.5", linestyle=":", marker="_")
        axes.plot(x, rule.acceptance_rate, color="0.2", linestyle="", marker="o", markersize=5)
        height = min(rule.acceptance_rate, height - 0.045 * (high - low))
        place = axes.transAxes.inverted().transform(axes.transData.transform((x, height)))
        to_the_left = place[0] > _RIGHT
        axes.annotate(
            text, (x, rule.acceptance_rate),
            (place[0] + (-_ASIDE if to_the_left else _ASIDE), place[1]),
            textcoords="axes fraction", va="center", ha="right" if to_the_left else "left",
            fontsize=8, color="0.2", bbox={"facecolor": "white", "alpha": 0.8, "lw": 0, "pad": 0.5},
            arrowprops={"arrowstyle": "-", "color": "0.7", "lw": 0.6},
        )  # fmt: skip
