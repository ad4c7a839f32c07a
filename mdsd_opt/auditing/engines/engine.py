"""A shipped function that verifies drafts, behind one calling convention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mdsd_opt.auditing.chains import Chain, Rows, Tokens, of_chains
from mdsd_opt.base.array_types import Integers
from mdsd_opt.drafts.by_name import scheme_maker
from mdsd_opt.trees.draft_tree import Node
from mdsd_opt.trees.topology import Topology

#: Maps the root of a drawn tree, with the target's laws at its nodes, to tokens.
Rule = Callable[[Node], Tokens]


class Drafted(NamedTuple):
    """Trees that an engine is audited on, and the scheme of their drafts."""

    tree: Topology
    scheme: str = "with_replacement"


CHAINS = Drafted(Topology({(): 1, (0,): 1}, "chain2"))


@dataclass(frozen=True, slots=True)
class Engine:
    """Shipped function, ready to be called: for `audit` itself, `verify` for `audit_tree`.

    Attributes
    ----------
    name : str
    package, version : str
        Name and version of the installed package.
    function : str
        Place of the function in the package.
    rebound : str
        Replacements that were needed for it to run here; empty if nothing was.
    rule : callable
        Function from the root of a drawn tree (`mdsd_opt.decoding.Node`) to the accepted drafts and
        one more token.
    drafted : Drafted
        The tree of its standard audits, and the name of the scheme.
    """

    name: str
    package: str
    version: str
    function: str
    rebound: str
    rule: Rule
    drafted: Drafted = CHAINS

    def __call__(
        self, target: Rows, draft: Rows, drafts: Integers, rng: np.random.Generator
    ) -> int:
        """First token that the engine gives for drafts in one place."""
        root = Node((), (), target=target)
        scheme = scheme_maker(self.drafted.scheme)(draft, len(drafts))
        for child in root.add_drafts(scheme, np.asarray(drafts)):
            child.target = target
        return self.rule(root)[0]

    def verify(self, root: Node, rng: np.random.Generator) -> Tokens:
        """Tokens that the engine gives for a tree."""
        return self.rule(root)


@dataclass(frozen=True, slots=True)
class Adapter:
    """Description of a shipped function before it is loaded: the fields of an `Engine`.

    Either of `chain` and `rule` loads it. `takes_long` says that the standard audits take more than
    ten minutes.
    """

    package: str
    tested: tuple[str, ...]
    function: str
    rebound: str
    chain: Callable[[], Chain] | None = None
    rule: Callable[[], Rule] | None = None
    drafted: Drafted = CHAINS
    takes_long: bool = False

    def loaded(self, name: str, version: str) -> Engine:
        """Engine with its function loaded, ready to be called."""
        if self.chain is not None:
            rule = of_chains(name, self.chain())
        else:
            assert self.rule is not None
            rule = self.rule()
        return Engine(name, self.package, version, self.function, self.rebound, rule, self.drafted)
