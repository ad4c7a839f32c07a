"""Race rule: drafts and output of every node of a tree come first on the same noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from mdsd_opt.base.array_types import Text, Vector
from mdsd_opt.drafts import WithoutReplacement
from mdsd_opt.trees.draft_tree import DraftModel, Node
from mdsd_opt.trees.rules.base import Accepted
from mdsd_opt.trees.rules.top_down import TopDown
from mdsd_opt.trees.topology import Topology


class Race(TopDown):
    r"""Draft the K first of q at every node, output the first of p, on one exponential a token.

    The noise after a text is made of a seed and of that text, so that the output
    :math:`\arg\min_i E_i / p_i` is a function of these: a seed gives one text with any draft model
    and any tree, or with none. The drafts are the K least :math:`E_i / q_i`, which are distinct;
    `mdsd_opt.decoding.generate` draws them by this rule, with a seed from its generator. Trees that
    were drawn elsewhere, without replacement, are verified by the law of the output given their
    drafts, which takes a small vocabulary. Lossless. Source: this package.

    Parameters
    ----------
    seed : int, optional
        One that is not negative; `generate` draws one unless it is given.
    """

    name: ClassVar[str] = "race"

    def __init__(self, seed: int | None = None) -> None:
        super().__init__("race")
        self.seed = seed
        self._text: Text = ()
        self._grown: Node | None = None

    def noise(self, text: Sequence[int], vocab_size: int) -> Vector:
        """Exponentials (V,) of what follows a text."""
        high, low = divmod(self.seed or 0, 1 << 32)
        # the length, as NumPy takes keys for equal that zeros behind them tell apart
        key = [low, high, len(text) + 1, *text]
        return np.random.default_rng(key).standard_exponential(vocab_size)

    def grow(self, model: DraftModel, topology: Topology, text: Sequence[int]) -> Node:
        """Draw the tree of drafts after a text, one level after another."""
        self._text = tuple(text)
        self._grown = root = Node((), ())
        level = [root]
        while inner := [(n, k) for n in level if (k := len(n.next_places(topology)))]:
            laws, level = model([node.tokens for node, _ in inner]), []
            for (node, num_drafts), law in zip(inner, laws, strict=True):
                drafts = WithoutReplacement(law, num_drafts)
                order = np.argsort(self._arrivals(node, drafts.q))[:num_drafts]
                draws = np.full(num_drafts, -1)
                draws[: order.size] = np.where(drafts.q[order] > 0, order, -1)
                level += node.add_drafts(drafts, draws)
        return root

    def verify(self, root: Node, rng: np.random.Generator) -> Accepted:
        """Go down while the output is a draft; `rng` is for trees that were drawn elsewhere."""
        if root is not self._grown:
            return super().verify(root, rng)
        node = root
        while True:
            token = int(self._arrivals(node, node.target).argmin())
            if token not in node.children:
                return Accepted((*node.tokens, token), node.depth)
            node = node.children[token]

    def _arrivals(self, node: Node, law: Vector) -> Vector:
        """When the tokens arrive in the race of a law after a node: never, if they cannot come."""
        with np.errstate(divide="ignore"):
            arrivals: Vector = self.noise((*self._text, *node.tokens), law.size) / law
        return arrivals
