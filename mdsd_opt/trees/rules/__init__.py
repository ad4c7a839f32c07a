"""Rules that verify a tree of drafts, by name, behind one interface, and those that are published.

`published.csv` beside this file is the one place that says which those are; the page of the
documentation shows it, and a test holds it against the names that exist.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from mdsd_opt.base.checked import of_kind
from mdsd_opt.base.registry import Registry
from mdsd_opt.trees.rules.by_level import LevelSequential, Race, TopDown
from mdsd_opt.trees.rules.multi_step import (
    BlockVerification,
    GreedyMultiPath,
    Traversal,
    TraversalHull,
)
from mdsd_opt.trees.rules.rule import Accepted, Stop, TreeRule
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
    return of_kind(rule, TreeRule, name, "an object of a class that is derived from "
                   "mdsd_opt.trees.TreeRule, or a verifier")  # fmt: skip


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


@dataclass(frozen=True, slots=True)
class PublishedRule:
    """A rule that verifies drafts.

    Attributes
    ----------
    name : str
    year : str
    source : str
        arXiv number of its paper, or the venue of one that has none.
    lossless_for : str
        Drafts with which the output follows the target.
    here : str
        Name that `get_rule` takes, or a class of `mdsd_opt.solvers.frontier.rules`; empty if it is
        not here.
    note : str
        Difference from the paper, or why it is not here.
    """

    name: str
    year: str
    source: str
    lossless_for: str
    here: str
    note: str


@cache
def published_rules() -> tuple[PublishedRule, ...]:
    """All published rules that are known here, and those of this package.

    Rules for one token come first, then those for paths and trees, then lossy ones.
    """
    text = (files(__package__) / "published.csv").read_text(encoding="utf-8")
    return tuple(PublishedRule(*row) for row in list(csv.reader(text.splitlines()))[1:])
