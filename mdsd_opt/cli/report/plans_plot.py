"""The picture of a plan: the tree, and its forecast beside that of other trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mdsd_opt.cli.report.pictures import new_figure
from mdsd_opt.cli.report.plans import Forecast, chances
from mdsd_opt.decoding.topology import Place, RateTable, Topology

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plan_figure(rows: Sequence[Forecast], table: RateTable) -> Figure:
    """Draw the first of the trees, dots as large as their chance, and bars for all forecasts.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    figure = new_figure(figsize=(8.4, 4.2))
    topology = rows[0].topology
    of, across = chances(topology, table), _columns(topology)
    tree, bars = figure.subplots(1, 2, width_ratios=(3, 2))
    for place in of:
        if place:
            tree.plot(
                [across[place[:-1]], across[place]],
                [1 - len(place), -len(place)],
                color="0.7",
                linewidth=0.8,
                zorder=1,
            )
    places = list(of)
    dots = tree.scatter(
        [across[place] for place in places],
        [-len(place) for place in places],
        s=[12 + 60 * of[place] for place in places],
        c=[of[place] for place in places],
        cmap="viridis_r",
        vmin=0,
        vmax=1,
        zorder=2,
    )
    figure.colorbar(dots, ax=tree, location="bottom", shrink=0.6, label="chance to be accepted")
    tree.set_axis_off()
    names = [row.topology.name for row in rows]
    found = bars.barh(names, [row.expected_accepted for row in rows], color=["C0"] + ["0.7"] * 99)
    bars.bar_label(found, fmt="%.2f", padding=2, fontsize=8)
    bars.margins(x=0.15)
    bars.invert_yaxis()
    bars.set_xlabel("accepted drafts, forecast")
    return figure


def _columns(topology: Topology) -> dict[Place, float]:
    """Leaves side by side, every node in the middle above its drafts."""
    found: dict[Place, float] = {}
    leaves = 0
    waiting: list[tuple[Place, bool]] = [((), False)]
    while waiting:
        place, seen = waiting.pop()
        count = topology.drafts_at(place)
        if count == 0:
            found[place] = float(leaves)
            leaves += 1
        elif seen:
            found[place] = (found[*place, 0] + found[*place, count - 1]) / 2
        else:
            waiting.append((place, True))
            waiting += [((*place, rank), False) for rank in reversed(range(count))]
    return found
