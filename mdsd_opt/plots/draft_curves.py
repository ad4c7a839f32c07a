"""Acceptance of several drafts by K."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mdsd_opt.plots.drawing import COLUMN, SMALL, draw_intervals, finish, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mdsd_opt.planning import DraftComparison


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
    finish(axes, "drafts K", "acceptance rate")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize=SMALL)
    return figure
