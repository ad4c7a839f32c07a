r"""Topology of a draft tree that accepts most drafts, or brings most tokens per second.

With :math:`a_{Kk}` the rates of the places,

.. math:: W(n) = \max_K \max_{n_1 + \dots + n_K \le n - K} \sum_k a_{Kk}\, (1 + W(n_k)).

Where the rates do not depend on K this is the plan of Sequoia [Sequoia]: the n places that are
likeliest to be passed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Floats, Integers
from mdsd_opt.base.checked import check_counts, floats
from mdsd_opt.base.frames import Column, Result, Table
from mdsd_opt.errors import InvalidInput, ProblemTooLarge
from mdsd_opt.trees.topology import (
    MAX_DEPTH,
    Place,
    RateTable,
    Topology,
    balanced,
    chain,
    checked_rates,
    expected_accepted,
    sparse,
)

#: Seconds of a step by the number of drafts: a function, or a table measured at some numbers.
Cost = Callable[[int], float] | Mapping[int, float] | Sequence[float]

#: Seconds of a step by the number of drafts and of the levels that the draft model draws.
CostByDepth = Callable[[int, int], float]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

#: Most drafts of a plan.
MAX_NODES = 4096

#: Most numbers in the sums that a plan goes through, 8 bytes each.
_MAX_NUMBERS = 5 * 10**7


@dataclass(frozen=True, slots=True)
class TreePlan(Result):
    """A topology, and its expected results.

    Attributes
    ----------
    topology : Topology
        The values of the drafts of a node fall in draw order.
    expected_accepted : float
        Drafts that a step accepts on average, by the rates of the plan.
    tokens_per_second : float or None
        Rate with the extra token of each step; None without a cost.
    """

    topology: Topology
    expected_accepted: float
    tokens_per_second: float | None = None

    columns: ClassVar = (
        Column("tree", of="topology.name", is_text=True),
        Column("num_nodes", "drafts", of="topology.num_nodes"),
        Column("depth", "levels", of="topology.depth"),
        Column("expected_accepted", "accepted, forecast", "{0:.3f}"),
    )

    def tables(self) -> list[Table]:
        """Table of the tree and its forecast."""
        return Forecasts([self]).tables()


class Forecasts(list[TreePlan]):
    """A plan, and other trees beside it."""

    def tables(self) -> list[Table]:
        """Table of the forecasts, the plan's first."""
        title = "drafts accepted a step, forecast by the rates of these logits; higher is better"
        return [Table(title, TreePlan.columns, self)]

    @property
    def conclusion(self) -> str:
        """Sentence about the plan and its lead over other trees."""
        planned, *others = self
        name, accepted = planned.topology.name, planned.expected_accepted
        ahead = (
            f", {accepted - others[0].expected_accepted:.3f} more than {others[0].topology.name}"
            if others
            else ""
        )
        return (
            f"{name} is forecast to accept {accepted:.3f} drafts{ahead}; mdsd-opt decode --tree "
            f"{name} plans one for your models"
        )


def plan_tree(
    table: RateTable,
    num_nodes: int,
    max_depth: int | None = None,
    cost: Cost | CostByDepth | None = None,
) -> TreePlan:
    """Best topology within a number of drafts, exactly, by dynamic programming.

    Parameters
    ----------
    table : ndarray, shape (K + 1, K)
        Table of `place_rates`: [k, j] is the chance that the j-th most valuable of k drafts is
        passed. Nodes have at most K drafts.
    num_nodes : int
        Drafts of the tree, at most.
    max_depth : int, optional
        Levels, at most.
    cost : callable, mapping of int to float, or sequence, optional
        Seconds of a step by its number of drafts; a mapping is interpolated between the numbers
        it has, a sequence begins with no draft. A callable of two arguments is given the levels,
        too: the draft model makes a pass for each. With it the plan is for
        (1 + accepted) / seconds, else for the most accepted drafts.

    Returns
    -------
    TreePlan

    Raises
    ------
    InvalidInput
        No draft or level allowed, a table of another form, a cost that is not positive.
    ProblemTooLarge
        More than 4,096 drafts, or a table too wide or too many levels for so many.

    Notes
    -----
    O(K n^2 log K) for each level that is allowed, and once if there is no limit. A cost by levels
    looks at every number of them.
    """
    rates = _checked(table)
    check_counts(num_nodes=num_nodes, max_depth=1 if max_depth is None else max_depth)
    by_levels = _takes_levels(cost)
    if cost is not None and not callable(cost):
        measured = max(_measured(cost), default=0)
        if measured < 1:
            raise InvalidInput("the cost is of no number of drafts: give seconds for some")
        num_nodes = min(num_nodes, measured)
    depth = None if max_depth is None or max_depth >= num_nodes else max_depth
    if by_levels and depth is None:
        depth = num_nodes
    numbers = rates.size * (num_nodes + 1) * (depth or 1)
    if num_nodes > MAX_NODES or numbers > _MAX_NUMBERS:
        raise ProblemTooLarge(
            f"{num_nodes:,} drafts, up to {rates.shape[1]} after a node: a plan takes up to "
            f"{MAX_NODES:,}; give fewer, or fewer after a node or fewer levels"
        )
    levels = _levels(rates, num_nodes, depth)
    if cost is None:
        return _plan(rates, levels, num_nodes, depth)
    seconds, most = seconds_of(cost), len(levels)

    def speed(size: tuple[int, int]) -> float:
        return (1.0 + float(levels[size[1] - 1].best[size[0]])) / seconds(*size)

    sizes = range(1, num_nodes + 1)
    if by_levels:
        pairs = [(n, d) for n in sizes for d in range(1, min(n, most) + 1)]
    else:
        pairs = [(n, most) for n in sizes]
    chosen, deepest = max(pairs, key=speed)
    plan = _plan(rates, levels[:deepest], chosen, depth and deepest)
    took = seconds(plan.topology.num_nodes, plan.topology.depth)
    return replace(plan, tokens_per_second=(1.0 + plan.expected_accepted) / took)


def plans_by_size(table: RateTable, sizes: Sequence[int], max_depth: int) -> Iterator[TreePlan]:
    """Plans that `plan_tree` finds for several numbers of drafts, from one run of the programme."""
    rates = _checked(table)
    limited = _levels(rates, max(sizes), max_depth)
    for size in sizes:
        depth = max_depth if max_depth < size else None
        levels = limited if depth else _levels(rates, size, None)
        yield _plan(rates, levels, size, depth)


def _takes_levels(cost: Cost | CostByDepth | None) -> bool:
    if not callable(cost):
        return False
    try:
        parameters = inspect.signature(cost).parameters.values()
    except ValueError:  # some of those that are built in do not tell
        return False
    needed = [x for x in parameters if x.default is x.empty and x.kind in _POSITIONAL]
    return len(needed) == 2


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Best results of a node with some levels below it; the arrays of `best_below`."""

    below: Floats
    best: Floats
    counts: Integers
    sums: Floats

    def shares(self, rates: RateTable, drafts: int) -> list[int]:
        """Number of drafts below each draft of a node that may use so many, in falling order."""
        while self.counts[drafts] == 0 and drafts > 0:  # fewer bring as much
            drafts -= 1
        count = int(self.counts[drafts])
        rest, sizes = drafts - count, []
        for j in range(count - 1, 0, -1):
            x = np.arange(rest // (j + 1) + 1)
            sizes.append(
                int(np.argmax(self.sums[count, j - 1, rest - x] + rates[count, j] * self.below[x]))
            )
            rest -= sizes[-1]
        return sorted([*sizes, rest][:count], reverse=True)


def _levels(rates: RateTable, num_nodes: int, depth: int | None) -> list[_Level]:
    """Best results by the number of levels below a node; one entry if there is no limit."""
    from mdsd_opt.trees.tree_kernels import best_below

    size = num_nodes + 1
    levels: list[_Level] = []
    for _ in range(depth or 1):
        best = np.zeros(size)
        deeper = levels[-1].best if levels else np.zeros(size)
        below = best if depth is None else deeper
        level = _Level(below, best, np.zeros(size, np.int64), np.empty((*rates.shape, size)))
        best_below(rates, below, best, level.counts, level.sums)
        levels.append(level)
    return levels


def _plan(rates: RateTable, levels: list[_Level], num_nodes: int, depth: int | None) -> TreePlan:
    """Plan read from the choices, from the root down."""
    places: dict[Place, int] = {}
    waiting: list[tuple[Place, int]] = [((), num_nodes)]
    while waiting:
        place, drafts = waiting.pop()
        if len(place) == depth:
            continue
        level = levels[0 if depth is None else -1 - len(place)]
        shares = level.shares(rates, drafts)
        if shares:
            places[place] = len(shares)
        waiting += [((*place, rank), share) for rank, share in enumerate(shares) if share]
    places = places or {(): 1}
    deepest = max(map(len, places)) + 1
    name = f"planned{num_nodes}" + (f"/{depth}" if deepest == depth else "")
    return TreePlan(Topology(places, name), float(levels[-1].best[num_nodes]))


def seconds_of(cost: Cost | CostByDepth) -> Callable[..., float]:
    """Seconds of a step by its numbers of drafts and levels; raises if a value is no duration."""
    by_levels = _takes_levels(cost)
    of: Any = cost
    if not callable(cost):
        known = sorted(_measured(cost).items())
        drafts, times = (floats([x[i] for x in known], "cost") for i in (0, 1))
        if not times.size or times.ndim > 1:
            raise InvalidInput(f"cost is {cost!r:.60}: give seconds by numbers of drafts")
        of = partial(np.interp, xp=drafts, fp=times)

    def checked(drafts: int, levels: int = 0) -> float:
        seconds = float(of(drafts, levels) if by_levels else of(drafts))
        if not 0.0 < seconds < np.inf:
            raise InvalidInput(
                f"the cost of a step with {drafts} drafts is {seconds}: give seconds above 0"
            )
        return seconds

    return checked


def _measured(cost: Any) -> Mapping[int, float]:
    if isinstance(cost, Mapping):
        return cost
    return dict(enumerate(cost if isinstance(cost, Iterable) else ()))


def _checked(table: RateTable) -> RateTable:
    """Table with falling rows: the most valuable draft is the likeliest to be passed."""
    rates = checked_rates(table).copy()
    for k in range(len(rates)):
        rates[k, :k] = np.sort(rates[k, :k])[::-1]
    return rates


#: Most drafts of a node in the balanced trees that a plan is compared with.
_WIDEST_BALANCED = 4


def forecasts(plan: TreePlan, table: RateTable, max_depth: int | None = None) -> Forecasts:
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
    return Forecasts([plan, *sorted(beside, key=lambda forecast: -forecast.expected_accepted)])


def chances(topology: Topology, table: RateTable) -> dict[Place, float]:
    """Chance that each draft is accepted, parents before children."""
    chances: dict[Place, float] = {(): 1.0}
    for place in sorted(topology.num_drafts, key=len):
        count = topology.num_drafts[place]
        falling = np.sort(table[count, :count])[::-1]
        chances |= {(*place, rank): chances[place] * float(falling[rank]) for rank in range(count)}
    return chances
