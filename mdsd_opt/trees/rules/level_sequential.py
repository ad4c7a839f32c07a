"""Level-sequential rule: masses from the root down, decisions from the leaves up."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import ClassVar

from mdsd_opt.base.array_types import Law
from mdsd_opt.trees.draft_tree import Node
from mdsd_opt.trees.rules.base import Stop, TreeRule, completed
from mdsd_opt.trees.token_split import split_with_tries


class LevelSequential(TreeRule):
    """Transport a whole level to the next, node after node, each with what the others left.

    Lossless for all drafts with a prefix order. With one draft a node it is block verification,
    with one level the optimal token rule. Without replacement it may accept less than `Traversal`
    where only one draft of a node has drafts after it. Cost: one token rule for every node with
    drafts. Source: the idea is that of layer verification (AdaptFM, ICML 2026), the plan of a node
    in closed form is of this package.
    """

    name: ClassVar[str] = "level_sequential"
    host_only = ""

    def stops(self, root: Node) -> list[Stop]:
        levels: list[tuple[list[Stop], float]] = []
        one = root.target.sum() * 0 + 1  # in the numbers of the target, which may be Fractions
        masses = [(root, one)]
        while masses:
            ends, rest, masses = _next_level(masses, one)
            levels.append((ends, rest))
        stops: list[Stop] = []
        reach: float = 1
        for ends, rest in reversed(levels):  # each step given that no deeper one has ended
            ended: float = 0
            for end in ends:
                share = min(max(end.probability / rest, 0), 1) if rest > 0 else 0
                if reach * share > 0:
                    stops.append(replace(end, probability=reach * share))
                ended += share
            reach *= max(1 - ended, 0)
        return completed(stops, root, reach)


def _next_level(
    masses: list[tuple[Node, float]], one: float
) -> tuple[list[Stop], float, list[tuple[Node, float]]]:
    """Mean ends at the nodes of a level, the probability that nothing goes on, the next level."""
    ends: list[Stop] = []
    following: list[tuple[Node, float]] = []
    remains = mean = one  # of what may go on: given these draws, and on average
    for node, mass in sorted(masses, key=lambda item: (-item[1], item[0].tokens)):
        if node.drafts is None:
            ends.append(Stop(node, mass))
            continue
        demand = min(mass / mean, 1) if mean > 0 else 0
        target = demand * node.target
        split = split_with_tries(target, demand, node.drafts, node.draws, node.values)
        for token, share in split.masses.items():
            if share > 0:
                following.append((node.children[token], remains * share))
        alpha, rest = split.alpha, partial(_rest, node, mass, mean, split.kept)
        ends.append(Stop(node, mass - mean * alpha, rest))
        remains *= max(1 - sum(split.masses.values()), 0)
        mean *= 1 - alpha
    return ends, mean, following


def _rest(node: Node, mass: float, mean: float, kept: Law) -> Law:
    return mass * node.target - mean * kept
