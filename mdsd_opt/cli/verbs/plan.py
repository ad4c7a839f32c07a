"""mdsd-opt plan: which tree of drafts accepts most?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mdsd_opt import decoding, plots, trees
from mdsd_opt.base.frames import Column, Result, Table
from mdsd_opt.cli import options
from mdsd_opt.cli.signatures import Given, given, parse_cost
from mdsd_opt.cli.view import Drawing, Form, Section, View, present

if TYPE_CHECKING:
    from rich.tree import Tree

    from mdsd_opt.trees import Place, TreePlan

#: Most lines of a tree on a terminal; less likely drafts are only counted.
_MOST_LINES = 64


@dataclass(frozen=True)
class Planned(Result):
    """What is told of a plan, and of trees beside it."""

    source: str
    scheme: str
    temperature: float
    plan: TreePlan
    rates: list[list[float]]
    beside: list[TreePlan]

    columns: ClassVar = (
        "source", "scheme", "temperature", "*plan",
        Column("tokens_per_second", of="plan.tokens_per_second"),
        Column("num_drafts", of="plan.topology.placed"), "rates", "beside",
    )  # fmt: skip


def plan(
    logits: options.LogitFiles = None,
    *,
    kind: Given = options.KIND,
    size: Given = given("trees:plan_tree", "num_nodes=nodes max_depth=depth cost", num_nodes=16),
    asked: Given = given(
        "decoding:place_rates",
        "max_drafts=num_drafts scheme",
        max_drafts=8,
        scheme="with_replacement",
    ),
    sampling: Given = options.SAMPLING,
    form: Form,
) -> None:
    """The tree of drafts that accepts most within its size, by rates measured on logits.

    Beside it the forecasts of balanced trees, a sparse one and a chain of the same size. `mdsd-opt
    decode --tree planned16` makes such a plan on the models at hand, and tells what came of it.
    With --cost, as 1:20,16:22,64:40 (milliseconds), the plan is for the most tokens a second.
    """
    if "cost" in size:
        size["cost"] = {n: 1e-3 * took for n, took in parse_cost(size["cost"]).items()}
    sample = options.given_sample(logits, **kind)
    table = decoding.place_rates(sample.target, sample.draft, **asked, kind="logits", **sampling)
    tree = trees.plan_tree(table, **size)
    rows = trees.forecasts(tree, table, size.get("max_depth"))
    title = (
        f"{sample.source if logits else Path(sample.source).name}: {sample.num_positions} "
        f"positions, V = {sample.vocab_size:,}\n{asked['scheme'].replace('_', ' ')}, temperature "
        f"{sampling['temperature']:g}"
    )
    if tree.tokens_per_second is not None:
        title += f"\nplanned: {tree.tokens_per_second:.1f} tokens a second"
    chances = trees.chances(tree.topology, table)
    forecasts = [(row.topology.name, row.expected_accepted) for row in rows]
    drawn = partial(plots.tree_figure, tree.topology, chances, forecasts)
    document = Planned(
        sample.source, asked["scheme"], sampling["temperature"], tree, table.tolist(), rows[1:]
    )
    tables: list[Section | Table] = [Section(tree=_tree(chances))]
    tables += [table.about(title) for table in rows.tables()]
    present(
        View(
            title,
            tables,
            [rows.conclusion],
            document,
            Drawing(drawn, title="The tree of drafts that accepts most"),
        ),
        form,
    )


def _tree(of: dict[Place, float]) -> Tree:
    """Tree of the likeliest drafts: the place among its siblings, and the chance."""
    from rich.tree import Tree

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
