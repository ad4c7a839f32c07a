"""The shape of a draft tree: how many drafts are drawn at which node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mdsd_opt.drafts.counting import count_power
from mdsd_opt.errors import InvalidInput

#: A node by the ranks of its ancestors and itself among their siblings, in the order of drawing.
Place = tuple[int, ...]

#: Levels of a tree; no model reads its drafts as far ahead.
MAX_DEPTH = 1000

#: Drafts of the sparse default: more where acceptance is likely, as in EAGLE's static tree.
_SPARSE: dict[Place, int] = {
    (): 4, (0,): 3, (1,): 2, (2,): 1, (3,): 1,
    (0, 0): 3, (0, 1): 2, (0, 2): 1, (1, 0): 2, (1, 1): 1, (2, 0): 1,
    (0, 0, 0): 2, (0, 0, 1): 1, (0, 1, 0): 1, (1, 0, 0): 1,
    (0, 0, 0, 0): 1,
}  # fmt: skip

_FORMS = (
    "as drafts x depth (4x3), chain5 for one draft at a time, sparse, or dynamic24 for a tree of "
    "at most 24 drafts grown where acceptance is likeliest"
)


@dataclass(frozen=True, slots=True)
class Topology:
    """How many drafts are drawn after each node.

    Attributes
    ----------
    num_drafts : mapping of tuple to int
        By the place of the node: the root is (), its first draft (0,). Nodes that are not named are
        leaves. Draws may coincide; the node then has the place of the first of them.
    name : str
    """

    num_drafts: Mapping[Place, int]
    name: str

    def __post_init__(self) -> None:
        for place, count in self.num_drafts.items():
            if count < 1:
                raise InvalidInput(f"{count} drafts at the node {place}: give at least 1")
            if place and self.num_drafts.get(place[:-1], 0) <= place[-1]:
                raise InvalidInput(f"the node {place} is named, but its parent has no such draft")
        if () not in self.num_drafts:
            raise InvalidInput("the root () has no drafts: a tree has at least one")

    @property
    def depth(self) -> int:
        """Most tokens of a path."""
        return 1 + max(map(len, self.num_drafts))

    @property
    def num_nodes(self) -> int:
        """Drafts in the tree, if none coincide."""
        return sum(self.num_drafts.values())

    def drafts_at(self, place: Place) -> int:
        """Number of drafts drawn after a node; 0 for a leaf."""
        return self.num_drafts.get(place, 0)


@dataclass(frozen=True, slots=True)
class DynamicTree:
    """A tree that grows where acceptance is likeliest, see `grow_by_acceptance`.

    Attributes
    ----------
    num_nodes : int
        Drafts of the whole tree, at most.
    num_drafts : int
        Drafts after each node that gets any.
    max_depth : int
    """

    num_nodes: int
    num_drafts: int = 4
    max_depth: int = 6

    def __post_init__(self) -> None:
        if min(self.num_nodes, self.num_drafts, self.max_depth) < 1:
            raise InvalidInput(f"{self}: give at least 1 of each")


def k_ary(num_drafts: int, depth: int) -> Topology:
    """`num_drafts` after every node, `depth` levels of them."""
    if num_drafts < 1 or depth < 1:
        raise InvalidInput(f"{num_drafts} drafts, depth {depth}: give at least 1 of both")
    if count_power(num_drafts, depth) > 100_000 or depth > MAX_DEPTH:
        raise InvalidInput(
            f"a tree of {num_drafts}x{depth} has over 100,000 leaves or {MAX_DEPTH:,} levels: "
            "give fewer"
        )
    places: dict[Place, int] = {}
    level: list[Place] = [()]
    for _ in range(depth):
        places |= dict.fromkeys(level, num_drafts)
        level = [(*place, rank) for place in level for rank in range(num_drafts)]
    return Topology(places, f"{num_drafts}x{depth}")


def sparse() -> Topology:
    """The default tree: four drafts deep along the first draws, fewer beside them."""
    return Topology(_SPARSE, "sparse")


def parse_topology(text: str) -> Topology | DynamicTree:
    """A tree by its name: "4x3", "chain5", "sparse" or "dynamic24"."""
    if text == "sparse":
        return sparse()
    if match := re.fullmatch(r"dynamic(\d{1,4})", text):
        return DynamicTree(int(match[1]))
    if match := re.fullmatch(r"chain(\d{1,4})", text):
        chain = k_ary(1, int(match[1]))
        return Topology(chain.num_drafts, text)
    if match := re.fullmatch(r"(\d{1,4})x(\d{1,4})", text):
        return k_ary(int(match[1]), int(match[2]))
    raise InvalidInput(f"unknown tree {text!r}: give it {_FORMS}")
