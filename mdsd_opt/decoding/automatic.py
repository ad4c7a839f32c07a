r"""Trees, or none, chosen while decoding by the drafts that are passed and the cost of steps.

A step costs a pass of the draft model for each level, and a pass of the target over the tree. Both
are timed, and what is passed is counted; every so often `plan_tree` looks for the tree that brings
most tokens a second. Where plain decoding brings more, it decodes plainly. What was not chosen is
tried again now and then, so seldom that it costs half a hundredth of the time.

Trees depend on steps that are over alone, so that every rule stays lossless. By the clock a text is
another one each time, of the same law.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mdsd_opt.decoding.growth import MAX_DRAFTS, DynamicGrowth, Growth, PlannedGrowth
from mdsd_opt.decoding.place_rates import PRIOR_VISITS, RunningRates
from mdsd_opt.drafts import SchemeMaker
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import (
    MAX_DEPTH,
    AutoTree,
    CostByDepth,
    DraftModel,
    DynamicTree,
    Node,
    PlannedTree,
    RateTable,
    Topology,
    Tree,
    k_ary,
    plan_tree,
    rates_from_alphas,
)

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
    """Tree that brings most tokens per second, or none; see `AutoTree`."""

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
