"""Drafts along a chain, with the laws at their places as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Matrix, Text
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import Node


@dataclass(slots=True, eq=False)
class DraftChain:
    """Drafts that were drawn one after another; its other names are those of a `Node`."""

    p: Matrix  # laws at their places as the function is shown them, shape (n + 1, V)
    q: Matrix  # shape (n, V)
    drawn: Text  # the n drafts
    tokens: Text = ()  # those before them

    @classmethod
    def of(cls, name: str, root: Node) -> DraftChain:
        """Chain that a tree of one branch is; `name` is that of the function it is for."""
        nodes, q = [root], []
        while nodes[-1].drafts is not None:
            node, law = nodes[-1], nodes[-1].drafts.random_draws
            if law is None or not law.is_replaced or law.num_drafts != 1:
                raise InvalidInput(
                    f"{name} verifies one draft after another: audit it on trees such as chain2 "
                    "and on problems of one draft"
                )
            q.append(law.q)
            nodes.append(node.children[int(node.draws[0])])
        return cls(np.array([node.target for node in nodes]), np.array(q), nodes[-1].tokens)

    @property
    def target(self) -> NDArray[np.float64]:
        row: NDArray[np.float64] = self.p[0]
        return row

    @property
    def children(self) -> dict[int, DraftChain]:
        """The first draft, with the chain after it."""
        if not self.drawn:
            return {}
        first, *rest = self.drawn
        return {first: DraftChain(self.p[1:], self.q[1:], tuple(rest), (*self.tokens, first))}

    def walk(self) -> list[DraftChain]:
        """The chain, and what it is after each draft."""
        chains = [self]
        for chain in chains:
            chains.extend(chain.children.values())
        return chains

    def cut(self, length: int) -> DraftChain:
        return DraftChain(self.p[: length + 1], self.q[:length], self.drawn[:length])
