r"""Traversal rules, from the leaves to the root: a path is accepted or refused as a whole.

With r the probability that a node is to be passed, its drafts are tried one after another: draft t
is to be passed with min(1, r p_t / q_t), and if it is not, whether it was refused itself or all
below it, the masses become :math:`z = (r p - q)_+`, p in proportion to z, and
:math:`r \leftarrow Z / (Z + 1 - r)` with Z the sum of z. After the last, the node itself is the end
of the path with probability r. `TraversalHull` has the optimal token rule at every node instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.array_types import Law
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.trees.draft_tree import Node
from mdsd_opt.trees.recursive_rejection import after_refusal, draft_law, tried_one_by_one
from mdsd_opt.trees.rules.base import Stop, TreeRule, completed
from mdsd_opt.trees.token_split import token_split
from mdsd_opt.verifiers import accepted, without


class Traversal(TreeRule):
    """Traversal verification, recursive rejection at every node; block verification for one path.

    Lossless for drafts with and without replacement. Cost: O(V) for each draw. Source: [BV], for
    trees [TV], written from their descriptions.
    """

    name: ClassVar[str] = "traversal"
    host_only = "what a refused draft leaves differs from token to token; traversal_hull is like it"

    def stops(self, root: Node) -> list[Stop]:
        stops: list[Stop] = []
        return completed(stops, root, _visit(root, 1, 1, stops, _all_drafts))


class TraversalHull(TreeRule):
    """Traversal in which masses go on to a node's drafts by the optimal rule for r p.

    The drafts are tried in descending order of that mass; draft t is to be passed with
    pi_t / (1 - those tried before). After the last, the node is the end with (r - alpha)/(1 -
    alpha), the extra token in proportion to r p - I. Drafts that are worth far more than the others
    by their places are tried before, one by one as `Traversal` does. Lossless for all drafts with a
    prefix order. Cost: one token rule for every node with drafts. Source: [UniVer] on greedy
    drafts, in another order of tests; for other drafts, this package.
    """

    name: ClassVar[str] = "traversal_hull"
    host_only = ""

    def stops(self, root: Node) -> list[Stop]:
        stops: list[Stop] = []
        return completed(stops, root, _visit(root, 1, 1, stops, tried_one_by_one))


def _all_drafts(target: Law, demand: float, drafts: Any, values: Law) -> list[int]:
    """Indices of all draws, each to be tried."""
    if drafts.random_draws is None:
        raise UnsupportedScheme(
            f"rule 'traversal' is not lossless for {drafts.scheme!r} drafts: it takes "
            "with_replacement and without_replacement"
        )
    return list(range(values.size))


def _visit(
    node: Node,
    reach: float,
    demand: float,
    stops: list[Stop],
    tries_of: Callable[[Law, float, Any, Law], list[int]],
) -> float:
    """Add the ways to end at or below a node; return the probability that there is none."""
    if reach <= 0.0 or demand <= 0.0:
        return reach
    if node.drafts is None:
        stops.append(Stop(node, reach * demand))
        return reach * (1 - demand)
    drafts: Any = node.drafts  # with tries, one that has a q
    target, draws, values = demand * node.target, node.draws, node.values
    tries = tries_of(target, demand, drafts, values)
    q = draft_law(drafts, target) if tries else target
    for k in tries:
        token = int(draws[k])
        if token < 0:  # nothing was left to draw
            break
        share = accepted(target[token], q[token])
        reach = _visit(node.children[token], reach, share, stops, tries_of)
        target, demand, _ = after_refusal(target, demand, q)
        if reach <= 0.0 or demand <= 0.0:
            return reach
        if not drafts.random_draws.is_replaced:
            q = without(q, token)
    if len(tries) == draws.size:
        stops.append(Stop(node, reach * demand, target))
        return reach * (1 - demand)
    if tries:
        draws, values = np.delete(draws, tries), np.delete(values, tries)
        drafts = type(drafts)(q, draws.size)
    split = token_split(target, drafts, draws, values)
    tried: float = 0
    for token, mass in sorted(split.masses.items(), key=lambda item: (-item[1], item[0])):
        if mass <= 0 or tried >= 1:
            break
        share = min(mass / (1 - tried), 1)
        reach = _visit(node.children[token], reach, share, stops, tries_of)
        tried += mass
    goes_on = split.alpha
    if goes_on >= 1:
        return reach
    ends = min(max((demand - goes_on) / (1 - goes_on), 0), 1)
    if reach * ends > 0:
        stops.append(Stop(node, reach * ends, target - split.kept))
    return reach * (1 - ends)
