"""Views of a plan of a draft tree, beside other trees."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd_opt.cli.output import make_table
from mdsd_opt.cli.view import Drawing, Section, View
from mdsd_opt.plots import tree_figure
from mdsd_opt.trees import (
    MAX_DEPTH,
    Place,
    RateTable,
    Topology,
    TreePlan,
    balanced,
    chain,
    expected_accepted,
    sparse,
)

if TYPE_CHECKING:
    from rich.table import Table
    from rich.tree import Tree


#: Most lines of a tree on a terminal; less likely drafts are only counted.
_MOST_LINES = 64

#: Most drafts of a node in the balanced trees that a plan is compared with.
_WIDEST_BALANCED = 4


def forecasts(plan: TreePlan, table: RateTable, max_depth: int | None = None) -> list[TreePlan]:
    """Forecasts of the plan and of trees of the same size: balanced ones, a sparse one, a chain.

    Those that are too deep or too wide for the plan are left out; the chain is cut.
    """
    depth = MAX_DEPTH if max_depth is None else max_depth
    size = plan.topology.num_nodes
    widest = len(table) - 1
    others = [balanced(k, size) for k in range(2, _WIDEST_BALANCED + 1)]
    others += [chain(min(size, depth)), sparse(size)]
    beside = [
        TreePlan(tree, expected_accepted(tree, table))
        for tree in others
        if max(tree.num_drafts.values()) <= widest and tree.depth <= depth
    ]
    return [plan, *sorted(beside, key=lambda forecast: -forecast.expected_accepted)]


def _chances(topology: Topology, table: RateTable) -> dict[Place, float]:
    """Chance that each draft is accepted, parents before children."""
    chances: dict[Place, float] = {(): 1.0}
    for place in sorted(topology.num_drafts, key=len):
        count = topology.num_drafts[place]
        falling = np.sort(table[count, :count])[::-1]
        chances |= {(*place, rank): chances[place] * float(falling[rank]) for rank in range(count)}
    return chances


def plan_view(
    plan: TreePlan, table: RateTable, rows: list[TreePlan], title: str, **known: Any
) -> View:
    """View of a plan and other trees; `known` is the document's entries on the rates' source."""
    tree = _tree(plan.topology, table)
    tables = [Section(table=tree), Section(table=_forecasts_table(rows, title))]
    forecasts = [(row.topology.name, row.expected_accepted) for row in rows]
    drawn = partial(tree_figure, plan.topology, _chances(plan.topology, table), forecasts)
    drawing = Drawing(drawn, title=title)
    document = {
        **known,
        **_entry(plan),
        "tokens_per_second": plan.tokens_per_second,
        "num_drafts": [
            {"place": list(place), "num_drafts": count}
            for place, count in sorted(plan.topology.num_drafts.items())
        ],
        "rates": table.tolist(),
        "beside": [_entry(row) for row in rows[1:]],
    }
    return View(title, tables, [_conclusion(rows)], document, drawing)


def _entry(plan: TreePlan) -> dict[str, Any]:
    tree = plan.topology
    return {
        "tree": tree.name,
        "num_nodes": tree.num_nodes,
        "depth": tree.depth,
        "expected_accepted": plan.expected_accepted,
    }


def _tree(topology: Topology, table: RateTable) -> Tree:
    """Tree of the likeliest drafts: the place among its siblings, and the chance."""
    from rich.tree import Tree

    of = _chances(topology, table)
    likeliest = sorted(of, key=lambda place: (-of[place], len(place), place))
    shown = sorted(likeliest[: _MOST_LINES + 1], key=lambda place: (len(place), place))
    rest = len(of) - len(shown)
    note = f", and {rest} less likely ones" if rest else ""
    views: dict[Place, Tree] = {}
    views[()] = Tree(f"{len(shown) - 1} drafts{note}: chance that each is accepted")
    for place in shown:
        if place and (above := views.get(place[:-1])) is not None:
            views[place] = above.add(f"{place[-1] + 1}   {of[place]:.3f}")
    return views[()]


def _forecasts_table(rows: list[TreePlan], title: str) -> Table:
    subject = "drafts accepted a step, forecast by the rates of these logits; higher is better"
    lines = [
        (x.name, str(x.num_nodes), str(x.depth), f"{row.expected_accepted:.3f}")
        for row in rows
        for x in [row.topology]
    ]
    headings = ("tree", "drafts", "levels", "accepted, forecast")
    return make_table(f"{subject}\n{title}", headings, lines)


def _conclusion(rows: list[TreePlan]) -> str:
    """Sentence about the plan and its lead over other trees."""
    planned, *others = rows
    text = f"{planned.topology.name} is forecast to accept {planned.expected_accepted:.3f} drafts"
    if others:
        ahead = planned.expected_accepted - others[0].expected_accepted
        text += f", {ahead:.3f} more than {others[0].topology.name}"
    return f"{text}; mdsd-opt decode --tree {planned.topology.name} plans one for your models"
