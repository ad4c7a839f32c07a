"""Trees whose nodes have relaxed targets, and what that costs along the text that comes out.

The law after a node is relaxed for the drafts drawn there; at a leaf it stays. Whether a step goes
on after a token is decided before the next one is known, so that the mean divergence of the whole
text is the sum over its tokens (chain rule), and total variation at most the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mdsd_opt.decoding.draft_tree import Node, Tokens
from mdsd_opt.decoding.rules import TopDown, TreeRule
from mdsd_opt.decoding.topology import Place, Topology, Tree
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers.frontier.relaxation import relaxed_by


class Distance(NamedTuple):
    """Of one token's law from the target, or of several together."""

    kl: float = 0.0
    tv: float = 0.0


def check_tree(tree: Tree, rule: TreeRule) -> None:
    """Raise unless the relaxed law after a text is one law, as the rule needs it.

    A rule that decides at one node after another takes any tree. Others weigh whole paths: the law
    after a text must not depend on which places its tokens came to, so each level has one K.

    Raises
    ------
    InvalidInput
    """
    if isinstance(rule, TopDown) or (isinstance(tree, Topology) and _is_even(tree)):
        return
    raise InvalidInput(
        f"with relaxed targets, rule {rule.name!r} takes trees with the same number of drafts at "
        "all nodes of a level, such as 4x3 or chain5; token-level verifiers, such as optimal, take "
        "all trees"
    )


def _is_even(topology: Topology) -> bool:
    level: list[Place] = [()]
    while level:
        counts = {topology.drafts_at(place) for place in level}
        if len(counts) > 1:
            return False
        (count,) = counts
        level = [(*place, rank) for place in level for rank in range(count)]
    return True


def relax_targets(root: Node, budget: Mapping[str, float]) -> dict[Tokens, Distance]:
    """Relax the law after every node that has drafts; the distances, by the node's tokens.

    Parameters
    ----------
    root : Node
        Of a tree whose nodes have targets.
    budget : mapping
        Of `mdsd_opt.relax`, for each token.
    """
    found: dict[Tokens, Distance] = {}
    for node in root.walk():
        if node.drafts is not None:
            relaxed = relaxed_by(TransportProblem(node.target, node.drafts), budget)
            node.target = relaxed.target
            found[node.tokens] = Distance(relaxed.kl, float(relaxed.tv))
    return found


def distance_of(tokens: Tokens, distances: Mapping[Tokens, Distance]) -> Distance:
    """Of the tokens that a step puts out, together."""
    met = [distances.get(tokens[:n], Distance()) for n in range(len(tokens))]
    return Distance(sum(x.kl for x in met), sum(x.tv for x in met))
