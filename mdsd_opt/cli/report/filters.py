"""Views of filters of the draft: as a table, and as a picture against the temperature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mdsd_opt.base.sampling import Sampling
from mdsd_opt.cli.output import make_table
from mdsd_opt.cli.view import SMALL
from mdsd_opt.drafts.by_name import title_of
from mdsd_opt.planning.draft_filter import BestFilter, setting_shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

#: Most filters that one picture tells apart.
_MOST_LINES = 6


def filters_table(found: Sequence[BestFilter]) -> Table:
    """Table with the best setting of each scheme beside the target's own and no filter."""
    rows = [
        (title_of(best.scheme), name, row.acceptance.shown, row.behind.shown if number else "")
        for best in found
        for number, (name, row) in enumerate(best.shown)
    ]
    first = found[0]
    return make_table(
        f"temperature and filters of the draft at K = {first.num_drafts}, one setting for all "
        f"positions;\nthe target has {setting_shown(first.target)}; higher is better",
        ("drafts", "setting of the draft", "acceptance", "behind the best"),
        rows,
        words=("drafts", "setting of the draft"),
        caption=f"best on these texts of {min(len(best.rates) for best in found)} settings or more "
        "that were tried: on others another may be",
        grouped=True,
    )


def draw_filters(axes: Axes, found: BestFilter) -> None:
    """Draw acceptance against the draft's temperature, a line for each of the best filters."""
    filters = list(dict.fromkeys(replace(row.sampling, temperature=1.0) for row in found.rates))
    own, none = replace(found.target, temperature=1.0), Sampling()
    shown = list(dict.fromkeys([*filters[: _MOST_LINES - 2], own, none]))
    for number, kept in enumerate(shown):
        line = sorted(
            (row.sampling.temperature, row.acceptance.mean)
            for row in found.rates
            if replace(row.sampling, temperature=1.0) == kept
        )
        name = setting_shown(kept).partition(", ")[2] or "no filter"
        label = f"{name} (as the target)" if kept == own and kept != none else name
        axes.plot(
            *zip(*line, strict=True), marker=".", linewidth=1.2, color=f"C{number}", label=label
        )
    best = found.rates[0]
    point = [best.sampling.temperature], [best.acceptance.mean]
    axes.plot(*point, linestyle="", marker="*", markersize=9, color="C0")
    axes.set_xlabel("temperature of the draft", fontsize=SMALL + 1)
    axes.set_ylabel("acceptance rate", fontsize=SMALL + 1)
    axes.tick_params(labelsize=SMALL)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=SMALL)
