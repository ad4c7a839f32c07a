"""Acceptance with filters of the draft, against its temperature."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mdsd_opt.base.checked import of_kind
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.planning import BestFilter, setting_shown
from mdsd_opt.plots.drawing import SMALL, axes_of, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Most filters that one picture tells apart.
_MOST_LINES = 6


def draft_filters(result: BestFilter, ax: Axes | None = None) -> Axes:
    """Acceptance against the temperature of the draft, a line for each of the best filters.

    Parameters
    ----------
    result : BestFilter
        Of `mdsd_opt.best_draft_filter`.
    ax : matplotlib.axes.Axes, optional
        New axes of one column's width unless given.
    """
    of_kind(result, BestFilter, "result", "what best_draft_filter returns")
    axes: Axes = axes_of(ax)
    filters = list(dict.fromkeys(replace(row.sampling, temperature=1.0) for row in result.rates))
    own, none = replace(result.target, temperature=1.0), Sampling()
    shown = list(dict.fromkeys([*filters[: _MOST_LINES - 2], own, none]))
    for number, setting in enumerate(shown):
        line = sorted(
            (row.sampling.temperature, row.acceptance.mean)
            for row in result.rates
            if replace(row.sampling, temperature=1.0) == setting
        )
        name = setting_shown(setting).partition(", ")[2] or "no filter"
        label = f"{name} (as the target)" if setting == own and setting != none else name
        axes.plot(
            *zip(*line, strict=True), marker=".", linewidth=1.2, color=f"C{number}", label=label
        )
    best = result.rates[0]
    point = [best.sampling.temperature], [best.acceptance.mean]
    axes.plot(*point, linestyle="", marker="*", markersize=9, color="C0")
    finish(axes, "temperature of the draft", "acceptance rate")
    axes.legend(fontsize=SMALL)
    return axes
