"""Rules that verify a tree of drafts, one file each, behind one interface."""

from __future__ import annotations

from mdsd_opt.errors import UnknownName
from mdsd_opt.trees.rules.base import Accepted, Stop, TreeRule
from mdsd_opt.trees.rules.block_verification import BlockVerification
from mdsd_opt.trees.rules.greedy_multi_path import GreedyMultiPath
from mdsd_opt.trees.rules.level_sequential import LevelSequential
from mdsd_opt.trees.rules.top_down import TopDown
from mdsd_opt.trees.rules.traversal import Traversal, TraversalHull
from mdsd_opt.verifiers import names as verifier_names

__all__ = [
    "Accepted", "BlockVerification", "GreedyMultiPath", "LevelSequential", "Stop", "TopDown",
    "Traversal", "TraversalHull", "TreeRule", "get_rule", "rule_names",
]  # fmt: skip

MULTI_STEP: dict[str, type[TreeRule]] = {
    rule.name: rule
    for rule in (Traversal, TraversalHull, LevelSequential, BlockVerification, GreedyMultiPath)
}

#: Short names; `rule_names` lists the long ones.
_SHORT = {"trav_hull": "traversal_hull", "gbv": "greedy_multi_path"}


def rule_names() -> tuple[str, ...]:
    """Names of the multi-step rules, and of all token-level verifiers, which run from the root."""
    return (*MULTI_STEP, *verifier_names())


def get_rule(name: str) -> TreeRule:
    """Rule of this name; a token-level verifier's name means it, token by token from the root.

    So does ``"module:attribute"``, where a verifier stands.

    Raises
    ------
    UnknownName
        No such rule; the message lists those that exist.
    """
    name = _SHORT.get(name, name)
    if name in MULTI_STEP:
        return MULTI_STEP[name]()
    if ":" in name or name in verifier_names():
        return TopDown(name)
    raise UnknownName.among("rule", name, rule_names())
