"""Token by token from the root: any verification algorithm at every node."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mdsd_opt.decoding.draft_tree import Node
from mdsd_opt.decoding.rules.base import Accepted, Stop, TreeRule
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers import Verifier, get


class TopDown(TreeRule):
    """Verify the drafts of the root; go on from the one that comes out, while it is a draft.

    Lossless wherever the verifier is for the draft scheme. Cost: one verification for each token.
    Source: [SpecInfer], [Hu25].

    Parameters
    ----------
    verifier : str or Verifier
    """

    name: ClassVar[str] = "top_down"

    def __init__(self, verifier: str | Verifier = "optimal") -> None:
        self._verifier = get(verifier) if isinstance(verifier, str) else verifier

    def stops(self, root: Node) -> list[Stop]:
        found: list[Stop] = []
        waiting = [(root, 1.0)]
        while waiting:
            node, probability = waiting.pop()
            if node.drafts is None:
                found.append(Stop(node, probability, node.target))
                continue
            problem = TransportProblem(node.target, node.drafts)
            law = self._verifier.conditional_law(problem, node.draws)
            for token, child in node.children.items():
                if law[token] > 0.0:
                    waiting.append((child, probability * float(law[token])))
            rest = law.copy()
            rest[list(node.children)] = 0.0
            if rest.any():
                found.append(Stop(node, probability * float(rest.sum()), rest))
        return found

    def verify(self, root: Node, rng: np.random.Generator) -> Accepted:
        """Walk down, deciding at the nodes on the way only."""
        node = root
        while True:
            if node.drafts is None:
                return super().verify(_alone(node), rng)
            problem = TransportProblem(node.target, node.drafts)
            token = self._verifier.verify(problem, node.draws, rng).token
            if token not in node.children:
                return Accepted((*node.tokens, token), node.depth)
            node = node.children[token]


def _alone(node: Node) -> Node:
    return Node(node.tokens, node.place, target=node.target)
