"""From the leaves to the root with the optimal token rule at every node."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from mdsd_opt.decoding.draft_tree import Node
from mdsd_opt.decoding.first_tries import first_tries
from mdsd_opt.decoding.recursive_rejection import after_refusal, draft_law, without
from mdsd_opt.decoding.rules.base import Stop, TreeRule, completed
from mdsd_opt.decoding.token_split import token_split
from mdsd_opt.verifiers.rejection import accepted


class TraversalHull(TreeRule):
    """Traversal, with what goes on to the drafts of a node by the optimal rule for r p.

    The drafts are tried in descending order of that mass; draft t is to be passed with
    pi_t / (1 - those tried before). After the last, the node is the end with (r - alpha)/(1 -
    alpha), the extra token in proportion to r p - I. Drafts that are worth far more than the others
    by their places are tried before, one by one as `Traversal` does. Lossless for all drafts with a
    prefix order. Cost: one token rule for every node with drafts. Source: this package.
    """

    name: ClassVar[str] = "traversal_hull"

    @property
    def host_only(self) -> str:
        return ""

    def stops(self, root: Node) -> list[Stop]:
        found: list[Stop] = []
        return completed(found, root, _visit(root, 1, 1, found))


def _visit(node: Node, reach: float, demand: float, found: list[Stop]) -> float:
    """Add the ways to end at or below a node; return the probability that there is none."""
    if reach <= 0.0 or demand <= 0.0:
        return reach
    if node.drafts is None:
        found.append(Stop(node, reach * demand, node.target))
        return reach * (1 - demand)
    drafts: Any = node.drafts  # with tries, one that has a q
    target, draws, values = demand * node.target, node.draws, node.values
    tries = first_tries(target, demand, drafts, values)
    q = draft_law(drafts, target) if tries else target
    for k in tries:
        token = int(draws[k])
        share = accepted(target[token], q[token])
        reach = _visit(node.children[token], reach, share, found)
        target, demand, _ = after_refusal(target, demand, q)
        if reach <= 0.0 or demand <= 0.0:
            return reach
        if not drafts.random_draws.is_replaced:
            q = without(q, token)
    if tries:
        draws, values = np.delete(draws, tries), np.delete(values, tries)
        drafts = type(drafts)(q, draws.size)
    split = token_split(target, drafts, draws, values)
    tried: float = 0
    for token, mass in sorted(split.masses.items(), key=lambda item: (-item[1], item[0])):
        if mass <= 0 or tried >= 1:
            break
        share = min(mass / (1 - tried), 1)
        reach = _visit(node.children[token], reach, share, found)
        tried += mass
    goes_on = split.alpha
    if goes_on >= 1:
        return reach
    ends = min(max((demand - goes_on) / (1 - goes_on), 0), 1)
    if reach * ends > 0:
        found.append(Stop(node, reach * ends, target - split.kept))
    return reach * (1 - ends)
