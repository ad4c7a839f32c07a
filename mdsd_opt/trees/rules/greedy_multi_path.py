r"""Greedy multi-path rule: of several whole paths the foremost one is verified as a block.

After every node the tokens are put in ascending order of p/q. That orders the paths like words in a
dictionary, and the last of the K paths in this order is chosen. With C(w) the draft mass of the
paths up to those that begin with w, these included, the chosen one begins with w with probability
:math:`C(w)^K - (C(w) - q(w))^K`. So its tokens follow

.. math:: q^*(y|w) = \frac{C(wy)^K - (C(wy) - q(wy))^K}{C(w)^K - (C(w) - q(w))^K},

which the laws along the path are enough for, and block verification is lossless with these.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.array_types import Law
from mdsd_opt.errors import InvalidInput, UnsupportedScheme
from mdsd_opt.trees.draft_tree import Node
from mdsd_opt.trees.recursive_rejection import draft_law, ratio_order
from mdsd_opt.trees.rules.base import Stop, TreeRule
from mdsd_opt.trees.rules.block_verification import ends_along


class GreedyMultiPath(TreeRule):
    """Greedy multi-path block verification, for whole paths drawn independently; of one path [BV].

    Cost: a sort of V tokens for each draft on the chosen path. Source: [GBV], written from its
    description.
    """

    name: ClassVar[str] = "greedy_multi_path"
    tried_on: ClassVar[str] = "paths2x2"
    host_only = "it asks for the order of all tokens by p/q"

    def stops(self, root: Node) -> list[Stop]:
        _require_whole_paths(root)
        return ends_along(*_foremost(root))


def _foremost(root: Node) -> tuple[list[Node], list[Law]]:
    """Nodes of the chosen path, and the laws of its tokens."""
    count = root.draws.size
    lower: Any = 0  # (C(w) - q(w)) / C(w): the ratio is all that matters
    nodes, laws = [root], []
    while nodes[-1].drafts is not None:
        node = nodes[-1]
        q = draft_law(node.drafts, node.target)
        order = ratio_order(node.target, q)
        ends = np.cumsum(q[order])
        uppers, lowers = lower + (1 - lower) * ends, lower + (1 - lower) * (ends - q[order])
        law = np.zeros_like(q)
        law[order] = q[order] * _mean_slope(uppers, lowers, count)
        laws.append(law / _mean_slope(1, lower, count))
        last = int(np.flatnonzero(np.isin(order, list(node.children)))[-1])
        lower = lowers[last] / uppers[last]
        nodes.append(node.children[int(order[last])])
    return nodes, laws


def _mean_slope(upper: Any, lower: Any, count: int) -> Any:
    """Quotient (upper^K - lower^K) / (upper - lower), without a difference."""
    total, power = upper * 0, 1
    for _ in range(count):
        total, power = total * upper + power, power * lower
    return total


def _require_whole_paths(root: Node) -> None:
    """Raise unless as many drafts follow each node as paths reach it, to the same depth."""
    level = [(root, root.draws.size)]
    while any(node.drafts is not None for node, _ in level):
        for node, count in level:
            if node.draws.size != count:
                raise InvalidInput(
                    f"rule 'greedy_multi_path' takes whole paths, but {node.draws.size} drafts "
                    f"follow {node.tokens}, which {count} paths have come to: give a tree such as "
                    "paths3x4, or another rule such as traversal"
                )
            draws = None if node.drafts is None else node.drafts.random_draws
            if draws is None or not (draws.is_replaced or count == 1):
                raise UnsupportedScheme(
                    "rule 'greedy_multi_path' is lossless for independent paths alone: give "
                    "with_replacement"
                )
        level = [
            (node.children[token], n)
            for node, _ in level
            for token, n in Counter(node.draws.tolist()).items()
        ]
