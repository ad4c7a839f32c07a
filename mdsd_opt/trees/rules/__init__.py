"""Rules that verify a tree of drafts, one file each, behind one interface."""

from __future__ import annotations

from typing import Any

from mdsd_opt.base.registry import Registry
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees.rules.base import Accepted, Stop, TreeRule
from mdsd_opt.trees.rules.block_verification import BlockVerification
from mdsd_opt.trees.rules.greedy_multi_path import GreedyMultiPath
from mdsd_opt.trees.rules.level_sequential import LevelSequential
from mdsd_opt.trees.rules.race import Race
from mdsd_opt.trees.rules.top_down import TopDown
from mdsd_opt.trees.rules.traversal import Traversal, TraversalHull
from mdsd_opt.verifiers import Verifier
from mdsd_opt.verifiers import names as verifier_names

__all__ = [
    "Accepted", "BlockVerification", "GreedyMultiPath", "LevelSequential", "Race", "Stop",
    "TopDown", "Traversal", "TraversalHull", "TreeRule", "get_rule", "register", "rule_names",
]  # fmt: skip

#: Rules of the package that are more than a verifier at each node.
MULTI_STEP: dict[str, TreeRule] = {
    rule.name: rule
    for rule in (
        Traversal(), TraversalHull(), LevelSequential(), BlockVerification(), GreedyMultiPath()
    )
}  # fmt: skip

#: Short names; `rule_names` lists the long ones.
_SHORT = {"trav_hull": "traversal_hull", "gbv": "greedy_multi_path"}


def _checked(rule: Any, name: str) -> TreeRule:
    if isinstance(rule, Verifier):
        return TopDown(rule)
    if not isinstance(rule, TreeRule):
        raise InvalidInput(
            f"{name} is {rule!r:.60}: give an object of a class that is derived from "
            "mdsd_opt.trees.TreeRule, or a verifier"
        )
    return rule


def _own() -> dict[str, Any]:
    return {**MULTI_STEP, **dict.fromkeys(verifier_names(), TopDown), Race.name: Race()}


RULES: Registry[Any] = Registry("rule", "mdsd_opt.tree_rules", _own, _checked)


def rule_names() -> tuple[str, ...]:
    """Names of the rules: multi-step ones, verifiers, which run from the root, and a user's own."""
    return RULES.names()


def get_rule(name: str) -> TreeRule:
    """Rule of this name; a token-level verifier's name means it, token by token from the root.

    So does ``"module:attribute"`` where a verifier stands, or a `TreeRule`.

    Raises
    ------
    UnknownName
        No such rule; the message lists those that exist.
    InvalidInput
        What ``"module:attribute"`` names is neither.
    """
    entry = RULES.get(_SHORT.get(str(name), name))
    rule: TreeRule = TopDown(name) if entry is TopDown else entry
    return rule


def register(rule: TreeRule) -> None:
    """Register a rule by its name, which is then known wherever one is taken.

    Parameters
    ----------
    rule : TreeRule
        An object with a `name` that no other rule or verifier has. It needs `stops`, the ways to
        end, given a tree.

    Raises
    ------
    InvalidInput
        No rule, without a name, or of a name that is taken.
    """
    RULES.register(rule)
