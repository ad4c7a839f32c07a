r"""From the leaves to the root: a path is accepted or refused as a whole.

With r the probability that a node is to be passed, its drafts are tried one after another: draft t
is to be passed with min(1, r p_t / q_t), and if it is not, whether it was refused itself or all
below it, the masses become :math:`z = (r p - q)_+`, p in proportion to z, and
:math:`r \leftarrow Z / (Z + 1 - r)` with Z the sum of z. After the last, the node itself is the end
of the path with probability r.
"""

from __future__ import annotations

from typing import ClassVar

from mdsd_opt.decoding.draft_tree import Node
from mdsd_opt.decoding.recursive_rejection import after_refusal, draft_law, without
from mdsd_opt.decoding.rules.base import Stop, TreeRule, completed
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.verifiers.rejection import accepted


class Traversal(TreeRule):
    """Traversal verification, recursive rejection at every node; of one path block verification.

    Lossless for drafts with and without replacement. Cost: O(V) for each draw. Source: [BV], for
    trees [TV], written from their descriptions.
    """

    name: ClassVar[str] = "traversal"

    @property
    def host_only(self) -> str:
        return "what a refused draft leaves differs from token to token; traversal_hull is like it"

    def stops(self, root: Node) -> list[Stop]:
        found: list[Stop] = []
        return completed(found, root, _visit(root, 1, 1, found))


def _visit(node: Node, reach: float, demand: float, found: list[Stop]) -> float:
    """Add the ways to end at or below a node; return the probability that there is none."""
    target = demand * node.target
    if node.drafts is not None:
        draws = node.drafts.random_draws
        if draws is None:
            raise UnsupportedScheme(
                f"rule 'traversal' is not lossless for {node.drafts.scheme!r} drafts: it takes "
                "with_replacement and without_replacement"
            )
        q = draft_law(node.drafts, target)
        for token in node.draws.tolist():
            if token < 0 or reach <= 0.0 or demand <= 0.0:
                break
            share = accepted(target[token], q[token])
            if share > 0.0:
                reach = _visit(node.children[token], reach, share, found)
            target, demand, _ = after_refusal(target, demand, q)
            if not draws.is_replaced:
                q = without(q, token)
    if reach > 0.0 and demand > 0.0:
        found.append(Stop(node, reach * demand, target))
    return reach * (1 - demand)
