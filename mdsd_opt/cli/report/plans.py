"""A plan of a draft tree: as a tree for terminals, beside other trees, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd_opt.decoding.topology import (
    MAX_DEPTH,
    Place,
    RateTable,
    Topology,
    balanced,
    chain,
    expected_accepted,
    sparse,
)
from mdsd_opt.decoding.tree_plans import TreePlan

if TYPE_CHECKING:
    from rich.table import Table
    from rich.tree import Tree

#: Lines of a tree on a terminal; what is less likely than these is counted only.
_MOST_LINES = 64

#: Drafts of a node, of the balanced trees that a plan is held against.
_WIDEST_BALANCED = 4


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a tree is expected to accept."""

    topology: Topology
    expected_accepted: float

    def to_dict(self) -> dict[str, Any]:
        tree = self.topology
        return {
            "tree": tree.name,
            "num_nodes": tree.num_nodes,
            "depth": tree.depth,
            "expected_accepted": self.expected_accepted,
        }


def forecasts(plan: TreePlan, table: RateTable, max_depth: int | None = None) -> list[Forecast]:
    """The plan beside trees of the same size: balanced ones, a sparse one, a chain.

    Those that are too deep or too wide for the plan are left out; the chain is cut.
    """
    depth = MAX_DEPTH if max_depth is None else max_depth
    size = plan.topology.num_nodes
    widest = len(table) - 1
    others = [balanced(k, size) for k in range(2, _WIDEST_BALANCED + 1)]
    others += [chain(min(size, depth)), sparse(size)]
    found = [
        Forecast(tree, expected_accepted(tree, table))
        for tree in others
        if max(tree.num_drafts.values()) <= widest and tree.depth <= depth
    ]
    found.sort(key=lambda forecast: -forecast.expected_accepted)
    return [Forecast(plan.topology, plan.expected_accepted), *found]


def chances(topology: Topology, table: RateTable) -> dict[Place, float]:
    """Chance that each draft is accepted, parents before children."""
    found: dict[Place, float] = {(): 1.0}
    for place in sorted(topology.num_drafts, key=len):
        count = topology.num_drafts[place]
        falling = np.sort(table[count, :count])[::-1]
        found |= {(*place, rank): found[place] * float(falling[rank]) for rank in range(count)}
    return found


def plan_tree_view(topology: Topology, table: RateTable) -> Tree:
    """The likeliest drafts as a tree: the place among its siblings, and the chance."""
    from rich.tree import Tree

    of = chances(topology, table)
    likeliest = sorted(of, key=lambda place: (-of[place], len(place), place))
    shown = sorted(likeliest[: _MOST_LINES + 1], key=lambda place: (len(place), place))
    left = len(of) - len(shown)
    note = f", and {left} less likely ones" if left else ""
    views: dict[Place, Tree] = {}
    views[()] = Tree(f"{len(shown) - 1} drafts{note}: chance that each is accepted")
    for place in shown:
        if place in views:
            continue
        above = views.get(place[:-1])
        if above is not None:
            views[place] = above.add(f"{place[-1] + 1}   {of[place]:.3f}")
    return views[()]


def forecasts_table(rows: list[Forecast], title: str) -> Table:
    """One line for each tree."""
    from rich.table import Table

    subject = "drafts accepted a step, forecast by the rates of these logits; higher is better"
    table = Table(title=f"{subject}\n{title}")
    table.add_column("tree")
    for heading in ("drafts", "levels", "accepted, forecast"):
        table.add_column(heading, justify="right")
    for row in rows:
        tree = row.topology
        table.add_row(
            tree.name, str(tree.num_nodes), str(tree.depth), f"{row.expected_accepted:.3f}"
        )
    return table


def conclusion(rows: list[Forecast]) -> str:
    """The plan, and what it is ahead of."""
    planned, *others = rows
    text = f"{planned.topology.name} is forecast to accept {planned.expected_accepted:.3f} drafts"
    if others:
        ahead = planned.expected_accepted - others[0].expected_accepted
        text += f", {ahead:.3f} more than {others[0].topology.name}"
    return f"{text}; mdsd-opt decode --tree {planned.topology.name} plans one for your models"


def plan_document(plan: TreePlan, table: RateTable, rows: list[Forecast]) -> Mapping[str, Any]:
    """JSON-ready: the plan with the drafts after every node, its rates, and the other trees."""
    topology = plan.topology
    return {
        **Forecast(topology, plan.expected_accepted).to_dict(),
        "tokens_per_second": plan.tokens_per_second,
        "num_drafts": [
            {"place": list(place), "num_drafts": topology.num_drafts[place]}
            for place in sorted(topology.num_drafts)
        ],
        "rates": table.tolist(),
        "beside": [row.to_dict() for row in rows[1:]],
    }
