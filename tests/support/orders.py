"""Orders in which the drafts of a node are tested from the leaves up: each, and the best of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any, ClassVar

import numpy as np
from support.tables import tuple_law

from mdsd_opt.decoding import Node, Topology
from mdsd_opt.drafts import scheme_maker
from mdsd_opt.trees import Stop, TreeRule
from mdsd_opt.trees.rules.rule import completed
from mdsd_opt.trees.token_split import token_split

Text = tuple[int, ...]
Masses = dict[int, Any]

#: Tokens of a node's drafts in the order of their tests, from its text, p, scheme, draws, masses.
Order = Callable[[Text, Any, Any, Any, Masses], Sequence[int]]


def by_mass(text: Text, p: Any, drafts: Any, draws: Any, masses: Masses) -> Sequence[int]:
    return sorted(masses, key=lambda x: (-masses[x], x))


def by_least_mass(*node: Any) -> Sequence[int]:
    return by_mass(*node)[::-1]


def by_ratio(text: Text, p: Any, drafts: Any, draws: Any, masses: Masses) -> Sequence[int]:
    q = _law(drafts, p)
    return sorted(masses, key=lambda x: (-p[x] / q[x], x))


def as_drawn(text: Text, p: Any, drafts: Any, draws: Any, masses: Masses) -> Sequence[int]:
    return [x for x in dict.fromkeys(draws.tolist()) if x in masses]


def _law(drafts: Any, p: Any) -> Any:
    return drafts.law(p.dtype == object).q


class InOrder(TreeRule):
    """Traversal by the hull rule where all drafts of a node are worth the same, in a given order.

    The order may depend on all that is known before anything is drawn below the node.
    """

    name: ClassVar[str] = "in_order"

    def __init__(self, order: Order) -> None:
        self._order = order

    def stops(self, root: Node) -> list[Stop]:
        found: list[Stop] = []
        return completed(found, root, self._visit(root, 1, 1, found))

    def _visit(self, node: Node, reach: Any, demand: Any, found: list[Stop]) -> Any:
        if reach <= 0 or demand <= 0:
            return reach
        if node.drafts is None:
            found.append(Stop(node, reach * demand))
            return reach * (1 - demand)
        target = demand * node.target
        split = token_split(target, node.drafts, node.draws, np.ones(node.draws.size))
        masses = {x: mass for x, mass in split.masses.items() if mass > 0}
        tested: Any = 0
        for x in self._order(node.tokens, node.target, node.drafts, node.draws, masses):
            if tested < 1:
                share = min(masses[x] / (1 - tested), 1)
                reach = self._visit(node.children[x], reach, share, found)
                tested += masses[x]
        if split.alpha >= 1:
            return reach
        ends = max((demand - split.alpha) / (1 - split.alpha), 0)
        found.append(Stop(node, reach * ends, target - split.kept))
        return reach * (1 - ends)


class Orders:
    """Mean number of accepted drafts of all trees that can be drawn, in an order or in the best.

    A child u of mass m, tested after others of masses that sum to s, is reached with 1 - s on
    average and is to be passed with m / (1 - s): what is below it does not depend on theirs.
    Topologies have the same number of drafts after every place of a level. Without an order, every
    order is tried wherever a node's drafts are tested.
    """

    def __init__(
        self, target: Any, draft: Any, topology: Topology, scheme: str, order: Order | None = None
    ) -> None:
        self._p, self._q, self._make, self._order = target, draft, scheme_maker(scheme), order
        self._widths = [topology.drafts_at((0,) * n) for n in range(topology.depth)]
        self._known: dict[Any, Any] = {}

    def accepted(self, text: Text = (), demand: Any = 1, levels: int = 99) -> Any:
        """Mean number accepted below a node that is to be passed with `demand`, of some levels."""
        if len(text) == len(self._widths) or levels == 0 or demand <= 0:
            return 0
        key = (text, demand, levels)
        if key not in self._known:
            p, width = self._p(text), self._widths[len(text)]
            drafts, total = self._make(self._q(text), width), 0
            for draws, chance in tuple_law(drafts, p.dtype == object):
                split = token_split(demand * p, drafts, draws, np.ones(width))
                masses = {x: mass for x, mass in split.masses.items() if mass > 0}
                ways = permutations(masses)
                if self._order is not None:
                    ways = [self._order(text, p, drafts, draws, masses)]
                below = max(self.after(text, masses, way, levels - 1) for way in ways)
                total += chance * (sum(masses.values()) + below)
            self._known[key] = total
        return self._known[key]

    def after(self, text: Text, masses: Masses, way: Sequence[int], levels: int = 99) -> Any:
        """Mean number accepted below the children of a node, tested in the order `way`."""
        total, left = 0, 1
        for x in way:
            if left > 1e-12:
                share = min(masses[x] / left, 1)
                total += left * self.accepted((*text, x), share, levels)
            left = left - masses[x]
        return total


def one_level_on(target: Any, draft: Any, topology: Topology, scheme: str) -> Order:
    """Order with which most is accepted of the drafts after a node's children."""
    ahead = Orders(target, draft, topology, scheme)

    def order(text: Text, p: Any, drafts: Any, draws: Any, masses: Masses) -> Sequence[int]:
        return max(permutations(masses), key=lambda way: ahead.after(text, masses, way, 1))

    return order
