"""Policies for the trees of successive steps: fixed ones, planned ones, and those that grow.

Trees depend on steps that are over alone, so that every rule stays lossless.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Law
from mdsd_opt.base.checked import Rng, check_function, generator_of, of_kind
from mdsd_opt.decoding.place_rates import PRIOR_VISITS, RunningRates, measured_rates
from mdsd_opt.drafts import SchemeMaker, WithoutReplacement, scheme_maker
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import (
    MAX_DEPTH,
    AutoTree,
    CostByDepth,
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
    k_ary,
    place_values,
    plan_tree,
    probabilities,
    rates_among,
    rates_from_alphas,
    valued,
)

#: Most drafts of a node in a plan without a table.
MAX_DRAFTS = 8

#: Number of steps until the first new plan; each later one comes after twice as many.
_FIRST_REPLAN = 8

#: Share of the time that tries may take.
_TRIED = 0.005

#: Number of steps of one kind whose median of seconds counts.
_WINDOW = 9

#: Number of steps of a tree that is tried; in the first a draft model reads what it has missed.
_TRY = 3

#: Number of steps between two plans.
_STAY = 8

#: Number of recent steps against which forecasts are checked, and tokens counted beside theirs.
_RECENT, _BESIDE = 48, 8.0

#: Weight of a tree after one more: texts change.
_REMEMBERED = 0.99

#: Prior chance that one draft is passed, and the number of visits it counts for.
_FIRST_RATE, _FIRST_VISITS = 0.5, 2.0


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


class PooledRates(RunningRates):
    r"""Recent running rates; numbers of drafts that few nodes had take their rates from all nodes.

    There :math:`\alpha_K = 1 - (1 - a)^D`, with the a by which as many drafts would have been
    passed as there were. D is the number of different drafts among K, by how many there were of
    others: where the draft model is certain, it is 1 whatever K.
    """

    def __init__(self, max_drafts: int) -> None:
        super().__init__(np.zeros((max_drafts + 1, max_drafts)))
        self._visits[:] = 0.0
        self._nodes = np.zeros(max_drafts + 1)  # by their different drafts
        self._beside = np.full(2, _FIRST_VISITS)  # drafts beside the first, and different ones

    @property
    def table(self) -> RateTable:
        extra, different = self._beside
        distinct = 1.0 + np.arange(self.max_drafts) * different / extra
        prior = rates_from_alphas(1.0 - (1.0 - self._of_one()) ** distinct)
        sums = self._passes + PRIOR_VISITS * prior
        return sums / (self._visits + PRIOR_VISITS)[:, None]

    def observe(self, root: Node, accepted: Sequence[int]) -> None:
        if root.drafts is None:
            return
        for counts in (self._visits, self._passes, self._nodes, self._beside):
            counts *= _REMEMBERED
        super().observe(root, accepted)
        for node, _ in self._come_to(root, accepted):
            different = len(node.children)
            self._nodes[different] += 1.0
            self._beside += (node.draws.size - 1, different - 1)

    def add(self, table: RateTable, visits: float) -> None:
        super().add(table, visits)
        self._nodes += visits

    def _of_one(self) -> float:
        """Rate a of one draft, by bisection."""
        passed = self._passes.sum() + _FIRST_VISITS * _FIRST_RATE
        counts, low, high = np.arange(self.max_drafts + 1), 0.0, 1.0 - 1e-6
        for _ in range(30):
            a = (low + high) / 2.0
            foretold = self._nodes @ (1.0 - (1.0 - a) ** counts) + _FIRST_VISITS * a
            low, high = (a, high) if foretold < passed else (low, a)
        return low


class RunningCosts:
    """Seconds of a step by its drafts and levels, from steps that were timed."""

    def __init__(self) -> None:
        self._of_level: deque[float] = deque(maxlen=_WINDOW)
        self._of_rows: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=_WINDOW))

    def add(self, drafts: int, levels: int, seconds: tuple[float, float]) -> None:
        """Count a step: the seconds of its draft, and those of the target and the rule."""
        if levels:
            self._of_level.append(seconds[0] / levels)
        self._of_rows[drafts].append(seconds[1])

    def __call__(self, drafts: int, levels: int) -> float:
        """Seconds of a step, by straight lines between and beyond the counts that occurred."""
        sizes = sorted(self._of_rows)
        seconds = [float(np.median(self._of_rows[n])) for n in sizes]
        rows = float(np.interp(drafts, sizes, seconds))
        if drafts > sizes[-1] > sizes[0]:
            slope = max(seconds[-1] - seconds[0], 0.0) / (sizes[-1] - sizes[0])
            rows += slope * (drafts - sizes[-1])
        return rows + levels * float(np.median(self._of_level or [0.0]))


class AutoGrowth(Growth):
    """Tree that brings most tokens per second, or none, by the drafts passed and the cost of steps.

    A step costs a pass of the draft model for each level, and a pass of the target over the tree.
    Both are timed, and what is passed is counted; every so often `plan_tree` looks for the tree
    that brings most tokens a second. Where plain decoding brings more, it decodes plainly. What was
    not chosen is tried again now and then, so seldom that it costs half a hundredth of the time.
    By the clock a text is another one each time, of the same law.
    """

    def __init__(self, tree: AutoTree) -> None:
        super().__init__(k_ary(2, 2))
        self._tree, self._rates = tree, PooledRates(MAX_DRAFTS)
        self._timed = RunningCosts()
        self._cost: CostByDepth = tree.cost or self._timed
        self._kept: deque[tuple[float, float]] = deque(maxlen=_RECENT)
        self._promised = 0.0  # tokens a second of the present tree
        self._best = 0.0  # of what is done
        self._seconds = self._tokens = 0.0
        self._begins = True
        self._course = self._steps()
        self._is_plain = next(self._course)

    def begin(self) -> None:
        self._begins = True

    def grow(
        self, model: DraftModel, make: SchemeMaker, rng: np.random.Generator, depth: int = MAX_DEPTH
    ) -> Node:
        return Node((), ()) if self._is_plain else super().grow(model, make, rng, depth)

    def observe(self, root: Node, accepted: Sequence[int], seconds: tuple[float, float]) -> None:
        self._rates.observe(root, accepted)
        if self._begins:  # a text's first step reads the prompt
            self._begins = False
            return
        nodes = root.walk()
        size = len(nodes) - 1, len({node.depth for node in nodes if node.drafts is not None})
        self._timed.add(*size, seconds)
        took, tokens = sum(seconds), 1.0 + len(accepted)
        if self._tree.cost is not None:
            took = self._tree.cost(*size)
        self._seconds += took
        self._tokens += tokens
        if root.drafts is not None and self._promised > 0.0:
            self._kept.append((tokens, self._promised * took))
        self._is_plain = next(self._course)

    def _steps(self) -> Iterator[bool]:
        """Whether each step is plain, one after the other; the others use the tree taken last."""
        yield from [False] * _TRY
        yield from [True] * _TRY
        due = 0.0
        while True:
            pays = self._plan()
            yield from [not pays] * _STAY
            if self._seconds >= due:  # what is not done is tried, and earns its cost afterwards
                seconds, tokens = self._seconds, self._tokens
                yield from [pays] * (1 if pays else _TRY)
                seconds, tokens = self._seconds - seconds, self._tokens - tokens
                due = self._seconds + max(seconds - tokens / self._best, 0.0) / _TRIED

    def _plan(self) -> bool:
        """Take the tree that is best by now; return whether it pays."""
        tree, table = self._tree, self._rates.table
        plan = plan_tree(table, tree.num_nodes, tree.max_depth, self._cost)
        self.take(plan.topology, table)
        assert plan.tokens_per_second is not None  # there is a cost
        self._promised = plan.tokens_per_second
        tokens, promised = (sum(x) for x in zip((_BESIDE, _BESIDE), *self._kept, strict=True))
        forecast, plain = self._promised * min(tokens / promised, 1.0), 1.0 / self._cost(0, 0)
        self._best = max(forecast, plain)
        return forecast > plain


def growth_of(tree: Tree | Growth) -> Growth:
    """Policy by which the trees of successive steps are drawn; it keeps what it has learnt."""
    policies: dict[type[Any], Callable[[Any], Growth]] = {
        AutoTree: AutoGrowth, PlannedTree: PlannedGrowth, DynamicTree: DynamicGrowth,
        Topology: Growth, Growth: lambda growth: growth,
    }  # fmt: skip
    for kind, policy in policies.items():
        if isinstance(tree, kind):
            return policy(tree)
    raise InvalidInput(
        f"tree is {tree!r}: give a name, such as '4x3', or a Topology, PlannedTree, DynamicTree or "
        "AutoTree"
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
