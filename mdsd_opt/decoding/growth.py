"""Policies for the trees of successive steps: fixed ones, planned ones, and those that grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Law
from mdsd_opt.base.seeds import Rng, generator_of
from mdsd_opt.decoding.place_rates import RunningRates, measured_rates
from mdsd_opt.drafts import SchemeMaker, WithoutReplacement, scheme_maker
from mdsd_opt.trees import (
    MAX_DEPTH,
    DraftModel,
    DynamicTree,
    Node,
    Place,
    PlannedTree,
    RateTable,
    Topology,
    Tree,
    TreePlan,
    draw_level,
    drawn,
    expected_accepted,
    grow,
    initial_rates,
    place_values,
    plan_tree,
    probabilities,
    rates_among,
    valued,
)

#: Most drafts of a node in a plan without a table.
MAX_DRAFTS = 8

#: Number of steps until the first new plan; each later one comes after twice as many.
_FIRST_REPLAN = 8


class Growth:
    """Policy for the trees of successive steps: of one topology, unless it is overridden."""

    def __init__(self, topology: Topology, table: RateTable | None = None) -> None:
        self.take(topology, table)

    def take(self, topology: Topology, table: RateTable | None) -> None:
        """Draw trees of this topology from now on, with values by a table."""
        self._table, self.shape = table, valued(topology, table)

    def grow(
        self, model: DraftModel, make: SchemeMaker, rng: np.random.Generator, depth: int = MAX_DEPTH
    ) -> Node:
        """Draw the tree of a step, of no more levels than `depth`."""
        topology = self.shape.topology
        if topology.depth > depth:
            return grow(model, topology.cut(depth), make, rng, self._table)
        return drawn(model, self.shape, make, rng)

    def begin(self) -> None:
        """Begin a text."""

    def observe(self, root: Node, accepted: Sequence[int], seconds: tuple[float, float]) -> None:
        """Learn from a finished step, and from the seconds of its draft and of the rest."""


class PlannedGrowth(Growth):
    """Plan by the rates so far, which also value the drafts."""

    def __init__(self, tree: PlannedTree) -> None:
        table = _first_table(tree)
        super().__init__(first_plan(tree).topology, table)
        self._tree, self._rates = tree, RunningRates(table)
        self._steps, self._due = 0, _FIRST_REPLAN

    def observe(self, root: Node, accepted: Sequence[int], seconds: tuple[float, float]) -> None:
        self._rates.observe(root, accepted)
        self._steps += 1
        if self._steps == self._due:
            self._due *= 2
            tree, table = self._tree, self._rates.table
            self.take(plan_tree(table, tree.num_nodes, tree.max_depth).topology, table)


class DynamicGrowth(Growth):
    """Growth by `grow_by_acceptance`, which learns nothing."""

    def __init__(self, tree: DynamicTree) -> None:
        self._tree = tree

    def grow(
        self, model: DraftModel, make: SchemeMaker, rng: np.random.Generator, depth: int = MAX_DEPTH
    ) -> Node:
        tree = replace(self._tree, max_depth=min(depth, self._tree.max_depth))
        return grow_by_acceptance(model, tree, make, rng)


def first_plan(tree: PlannedTree) -> TreePlan:
    """Plan before anything is observed."""
    return plan_tree(_first_table(tree), tree.num_nodes, tree.max_depth)


def _first_table(tree: PlannedTree) -> RateTable:
    return initial_rates(MAX_DRAFTS) if tree.table is None else tree.table


def grow_by_acceptance(
    model: DraftModel, tree: DynamicTree, scheme: str | SchemeMaker, rng: Rng = 0
) -> Node:
    """Grow a tree where acceptance is likeliest, under a budget of drafts.

    Only the likeliest nodes of each level get drafts. The chance of a draft is its parent's times
    the rate of its place: that a drawn token is passed depends on its place, and hardly on its
    probability, since likelier tokens are drawn more often. The tokens that are drafted whatever
    happens have the draft probability for a rate (EAGLE-2 does so). Which nodes get drafts depends
    on earlier levels only, so that every rule stays lossless. Drafts are worth what their places
    would be if none coincided: what did grow depends on the tokens.

    RheoSampling (arXiv 2609.21827), too, has proxy probabilities that grow a tree, and true ones
    that verify it.

    Parameters
    ----------
    model : callable
        Draft laws after some continuations, as probabilities [n, V].
    tree : DynamicTree
        The budget, and the rates; at least the drafts of the root are drawn.
    scheme : str or callable
    rng : numpy.random.Generator or int, optional

    Raises
    ------
    InvalidInput
        The rates are for fewer drafts than the nodes have.
    """
    rng = generator_of(rng)
    return _grown(model, tree, scheme_maker(scheme), rng, _forecast_values(tree))


def _forecast_values(tree: DynamicTree) -> dict[Place, Law]:
    """Values by place, from a tree whose drafts are all different, and none of them certain."""
    size = tree.num_drafts + 1
    root = _grown(
        lambda texts: np.full((len(texts), size), 1.0 / size),
        tree, WithoutReplacement, np.random.default_rng(0), {},
    )  # fmt: skip
    inner = {node.place: node.draws.size for node in root.walk() if node.drafts is not None}
    return place_values(Topology(inner, str(tree)))


def _grown(
    model: DraftModel,
    tree: DynamicTree,
    make: SchemeMaker,
    rng: np.random.Generator,
    values: Mapping[Place, Law],
) -> Node:
    rates = initial_rates(tree.num_drafts) if tree.rates is None else tree.rates
    root = Node((), ())
    level = [(1.0, root)]
    num_drafts = tree.num_drafts
    rest = max(tree.num_nodes, num_drafts)
    for depth in range(tree.max_depth):
        widest = max(rest // (num_drafts * (tree.max_depth - depth)), 1)
        level = sorted(level, key=lambda item: (-item[0], item[1].place))[:widest]
        level = level[: rest // num_drafts]
        if not level:
            break
        rest -= num_drafts * len(level)
        following = []
        drawn_level = draw_level(model, [(node, num_drafts) for _, node in level], make, rng)
        for (chance, _), (node, law, drafts, draws) in zip(level, drawn_level, strict=True):
            table = rates(probabilities(law)) if callable(rates) else rates
            places = rates_among(num_drafts, table)
            fixed = set(drafts.always_drafted.tolist())
            for child in node.add_drafts(drafts, draws, values.get(node.place)):
                token = child.tokens[-1]
                rate = law[token] if token in fixed else places[child.place[-1]]
                following.append((chance * float(rate), child))
        level = following
    return root


def informed(
    tree: Tree,
    target: Any,
    draft: Any,
    texts: Sequence[Sequence[int]],
    scheme: str,
    settings: dict[str, Any],
) -> tuple[Tree, float | None]:
    """Tree with the rates of the models on some texts, and the forecast by them.

    A tree is planned, and grown, by the rates measured, but for one that finds them itself. The
    forecast is of accepted drafts a step; None where the tree is not known beforehand. Settings are
    temperatures and filters.
    """

    def table_of(max_drafts: int) -> RateTable:
        return measured_rates(target, draft, texts, max_drafts, scheme, **settings)

    if isinstance(tree, PlannedTree):
        tree = replace(tree, table=table_of(MAX_DRAFTS))
        return tree, first_plan(tree).expected_accepted
    if isinstance(tree, DynamicTree):
        return replace(tree, rates=table_of(tree.num_drafts)), None
    if isinstance(tree, Topology):
        return tree, expected_accepted(tree, table_of(max(tree.num_drafts.values())))
    return tree, None
