"""From the leaves to the root with the optimal token rule at every node."""

from __future__ import annotations

from typing import ClassVar

from mdsd_opt.decoding.draft_tree import Node
from mdsd_opt.decoding.rules.base import Stop, TreeRule, completed, stop_at
from mdsd_opt.decoding.token_plan import token_plan


class TraversalHull(TreeRule):
    """Traversal, with what goes on to the drafts of a node by the optimal rule for r p.

    The drafts are tried in descending order of that mass; draft t is to be passed with
    pi_t / (1 - those tried before). After the last, the node is the end with (r - alpha)/(1 -
    alpha), the extra token in proportion to r p - I. Lossless for all drafts with a prefix order.
    In uneven trees it may accept less than `Traversal`: drafts with replacement share what goes on
    evenly, leaves too. Cost: one token rule for every node with drafts. Source: this package.
    """

    name: ClassVar[str] = "traversal_hull"

    def stops(self, root: Node) -> list[Stop]:
        found: list[Stop] = []
        return completed(found, root, _visit(root, 1.0, 1.0, found))


def _visit(node: Node, reach: float, demand: float, found: list[Stop]) -> float:
    """Add the ways to end at or below a node; return the probability that there is none."""
    if reach <= 0.0 or demand <= 0.0:
        return reach
    target = demand * node.target
    plan = token_plan(target, node.drafts, node.draws)
    tried = 0.0
    for token, mass in sorted(plan.masses.items(), key=lambda item: (-item[1], item[0])):
        if mass <= 0.0 or tried >= 1.0:
            break
        share = min(mass / (1.0 - tried), 1.0)
        reach = _visit(node.children[token], reach, share, found)
        tried += mass
    if plan.alpha >= 1.0:
        return reach
    ends = min(max((demand - plan.alpha) / (1.0 - plan.alpha), 0.0), 1.0)
    if reach * ends > 0.0:
        found.append(stop_at(node, reach * ends, target - plan.kept))
    return reach * (1.0 - ends)
