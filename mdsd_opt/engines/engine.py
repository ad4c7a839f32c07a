"""A shipped function that verifies a chain of drafts, behind one form of call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.decoding.draft_tree import Node
from mdsd_opt.drafts import WithReplacement
from mdsd_opt.errors import InvalidInput

Laws = NDArray[np.float64]
Tokens = tuple[int, ...]

#: p (n + 1, V), q (n, V) and n drafts -> the accepted ones and one more token.
Chain = Callable[[Laws, Laws, Tokens], Tokens]


@dataclass(frozen=True, slots=True)
class Engine:
    """A shipped function, ready to be called: for `audit` itself, `verify` for `audit_tree`.

    Attributes
    ----------
    name : str
    package, version : str
        As installed.
    function : str
        Where it stands in the package.
    rebound : str
        What had to be replaced for it to run here; empty if nothing was.
    block : bool
        Whether it decides about the drafts together.
    chain : callable
        (p, q, drafts) -> tokens, with p of shape (n + 1, V) and q of shape (n, V).
    """

    name: str
    package: str
    version: str
    function: str
    rebound: str
    block: bool
    chain: Chain

    def __call__(
        self, target: Laws, draft: Laws, drafts: NDArray[np.int64], rng: np.random.Generator
    ) -> int:
        """The first token that it gives for one draft."""
        if len(drafts) != 1:
            raise InvalidInput(
                f"{self.name} verifies one draft after another, not {len(drafts)} in one place: "
                "audit it on problems of one draft, or by audit_tree on a chain"
            )
        rows = np.stack([target, target])
        return self.chain(rows, np.asarray(draft)[None], (int(drafts[0]),))[0]

    def verify(self, root: Node, rng: np.random.Generator) -> Tokens:
        """The tokens that it gives for a tree that is a chain."""
        nodes, q = [root], []
        while nodes[-1].drafts is not None:
            node = nodes[-1]
            if not isinstance(node.drafts, WithReplacement) or node.drafts.num_drafts != 1:
                raise InvalidInput(f"{self.name} verifies chains: give a tree such as chain2")
            q.append(node.drafts.q)
            nodes.append(node.children[int(node.draws[0])])
        return self.chain(np.stack([node.target for node in nodes]), np.stack(q), nodes[-1].tokens)
