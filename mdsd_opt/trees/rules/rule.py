"""Interface of the rules that verify a tree of drafts, and how they decide."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mdsd_opt.base.arrays import Law
from mdsd_opt.trees.device_laws import BinnedLaw
from mdsd_opt.trees.draft_tree import Node
from mdsd_opt.verifiers import draw, normalised, positive_part


@dataclass(frozen=True, slots=True, eq=False)
class Stop:
    """One way to end: the drafts up to a node are accepted, and one more token is drawn.

    Attributes
    ----------
    node : Node
    probability : float
        Probability given the tree.
    masses : ndarray, shape (V,), or None
        The extra token is drawn in proportion to their positive part; from p where they have none,
        or are None. Or a function that gives them: one way alone is taken.
    """

    node: Node
    probability: float
    masses: Law | Callable[[], Law] | None = None

    @property
    def law(self) -> Law:
        """Law of the extra token, shape (V,)."""
        masses: Any = self.masses() if callable(self.masses) else self.masses
        if isinstance(masses, BinnedLaw):
            residual = masses.normalised()
        else:
            residual = None if masses is None else normalised(positive_part(masses))
        return self.node.target if residual is None else residual

    def draw(self, uniform: float) -> int:
        """Draw the extra token."""
        masses: Any = self.masses() if callable(self.masses) else self.masses
        if isinstance(masses, np.ndarray) and masses.max() > 0:
            return draw(masses, uniform)  # which sees to negative ones and to their sum
        law: Any = self.law
        return law.draw(uniform) if isinstance(law, BinnedLaw) else draw(law, uniform)


class Accepted(NamedTuple):
    """Outcome of one verification.

    Attributes
    ----------
    tokens : tuple of int
        The accepted drafts, and the extra token at the end.
    num_accepted : int
        Number of them that are drafts.
    """

    tokens: tuple[int, ...]
    num_accepted: int


class TreeRule(ABC):
    """Verifies a tree of drafts whose nodes know their target laws.

    Attributes
    ----------
    name : str
    tried_on : str
        A small tree that it takes, on which it is checked.
    host_only : str
        Why it cannot decide from sums over bins while the laws stay on a device; or nothing.
    """

    name: ClassVar[str]
    tried_on: ClassVar[str] = "2x2"
    host_only: str = "it asks for the probability of every token"

    @abstractmethod
    def stops(self, root: Node) -> list[Stop]:
        """All ways to end, given the tree; the probabilities sum to one."""

    def verify(self, root: Node, rng: np.random.Generator) -> Accepted:
        """Draw one of the ways to end, and the extra token."""
        where, extra = rng.random(2)
        way = taken(self.stops(root), where)
        return Accepted((*way.node.tokens, way.draw(extra)), way.node.depth)

    def expected_accepted(self, root: Node) -> float:
        """Mean number of accepted drafts, given the tree."""
        return float(sum(way.probability * way.node.depth for way in self.stops(root)))


def taken(ways: list[Stop], uniform: float) -> Stop:
    """One of some ways, chosen in proportion to their probabilities."""
    reached = list(accumulate(way.probability for way in ways))
    chosen = bisect_right(reached, uniform * reached[-1])
    return ways[min(chosen, len(ways) - 1)]


def completed(stops: list[Stop], root: Node, rest: float) -> list[Stop]:
    """All ways to end, also if rounding has left a probability without any.

    Where p and q are equal up to rounding, a draft of far less probability than that may be refused
    while nothing of p is left for other tokens. Then nothing is accepted, and the token follows p.
    """
    if rest > 0.0:
        stops.append(Stop(root, rest))
    return stops
