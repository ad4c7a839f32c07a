r"""Shape of a draft tree: the number of drafts at each node, and their values.

A draft is worth itself, and what is accepted below it. With :math:`a_{Kk}` the chance that the k-th
most valuable of K drafts is passed, the best first,

.. math:: v(\text{place}) = 1 + W(\text{place}), \qquad W = \sum_k a_{Kk}\, v_{(k)}

over the drafts that are drawn after the place. Known before anything is drawn.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from mdsd_opt.base.arrays import Floats
from mdsd_opt.base.checked import check_confidence, check_counts, checked_integer, floats, of_kind
from mdsd_opt.drafts import count_power
from mdsd_opt.errors import InvalidInput

#: A node by the ranks of its ancestors and itself among their siblings, in the order of drawing.
Place = tuple[int, ...]

#: Rates of the places, shape (K + 1, K): [k, j] that place j is passed when k are drawn.
RateTable = Floats

#: One table for every node, or a function from its draft law to one.
Rates = RateTable | Callable[[Floats], RateTable]

#: Most levels of a tree; no model reads its drafts as far ahead.
MAX_DEPTH = 1000

#: Most drafts of a node in a table of rates.
MAX_TABLE = 10_000

#: Most drafts of a tree that is built.
_MOST_NODES = 200_000

#: Number of drafts in the sparse default: more where acceptance is likely, as in EAGLE's tree.
_SPARSE: dict[Place, int] = {
    (): 4, (0,): 3, (1,): 2, (2,): 1, (3,): 1,
    (0, 0): 3, (0, 1): 2, (0, 2): 1, (1, 0): 2, (1, 1): 1, (2, 0): 1,
    (0, 0, 0): 2, (0, 0, 1): 1, (0, 1, 0): 1, (1, 0, 0): 1,
    (0, 0, 0, 0): 1,
}  # fmt: skip

_FORMS = (
    "as drafts x depth (4x3), chain5 for one draft at a time, paths3x4 for three whole paths of "
    "four drafts, sparse or sparse16, planned16 for the plan that accepts most with 16 drafts, "
    "planned16/4 in 4 levels, or dynamic24 for a tree of at most 24 drafts grown where acceptance "
    "is likeliest"
)


class PlacedDrafts(NamedTuple):
    """Number of drafts that are drawn after the node at a place."""

    place: Place
    num_drafts: int


@dataclass(frozen=True, slots=True)
class Topology:
    """Number of drafts drawn after each node.

    Attributes
    ----------
    num_drafts : mapping of tuple to int
        Number of drafts by the place of the node: the root is (), its first draft (0,). Nodes that
        are not named are leaves. Draws may coincide; the node then has the place of the first of
        them.
    name : str
    merges : bool
        Draws that coincide are one node with the places of all of them: after it is drawn what
        would be drawn after each. The tree is then the union of trees that do not know of one
        another.
    """

    num_drafts: Mapping[Place, int]
    name: str
    merges: bool = False

    def __post_init__(self) -> None:
        of_kind(self.num_drafts, Mapping, "num_drafts", "the number of drafts by place")
        for place, count in self.num_drafts.items():
            of_kind(place, tuple, "a place of num_drafts", "ranks of drafts, as ()")
            checked_integer(count, f"the number of drafts at the node {place}")
            if place and self.num_drafts.get(place[:-1], 0) <= place[-1]:
                raise InvalidInput(f"the node {place} is named, but its parent has no such draft")
        if () not in self.num_drafts:
            raise InvalidInput("the root () has no drafts: a tree has at least one")

    @property
    def depth(self) -> int:
        """Largest number of tokens of a path."""
        return 1 + max(map(len, self.num_drafts))

    @property
    def placed(self) -> list[PlacedDrafts]:
        """Drafts by place, in order."""
        return [PlacedDrafts(place, count) for place, count in sorted(self.num_drafts.items())]

    @property
    def num_nodes(self) -> int:
        """Number of drafts in the tree, if none coincide."""
        return sum(self.num_drafts.values())

    def cut(self, depth: int) -> Topology:
        """Same topology without levels below that depth, at least one of which stays."""
        if depth >= self.depth:
            return self
        counts = {place: count for place, count in self.num_drafts.items() if len(place) < depth}
        return replace(self, num_drafts=counts)

    def drafts_at(self, place: Place) -> int:
        """Number of drafts drawn after a node; 0 for a leaf."""
        return self.num_drafts.get(place, 0)


@dataclass(frozen=True, slots=True)
class DynamicTree:
    """A tree that grows where acceptance is likeliest, see `grow_by_acceptance`.

    Attributes
    ----------
    num_nodes : int
        Drafts of the whole tree, at most; those of the root are drawn in any case.
    num_drafts : int
        Drafts after each node that gets any.
    max_depth : int
    rates : ndarray, shape (K + 1, K), or callable, optional
        Table of `place_rates`, or one for each draft law; by default `initial_rates`.
    """

    num_nodes: int
    num_drafts: int = 4
    max_depth: int = 6
    rates: Rates | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_counts(num_nodes=self.num_nodes, num_drafts=self.num_drafts, max_depth=self.max_depth)


@dataclass(frozen=True, slots=True)
class PlannedTree:
    """Plan that accepts most, see `plan_tree`; it is renewed as steps show what is passed.

    Attributes
    ----------
    num_nodes : int
        Drafts of the whole tree, at most.
    max_depth : int
    table : ndarray, shape (K + 1, K), optional
        Table of `place_rates`, to begin with; by default `initial_rates`, for up to 8 drafts of a
        node.
    """

    num_nodes: int
    max_depth: int = 6
    table: RateTable | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_counts(num_nodes=self.num_nodes, max_depth=self.max_depth)


#: Kinds of trees that can be drawn.
Tree = Topology | DynamicTree | PlannedTree


def k_ary(num_drafts: int, depth: int) -> Topology:
    """Topology of `num_drafts` after every node, on `depth` levels."""
    check_counts(num_drafts=num_drafts, depth=depth)
    if count_power(num_drafts, depth) > 100_000 or depth > MAX_DEPTH:
        raise InvalidInput(
            f"a tree of {num_drafts}x{depth} has over 100,000 leaves or {MAX_DEPTH:,} levels: "
            "give fewer"
        )
    num_nodes = sum(num_drafts**level for level in range(1, depth + 1))
    return Topology(balanced(num_drafts, num_nodes).num_drafts, f"{num_drafts}x{depth}")


def balanced(num_drafts: int, num_nodes: int) -> Topology:
    """Topology of `num_drafts` after every node, level by level, up to `num_nodes` drafts."""
    check_counts(num_drafts=num_drafts)
    _check_size(num_nodes, num_drafts)
    places: dict[Place, int] = {}
    waiting: deque[Place] = deque([()])
    rest = num_nodes
    while rest:
        place = waiting.popleft()
        places[place] = min(num_drafts, rest)
        rest -= places[place]
        waiting.extend((*place, rank) for rank in range(places[place]))
    return Topology(places, f"{num_drafts}-ary{num_nodes}")


def _check_size(num_nodes: int, num_drafts: int = 2) -> None:
    """Raise `InvalidInput` for a tree that would take too long to build."""
    most = MAX_DEPTH if num_drafts == 1 else _MOST_NODES
    if checked_integer(num_nodes, "num_nodes") > most:
        raise InvalidInput(f"num_nodes is {num_nodes}: give up to {most:,} drafts of a tree")


def sparse(num_nodes: int | None = None) -> Topology:
    """Topology with more drafts along the first draws, fewer beside them.

    Parameters
    ----------
    num_nodes : int, optional
        Drafts: those of the lowest sum of ranks, counted from one, on the way from the root. By
        default the fixed tree of 27 drafts, four at the root.
    """
    if num_nodes is None:
        return Topology(_SPARSE, "sparse")
    _check_size(num_nodes)
    places: dict[Place, int] = {}
    waiting: list[tuple[int, Place]] = [(1, (0,))]
    for _ in range(num_nodes):
        total, place = heappop(waiting)
        places[place[:-1]] = place[-1] + 1
        heappush(waiting, (total + 1, (*place, 0)))
        heappush(waiting, (total + 1, (*place[:-1], place[-1] + 1)))
    return Topology(places, f"sparse{num_nodes}")


def chain(depth: int) -> Topology:
    """Topology of one draft after another."""
    return Topology(k_ary(1, depth).num_drafts, f"chain{depth}")


def whole_paths(num_paths: int, depth: int) -> Topology:
    """Topology of several paths, each drawn from its beginning; equal beginnings are drawn once.

    After a node that n of the paths go through, n drafts are drawn.
    """
    check_counts(num_paths=num_paths, depth=depth)
    if num_paths * depth > 100_000 or depth > MAX_DEPTH:
        raise InvalidInput(
            f"{num_paths} paths of {depth} drafts are over 100,000 drafts or {MAX_DEPTH:,} levels: "
            "give fewer"
        )
    places: dict[Place, int] = {(): num_paths}
    for rank in range(num_paths):
        places |= {(rank, *[0] * n): 1 for n in range(depth - 1)}
    return Topology(places, f"paths{num_paths}x{depth}", merges=True)


def parse_topology(text: str) -> Tree:
    """Tree by its name, such as "4x3", "chain5", "paths3x4", "sparse16", or "planned16/4"."""
    if of_kind(text, str, "tree", f"it {_FORMS}") == "sparse":
        return sparse()
    if match := re.fullmatch(r"(chain|sparse|planned|dynamic)(\d{1,4})", text):
        return _SIZED[match[1]](int(match[2]))
    if match := re.fullmatch(r"planned(\d{1,4})/(\d{1,4})", text):
        return PlannedTree(int(match[1]), int(match[2]))
    if match := re.fullmatch(r"(paths)?(\d{1,4})x(\d{1,4})", text):
        make = whole_paths if match[1] else k_ary
        return make(int(match[2]), int(match[3]))
    raise InvalidInput(f"unknown tree {text!r}: give it {_FORMS}")


_SIZED: dict[str, Callable[[int], Tree]] = {
    "chain": chain,
    "sparse": sparse,
    "planned": PlannedTree,
    "dynamic": DynamicTree,
}


def initial_rates(max_drafts: int, first: float = 0.75) -> RateTable:
    r"""Table before anything is measured: :math:`\alpha_k = 1 - (1 - a_1)^k`.

    Parameters
    ----------
    max_drafts : int
    first : float
        :math:`a_1`, the chance that one draft is passed.

    Returns
    -------
    ndarray, shape (max_drafts + 1, max_drafts)
        :math:`\alpha_{j+1} - \alpha_j` at [k, j], j < k; zero elsewhere.
    """
    checked_integer(max_drafts, "max_drafts", 0, MAX_TABLE)
    check_confidence(first, "first")
    return rates_from_alphas(-np.expm1(np.arange(1.0, max_drafts + 1) * np.log1p(-first)))


def rates_from_alphas(alphas: Floats) -> RateTable:
    """Table whose places are passed in draw order, from the rates of 1, 2, ... drafts."""
    passed = np.maximum(np.diff(alphas, prepend=0.0), 0.0)  # rounding may leave less than nothing
    return np.tril(np.tile(passed, (alphas.size + 1, 1)), -1)


def checked_topology(topology: Any) -> Topology:
    """A topology; `InvalidInput` for anything else, such as its name."""
    return of_kind(topology, Topology, "topology", "parse_topology(name)")


def checked_rates(table: Any) -> RateTable:
    """A table of rates in float64; `InvalidInput` for anything else."""
    rates = floats(table, "the table of rates")
    if rates.ndim != 2 or rates.shape[1] < 1 or rates.shape[0] != rates.shape[1] + 1:
        raise InvalidInput(
            f"a table of rates has shape {rates.shape}: give (K + 1, K), as place_rates does"
        )
    if not (rates >= 0.0).all() or (rates.sum(axis=1) > 1.0 + 1e-9).any():
        raise InvalidInput(
            "a row of the table of rates is not of chances that sum to at most one: give what "
            "place_rates returns"
        )
    return rates


def place_values(topology: Topology, table: RateTable | None = None) -> dict[Place, RateTable]:
    """Values of the drafts after every node that has some.

    Parameters
    ----------
    topology : Topology
    table : ndarray, shape (K + 1, K), optional
        Table of `place_rates`; by default `initial_rates`.

    Returns
    -------
    dict of tuple to ndarray, shape (K,)
        Values by the place of the node, in draw order; 1 for a leaf.

    Raises
    ------
    InvalidInput
        The table is for fewer drafts than a node has.
    """
    widest = max(checked_topology(topology).num_drafts.values())
    table = initial_rates(widest) if table is None else checked_rates(table)
    rates_among(widest, table)
    values = {place: np.ones(count) for place, count in topology.num_drafts.items()}
    for place in sorted(values, key=len, reverse=True):
        if place:
            values[place[:-1]][place[-1]] += _expected(values[place], table)
    return values


class ValuedTopology(NamedTuple):
    """Topology whose most valuable drafts are drawn first, and its `place_values`."""

    topology: Topology
    values: dict[Place, RateTable]


def valued(topology: Topology, table: RateTable | None = None) -> ValuedTopology:
    """Same tree with the most valuable drafts of every node drawn first, and the values there.

    Draws may coincide, and the first then has the place: it is to be the best one. Arguments as
    `place_values`.
    """
    values = place_values(topology, table)
    falling: dict[Place, RateTable] = {}
    renamed: list[tuple[Place, Place]] = [((), ())]
    for old, new in renamed:
        if old in values:
            order = np.argsort(-values[old], kind="stable")
            falling[new] = values[old][order]
            renamed += [((*old, rank), (*new, n)) for n, rank in enumerate(order.tolist())]
    num_drafts = {place: at.size for place, at in falling.items()}
    return ValuedTopology(replace(topology, num_drafts=num_drafts), falling)


def expected_accepted(topology: Topology, table: RateTable | None = None) -> float:
    """Forecast of the drafts that a step accepts: W of the root. Arguments as `place_values`."""
    values = place_values(topology, table)[()]
    return _expected(values, initial_rates(values.size) if table is None else checked_rates(table))


def _expected(values: RateTable, table: RateTable) -> float:
    """Value W of a node: the most valuable place is the likeliest to be passed."""
    return float(np.sort(values) @ np.sort(table[values.size, : values.size]))


def rates_among(num_drafts: int, table: RateTable) -> Floats:
    """Rates of the places after a node with so many drafts; `InvalidInput` if there are none."""
    if len(table) <= num_drafts:
        raise InvalidInput(
            f"the rates are for up to {len(table) - 1} drafts, but a node has {num_drafts}: "
            f"measure them for {num_drafts}"
        )
    return table[num_drafts]
