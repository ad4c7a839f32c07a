r"""Along one path of drafts, which is accepted as far as its whole weight allows.

Along the path, :math:`r_0 = 1` and :math:`r_i = \min(1, r_{i-1}\, p(x_i) / q(x_i))`. From the leaf
up, the path ends at node i with :math:`Z / (Z + 1 - r_i)`, where Z sums the masses
:math:`(r_i p - q)_+` of the extra token; at the leaf with :math:`r_i`, the extra token from p.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mdsd_opt.decoding.draft_tree import Node
from mdsd_opt.decoding.rules.base import Stop, TreeRule, completed
from mdsd_opt.errors import InvalidInput, UnsupportedScheme


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
