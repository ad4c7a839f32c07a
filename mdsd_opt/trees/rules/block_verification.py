r"""Block verification along one path of drafts, accepted as far as its whole weight allows.

Along the path, :math:`r_0 = 1` and :math:`r_i = \min(1, r_{i-1}\, p(x_i) / q(x_i))`. From the leaf
up, the path ends at node i with :math:`Z / (Z + 1 - r_i)`, where Z sums the masses
:math:`(r_i p - q)_+` of the extra token; at the leaf with :math:`r_i`, the extra token from p.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import numpy as np

from mdsd_opt.base.array_types import Law
from mdsd_opt.errors import InvalidInput, UnsupportedScheme
from mdsd_opt.trees.draft_tree import Node
from mdsd_opt.trees.recursive_rejection import draft_law
from mdsd_opt.trees.rules.base import Stop, TreeRule, completed
from mdsd_opt.verifiers import accepted


class BlockVerification(TreeRule):
    """The best rule for one path; trees that branch are refused.

    Cost: O(V) for each draft. Source: [BV].
    """

    name: ClassVar[str] = "block_verification"
    tried_on: ClassVar[str] = "chain2"
    host_only = "it asks for (r p - q)+ of every token; of one path, level_sequential does the same"

    def stops(self, root: Node) -> list[Stop]:
        nodes, laws = [root], []
        while nodes[-1].drafts is not None:
            node = nodes[-1]
            laws.append(_law_of_one(node))
            nodes.append(node.children[int(node.draws[0])])
        return ends_along(nodes, laws)


def ends_along(nodes: Sequence[Node], laws: Sequence[Law]) -> list[Stop]:
    """All ways to end on a path whose drafts were drawn by these laws; at or above its last node.

    `laws` are those of the drafts after all nodes but the last, each of shape (V,).
    """
    passed: list[float] = [1]
    for (node, child), q in zip(pairwise(nodes), laws, strict=True):
        token = child.tokens[-1]
        passed.append(accepted(passed[-1] * node.target[token], q[token]))
    stops = [Stop(nodes[-1], passed[-1])]
    reach = 1 - passed[-1]
    for node, r, q in zip(nodes[-2::-1], passed[-2::-1], laws[::-1], strict=True):
        masses = np.maximum(r * node.target - q, 0)
        total = masses.sum()
        ends = total / (total + 1 - r) if total + 1 - r > 0 else 1
        stops.append(Stop(node, reach * ends, masses))
        reach *= 1 - ends
    return completed([stop for stop in stops if stop.probability > 0], nodes[0], reach)


def _law_of_one(node: Node) -> Law:
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
    return draft_law(node.drafts, node.target)
