r"""Rules that accept a path as a whole, from the leaves to the root.

*Traversal.* With r the probability that a node is to be passed, its drafts are tried one after
another: draft t is to be passed with min(1, r p_t / q_t), and if it is not, whether it was refused
itself or all below it, the masses become :math:`z = (r p - q)_+`, p in proportion to z, and
:math:`r \leftarrow Z / (Z + 1 - r)` with Z the sum of z. After the last, the node itself is the end
of the path with probability r. `TraversalHull` has the optimal token rule at every node instead.

*Block verification*, along one path of drafts, accepts as far as its whole weight allows. Along the
path, :math:`r_0 = 1` and :math:`r_i = \min(1, r_{i-1}\, p(x_i) / q(x_i))`. From the leaf up, the
path ends at node i with :math:`Z / (Z + 1 - r_i)`, where Z sums the masses :math:`(r_i p - q)_+` of
the extra token; at the leaf with :math:`r_i`, the extra token from p.

*Greedy multi-path*: of several whole paths the foremost one is verified as a block. After every
node the tokens are put in ascending order of p/q. That orders the paths like words in a dictionary,
and the last of the K paths in this order is chosen. With C(w) the draft mass of the paths up to
those that begin with w, these included, the chosen one begins with w with probability
:math:`C(w)^K - (C(w) - q(w))^K`. So its tokens follow

.. math:: q^*(y|w) = \frac{C(wy)^K - (C(wy) - q(wy))^K}{C(w)^K - (C(w) - q(w))^K},

which the laws along the path are enough for, and block verification is lossless with these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Law
from mdsd_opt.errors import InvalidInput, UnsupportedScheme
from mdsd_opt.trees.draft_tree import Node
from mdsd_opt.trees.recursive_rejection import (
    after_refusal,
    draft_law,
    ratio_order,
    tried_one_by_one,
)
from mdsd_opt.trees.rules.rule import Stop, TreeRule, completed
from mdsd_opt.trees.token_split import token_split
from mdsd_opt.verifiers import accepted, without


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
