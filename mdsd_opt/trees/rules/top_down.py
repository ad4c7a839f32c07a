"""Top-down rule: any verification algorithm at every node, token by token from the root."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mdsd_opt.problem import TransportProblem
from mdsd_opt.trees.device_laws.laws import BinnedLaw
from mdsd_opt.trees.draft_tree import Node
from mdsd_opt.trees.rules.base import Accepted, Stop, TreeRule, taken
from mdsd_opt.trees.token_split import token_split
from mdsd_opt.verifiers import Verifier, get


class TopDown(TreeRule):
    """Verify the drafts of the root; go on from the token that comes out, while it is a draft.

    Lossless wherever the verifier is for the draft scheme. Cost: one verification for each token.
    Source: [SpecInfer], [Hu25].
    """

    name: ClassVar[str] = "top_down"

    def __init__(self, verifier: str | Verifier = "optimal") -> None:
        self._verifier = get(verifier) if isinstance(verifier, str) else verifier
        name = self._verifier.name
        self.host_only = "" if name == "optimal" else f"{name!r} asks for every token's probability"

    def stops(self, root: Node) -> list[Stop]:
        stops: list[Stop] = []
        waiting = [(root, 1.0)]
        while waiting:
            node, probability = waiting.pop()
            if node.drafts is None:
                stops.append(Stop(node, probability))
                continue
            masses, rest = self._decided(node)
            waiting += [
                (node.children[token], probability * mass)
                for token, mass in masses.items()
                if mass > 0.0
            ]
            if rest.probability > 0.0:
                stops.append(Stop(node, probability * rest.probability, rest.masses))
        return stops

    def _decided(self, node: Node) -> tuple[dict[int, float], Stop]:
        """Probability of each draft to come out, and the rest of the token's law."""
        assert node.drafts is not None
        if isinstance(node.target, BinnedLaw):
            # the extra token may be a draft again, by no more than the bins lose
            split = token_split(node.target, node.drafts, node.draws, node.values)
            left = max(1.0 - sum(split.masses.values()), 0.0)
            return split.masses, Stop(node, left, node.target - split.kept)
        problem = TransportProblem(node.target, node.drafts)
        law = self._verifier.conditional_law(problem, node.draws)
        rest = law.copy()
        rest[list(node.children)] = 0.0
        masses = {token: float(law[token]) for token in node.children}
        return masses, Stop(node, float(rest.sum()), rest)

    def verify(self, root: Node, rng: np.random.Generator) -> Accepted:
        """Decide at the nodes on the way down only."""
        node = root
        while node.drafts is not None:
            if isinstance(node.target, BinnedLaw):
                masses, rest = self._decided(node)
                ways = [Stop(node.children[t], mass, rest.masses) for t, mass in masses.items()]
                way = taken([*ways, rest], rng.random())
                if way is rest:
                    return Accepted((*node.tokens, rest.draw(rng.random())), node.depth)
                node = way.node
                continue
            problem = TransportProblem(node.target, node.drafts)
            token = self._verifier.verify(problem, node.draws, rng).token
            if token not in node.children:
                return Accepted((*node.tokens, token), node.depth)
            node = node.children[token]
        return super().verify(node, rng)
