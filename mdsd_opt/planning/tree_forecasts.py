r"""What a draft tree accepts, by the rates of positions: along their texts, or by the mean alone.

With :math:`a_{tk}` what the k-th draft adds to the acceptance rate at position t, a step that
begins there accepts

.. math:: W_t(\text{place}) = \sum_k a_{tk}\, (1 + W_{t+1}(\text{place}, k))

drafts. Where no position follows the mean rates take its place. That is along the text that was
measured; the accepted drafts of a step are likelier tokens than those of the text, which this
leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mdsd_opt.base.array_types import Floats, Integers
from mdsd_opt.trees.plans import plan_tree
from mdsd_opt.trees.topology import Place, Topology, chain, k_ary, rates_from_alphas

#: Drafts after a node, at most: the rates of more are hardly higher.
MAX_WIDTH = 16

#: Sizes and depths of plans that are compared.
_GRID = (*range(1, 17), 20, 24, 32, 48, 64)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A tree for one scheme, and what it accepts where positions are independent."""

    scheme: str
    tree: Topology
    accepted: float


class TreeForecasts:
    """Forecasts of trees whose drafts are drawn by one scheme.

    Parameters
    ----------
    scheme : str
    alphas : ndarray, shape (N, K)
        Acceptance rates of 1 .. K drafts at every position.
    following : ndarray, shape (N + 1,)
        Of `PositionRates`.
    """

    def __init__(self, scheme: str, alphas: Floats, following: Integers) -> None:
        self.scheme = scheme
        self.table = rates_from_alphas(alphas.mean(axis=0))
        gains = np.diff(alphas, axis=1, prepend=0.0)
        self._gains = np.vstack([gains, gains.mean(axis=0)])
        self._following = following

    @cached_property
    def _is_followed(self) -> bool:
        return bool((self._following < len(self._gains) - 1).any())

    def candidates(self, max_drafts: int) -> list[Candidate]:
        """The plans that accept most within every size and depth."""
        found: dict[frozenset[tuple[Place, int]], Candidate] = {}
        for depth in (n for n in _GRID if n <= max_drafts):
            for size in (n for n in _GRID if depth <= n <= max_drafts):
                plan = plan_tree(self.table, size, depth)
                tree = named(plan.topology)
                key = frozenset(tree.num_drafts.items())
                found.setdefault(key, Candidate(self.scheme, tree, plan.expected_accepted))
        return list(found.values())

    def accepted(self, tree: Topology) -> Floats:
        """Drafts that a step accepts; the mean is the forecast, shape (N,).

        Along the texts where positions follow each other, else with independent positions, each
        with what it contributes to the forecast.
        """
        if self._is_followed:
            return self._along(tree, self._following)[()]
        return self._influence(tree)

    def lasting(self, tree: Topology) -> Floats:
        """`accepted` with positions beyond the end of a text as easy as its last, shape (N,)."""
        stays = self._following == len(self._gains) - 1
        stays[-1] = False
        return self._along(tree, np.where(stays, np.arange(stays.size), self._following))[()]

    def independent(self, tree: Topology) -> float:
        """The forecast where the positions of a path are independent."""
        return float(self._along(tree, np.full_like(self._following, -1))[()].mean())

    def persistent(self, tree: Topology) -> float:
        """The forecast where every position of a path is as easy as the first."""
        return float(self._along(tree, np.arange(self._following.size))[()].mean())

    def _order(self, count: int) -> Integers:
        """Draws of a node, the likeliest to be passed first, as the children of a plan are."""
        return np.argsort(-self._gains[-1, :count], kind="stable")

    def _along(self, tree: Topology, following: Integers) -> dict[Place, Floats]:
        """W of every node that has drafts, by the position where the step begins."""
        rows = [np.arange(len(self._gains) - 1)]
        for _ in range(tree.depth):
            rows.append(following[rows[-1]])
        worth: dict[Place, Floats] = {}
        for place in sorted(tree.num_drafts, key=len, reverse=True):
            gains = self._gains[rows[len(place)]]
            worth[place] = np.zeros(len(gains))
            for rank, column in enumerate(self._order(tree.num_drafts[place])):
                worth[place] += gains[:, column] * (1.0 + worth.get((*place, rank), 0.0))
        return worth

    def _influence(self, tree: Topology) -> Floats:
        """The forecast with independent positions, linear in the rates of each of them."""
        mean, gains = self._gains[-1], self._gains[:-1]
        worth: dict[Place, float] = {}
        for place in sorted(tree.num_drafts, key=len, reverse=True):
            order = self._order(tree.num_drafts[place])
            worth[place] = sum(
                float(mean[column]) * (1.0 + worth.get((*place, rank), 0.0))
                for rank, column in enumerate(order)
            )
        total = np.full(len(gains), worth[()])
        reached: dict[Place, float] = {(): 1.0}
        for place in sorted(tree.num_drafts, key=len):
            for rank, column in enumerate(self._order(tree.num_drafts[place])):
                child = (*place, rank)
                reached[child] = reached[place] * float(mean[column])
                share = reached[place] * (1.0 + worth.get(child, 0.0))
                total += share * (gains[:, column] - mean[column])
        return total


def named(tree: Topology) -> Topology:
    """The same tree by the name that `parse_topology` reads, where it has one."""
    width, depth = max(tree.num_drafts.values()), tree.depth
    if tree.num_nodes == depth:
        return chain(depth)
    even = tree.num_nodes == sum(width**n for n in range(1, depth + 1))
    return k_ary(width, depth) if even else tree
