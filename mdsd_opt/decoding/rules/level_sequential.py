r"""Level by level: masses from the root down, decisions from the leaves up; and along one path.

Block verification is for a single path of drafts, accepted as far as its whole weight allows. Along
the path, :math:`r_0 = 1` and :math:`r_i = \min(1, r_{i-1}\, p(x_i) / q(x_i))`. From the leaf up,
the path ends at node i with :math:`Z / (Z + 1 - r_i)`, where Z sums the masses
:math:`(r_i p - q)_+` of the extra token; at the leaf with :math:`r_i`, the extra token from p.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mdsd_opt.base.array_types import Floats
from mdsd_opt.decoding.draft_tree import Node
from mdsd_opt.decoding.rules.base import Stop, TreeRule, completed
from mdsd_opt.decoding.token_split import split_with_tries
from mdsd_opt.errors import InvalidInput, UnsupportedScheme

Law = Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Passed:
    """A node with the probability that it is passed, and what of that goes on on average."""

    node: Node
    mass: float
    goes_on: float
    rest: Law


class LevelSequential(TreeRule):
    """Transport a whole level to the next, node after node, each with what the others left.

    Lossless for all drafts with a prefix order. With one draft a node it is block verification,
    with one level the optimal token rule. Without replacement it may accept less than `Traversal`
    where only one draft of a node has drafts after it. Cost: one token rule for every node with
    drafts. Source: this package.
    """

    name: ClassVar[str] = "level_sequential"
    host_only = ""

    def stops(self, root: Node) -> list[Stop]:
        levels: list[tuple[list[_Passed], float]] = []
        masses = [(root, _one(root))]
        while masses:
            passed, left, masses = _next_level(masses)
            levels.append((passed, left))
        found: list[Stop] = []
        reach: float = 1
        for passed, left in reversed(levels):  # each step given that no deeper one has ended
            ended: float = 0
            for at in passed:
                share = min(max((at.mass - at.goes_on) / left, 0), 1) if left > 0 else 0
                if reach * share > 0:
                    found.append(Stop(at.node, reach * share, at.rest))
                ended += share
            reach *= max(1 - ended, 0)
        return completed(found, root, reach)


def _one(node: Node) -> float:
    """A one in the numbers of the target, of which some may be Fractions."""
    return node.target.sum() * 0 + 1


def _next_level(
    masses: list[tuple[Node, float]],
) -> tuple[list[_Passed], float, list[tuple[Node, float]]]:
    """The nodes of a level, the mean probability that nothing goes on, and the next level."""
    passed: list[_Passed] = []
    following: list[tuple[Node, float]] = []
    remains = mean = _one(masses[0][0])  # of what may go on: given these draws, and on average
    for node, mass in sorted(masses, key=lambda item: (-item[1], item[0].tokens)):
        if node.drafts is None:
            passed.append(_Passed(node, mass, 0, node.target))
            continue
        demand = min(mass / mean, 1) if mean > 0 else 0
        target = demand * node.target
        split = split_with_tries(target, demand, node.drafts, node.draws, node.values)
        for token, share in split.masses.items():
            if share > 0:
                following.append((node.children[token], remains * share))
        alpha, rest = split.alpha, mass * node.target - mean * split.kept
        passed.append(_Passed(node, mass, mean * alpha, rest))
        remains *= max(1 - sum(split.masses.values()), 0)
        mean *= 1 - alpha
    return passed, mean, following


class BlockVerification(TreeRule):
    """The best rule there is for one path; trees that branch are refused.

    Cost: O(V) for each draft. Source: [BV].
    """

    name: ClassVar[str] = "block_verification"
    host_only = "it asks for (r p - q)+ of every token; of one path, level_sequential does the same"

    def stops(self, root: Node) -> list[Stop]:
        found: list[Stop] = []
        reach = 1.0
        for node, passed in reversed(_path(root)):
            if node.drafts is None:
                ends, masses = passed, node.target
            else:
                masses = np.maximum(passed * node.target - _draft_law(node), 0.0)
                total = float(masses.sum())
                refused = 1.0 - passed
                ends = total / (total + refused) if total + refused > 0.0 else 1.0
            if reach * ends > 0.0:
                found.append(Stop(node, reach * ends, masses))
            reach *= 1.0 - ends
        return completed(found, root, reach)


def _path(root: Node) -> list[tuple[Node, float]]:
    """The nodes from the root to the leaf, each with its r."""
    node, passed = root, 1.0
    path = [(node, passed)]
    while node.drafts is not None:
        q = _draft_law(node)
        token = int(node.draws[0])
        passed = min(1.0, passed * float(node.target[token] / q[token]))
        node = node.children[token]
        path.append((node, passed))
    return path


def _draft_law(node: Node) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Law of the only draft after a node."""
    assert node.drafts is not None
    draws = node.drafts.random_draws
    if draws is None:
        raise UnsupportedScheme(
            f"rule 'block_verification' is not lossless for {node.drafts.scheme!r} drafts: "
            "it takes with_replacement and without_replacement"
        )
    if draws.num_drafts != 1:
        raise InvalidInput(
            f"rule 'block_verification' takes a single path, but {draws.num_drafts} drafts follow "
            f"{node.tokens}: give a tree such as chain5, or another rule such as traversal"
        )
    return draws.q
