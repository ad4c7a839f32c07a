"""Policies for the trees of successive steps: fixed ones, planned ones, and those that grow.

Trees depend on steps that are over alone, so that every rule stays lossless. And the rates at which
the drafts of each place are passed, by which trees are planned and grow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from mdsd_opt.base.arrays import Law, to_numpy
from mdsd_opt.base.checked import Rng, check_function, checked_integer, generator_of, of_kind
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.decoding.language_models import tree_logits
from mdsd_opt.drafts import SchemeMaker, WithoutReplacement, scheme_maker
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import (
    MAX_DEPTH,
    MAX_TABLE,
    DraftModel,
    DynamicTree,
    Node,
    Place,
    PlannedTree,
    RateTable,
    Topology,
    Tree,
    TreePlan,
    checked_rates,
    draw_level,
    drawn,
    expected_accepted,
    grow,
    initial_rates,
    place_values,
    plan_tree,
    probabilities,
    rates_among,
    rates_from_alphas,
    valued,
)
from mdsd_opt.verifiers import Verifier

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

    def observe(self, root: Node, accepted: Sequence[int]) -> None:
        """Learn from a finished step."""


class PlannedGrowth(Growth):
    """Plan by the rates so far, which also value the drafts."""

    def __init__(self, tree: PlannedTree) -> None:
        table = _first_table(tree)
        super().__init__(first_plan(tree).topology, table)
        self._tree, self._rates = tree, RunningRates(table)
        self._steps, self._due = 0, _FIRST_REPLAN

    def observe(self, root: Node, accepted: Sequence[int]) -> None:
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


def growth_of(tree: Tree) -> Growth:
    """Policy by which the trees of successive steps are drawn."""
    policies: dict[type[Any], Callable[[Any], Growth]] = {
        PlannedTree: PlannedGrowth, DynamicTree: DynamicGrowth, Topology: Growth,
    }  # fmt: skip
    for kind, policy in policies.items():
        if isinstance(tree, kind):
            return policy(tree)
    raise InvalidInput(
        f"tree is {tree!r}: give a name, such as '4x3', or a Topology, PlannedTree or DynamicTree"
    )


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
    check_function(model=model)
    values = _forecast_values(of_kind(tree, DynamicTree, "tree", "a DynamicTree"))
    return _grown(model, tree, scheme_maker(scheme), generator_of(rng), values)


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

    A tree is planned, and grown, by the rates measured. The forecast is of accepted drafts a step;
    None where the tree is not known beforehand. Settings are temperatures and filters.
    """

    def table_of(max_drafts: int) -> RateTable:
        return measured_rates(target, draft, texts, max_drafts, scheme, **settings)

    if isinstance(tree, PlannedTree):
        tree = replace(tree, table=table_of(MAX_DRAFTS))
        return tree, first_plan(tree).expected_accepted
    if isinstance(tree, DynamicTree):
        return replace(tree, rates=table_of(tree.num_drafts)), None
    return tree, expected_accepted(tree, table_of(max(tree.num_drafts.values())))


# --- rates of places, from logits and from decoded steps ---

#: Number of visits that the table before any observation counts for.
PRIOR_VISITS = 16.0

#: Most positions of a text that are measured, from its end.
_MOST_POSITIONS = 64


@of_logits(late=("temperature",))
def place_rates(
    target_logits: Any,
    draft_logits: Any,
    max_drafts: int,
    scheme: str = "without_replacement",
    *,
    verifier: str | Verifier = "optimal",
    num_threads: int | None = None,
    **options: Unpack[LogitsKeywords],
) -> RateTable:
    r"""Chance that the draft of each place is passed, of 1, 2, ... drafts.

    :math:`\alpha_{j+1} - \alpha_j` with :math:`\alpha_k` the optimal acceptance rate of k drafts,
    averaged over the positions: what the j-th draft adds to those before it.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V)
        Or a pair of them, `mdsd_opt.Logits`, as the first argument.
    max_drafts : int
        K.
    scheme : str
        As `drafts` of `acceptance_rates`.
    verifier, num_threads : optional
        As for `acceptance_rates`.
    **options
        How laws are read from the logits, unless a pair tells, see `mdsd_opt.Logits`.

    Returns
    -------
    ndarray, shape (K + 1, K)
        [k, j] for place j, from 0, of k drafts; zero for j >= k.
    """
    checked_integer(max_drafts, "max_drafts", most=MAX_TABLE)
    pair = Logits.of(target_logits, draft_logits, options)
    _, alphas = _mean_rates(pair, max_drafts, scheme, verifier, num_threads=num_threads)
    return rates_from_alphas(alphas)


def measured_rates(
    target: Any,
    draft: Any,
    texts: Sequence[Sequence[int]],
    max_drafts: int,
    scheme: str = "without_replacement",
    *,
    verifier: str | Verifier = "optimal",
    num_threads: int | None = None,
    **options: Unpack[LogitsKeywords],
) -> RateTable:
    """Same as `place_rates` for two models on some texts; short ones are nearer to `initial_rates`.

    Parameters
    ----------
    target, draft : model
        As for `generate`.
    texts : sequence of sequences of int
        Token ids; of each the last 64 positions are measured, in one pass.
    max_drafts : int
    scheme : str
    verifier, num_threads, **options
        As for `place_rates`.
    """
    ask_target, ask_draft = tree_logits(target), tree_logits(draft)
    rates = RunningRates(initial_rates(max_drafts))
    for text in of_kind(texts, Iterable, "texts", "token ids of each"):
        of_kind(text, Collection, "one of texts", "token ids")
        start = max(len(text) - _MOST_POSITIONS, 0) + 1
        ahead = [tuple(text[start:end]) for end in range(start, len(text) + 1)]
        read = list(text[:start])
        pair = Logits(ask_target(read, ahead), ask_draft(read, ahead), **options)
        count, alphas = _mean_rates(pair, max_drafts, scheme, verifier, num_threads=num_threads)
        rates.add(rates_from_alphas(alphas), count)
    return rates.table


def _mean_rates(
    pair: Logits, max_drafts: int, *how: Any, num_threads: int | None
) -> tuple[int, Any]:
    """Number of positions, and mean acceptance rates of 1, 2, ... drafts."""
    from mdsd_opt.batch import acceptance_rates

    by_position = acceptance_rates(pair, range(1, max_drafts + 1), *how, num_threads=num_threads)
    rates = to_numpy(by_position, "rates").reshape(-1, max_drafts)
    if len(rates) == 0:
        raise InvalidInput("the logits have no positions: give at least one row")
    return len(rates), rates.mean(axis=0)


class RunningRates:
    """A table that follows what is observed, step after step.

    A tree that is planned from steps that are over is as lossless as any other fixed tree.

    Parameters
    ----------
    table : ndarray, shape (K + 1, K)
        Table before anything is observed; it counts for 16 visits of a node.
    """

    def __init__(self, table: RateTable) -> None:
        table = checked_rates(table)
        self._visits = np.full(len(table), PRIOR_VISITS)
        self._passes = PRIOR_VISITS * table

    @property
    def table(self) -> RateTable:
        """Mean so far, shape (K + 1, K)."""
        return self._passes / self._visits[:, None]

    @property
    def max_drafts(self) -> int:
        return self._visits.size - 1

    def add(self, table: RateTable, visits: float) -> None:
        """Count a table that was measured at so many nodes."""
        self._passes += visits * table
        self._visits += visits

    def observe(self, root: Node, accepted: Sequence[int]) -> None:
        """Count the nodes that a step has reached, and the drafts of each that it has passed.

        Parameters
        ----------
        root : Node
        accepted : sequence of int
            Drafts that were accepted, from the root on.
        """
        for node, token in self._come_to(root, accepted):
            count = node.draws.size
            self._visits[count] += 1.0
            if token is not None:
                self._passes[count, node.children[token].place[-1]] += 1.0

    def _come_to(self, root: Node, accepted: Sequence[int]) -> Iterator[tuple[Node, int | None]]:
        """Nodes with drafts that a step reached, and the draft of each that it has passed."""
        node = root
        for token in (*accepted, None):
            if not 0 < node.draws.size <= self.max_drafts:
                break
            yield node, token
            if token is not None:
                node = node.children[token]
