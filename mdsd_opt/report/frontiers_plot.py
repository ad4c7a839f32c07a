"""The picture of the frontier: acceptance against distance, rules in use as points."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from mdsd_opt.files import atomic_write
from mdsd_opt.frontier.survey import FrontierPoint, RulePoint
from mdsd_opt.report.pictures import check_plot_path, new_figure

_MARKERS = "osD^vPX<>"


def save_frontier_plot(
    points: Sequence[FrontierPoint],
    rules: Sequence[RulePoint],
    path: str | os.PathLike[str],
    title: str,
) -> None:
    """Draw acceptance against KL and against total variation, a colour for each K.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    check_plot_path(path)
    figure = new_figure(figsize=(9.2, 4.4))
    panels = figure.subplots(1, 2, sharey=True)
    counts = sorted({point.num_drafts for point in points})
    labels = (("kl", "mean KL(output || target), nats"), ("tv", "mean total variation"))
    for axes, (name, label) in zip(panels, labels, strict=True):
        for n, k in enumerate(counts):
            line = [point for point in points if point.num_drafts == k]
            axes.plot(
                [getattr(point, name) for point in line],
                [point.acceptance_rate for point in line],
                color=f"C{n}",
                marker=".",
                label=f"closest laws, K = {k}",
            )
        for n, rule in enumerate(rules):
            if math.isfinite(getattr(rule, name)):
                axes.plot(
                    getattr(rule, name),
                    rule.acceptance_rate,
                    color="0.25",
                    linestyle="",
                    marker=_MARKERS[n % len(_MARKERS)],
                    label=f"{rule.name}, K = 1",
                )
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    panels[0].set_xscale("symlog", linthresh=1e-3)
    panels[0].set_xlim(left=0)
    panels[0].set_ylabel("mean acceptance rate")
    handles, names = panels[1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    with atomic_write(path) as file:
        figure.savefig(file, format=Path(path).suffix[1:].lower(), dpi=150)
