"""Rules of engines for chains and blocks of drafts, and the mistakes that are made in them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from support.text_sessions import after_block, block_chances, block_ratios, last_passed, pick

from mdsd_opt.decoding import Node


def drawn(weights: Any, rng: np.random.Generator) -> int:
    """By one uniform; a token of weight zero never."""
    return pick(weights, rng.random())


def path(root: Node) -> list[Node]:
    nodes = [root]
    while nodes[-1].children:
        nodes += nodes[-1].children.values()
    return nodes


def accepts_all(root: Node, rng: np.random.Generator) -> list[int]:
    """Wrong: a chain that is kept whole."""
    node = path(root)[-1]
    return [*node.tokens, drawn(node.target, rng)]


def chain(
    *,
    swapped: bool = False,
    at_most: bool = False,
    wrong_row: bool = False,
    left: Callable[[Any, Any], Any] = lambda p, q: np.maximum(p - q, 0),
) -> Any:
    """Rejection along a chain, as engines have it, and the mistakes that are made in it."""

    def verify(root: Node, rng: np.random.Generator) -> list[int]:
        nodes = path(root)
        tokens = []
        for n, (node, child) in enumerate(pairwise(nodes)):
            x, p, q = child.tokens[-1], node.target, node.drafts.q
            u = rng.random()
            if swapped:
                accepted = u * p[x] < q[x]
            else:
                accepted = u * q[x] <= p[x] if at_most else u * q[x] < p[x]
            if not accepted:
                row = nodes[max(n - 1, 0)].target if wrong_row else p
                rest = left(row, q)
                return [*tokens, drawn(rest if rest.any() else row, rng)]
            tokens.append(x)
        return [*tokens, drawn(nodes[-1].target, rng)]

    return verify


def block(*, residual: str = "scaled", accept: str = "h", capped: bool = True) -> Any:
    """Block verification, its uniforms all drawn first; and the mistakes that are made in it."""

    def verify(root: Node, rng: np.random.Generator) -> list[int]:
        nodes = path(root)
        drafts = nodes[-1].tokens
        p, q = [node.target for node in nodes], [node.drafts.q for node in nodes[:-1]]
        r = block_ratios(p, q, drafts, capped=capped)
        chances = block_chances(p, q, r) if accept == "h" else [min(1.0, x) for x in r[1:]]
        kept = last_passed(chances, iter(rng.random(len(drafts)).tolist()).__next__)
        scales = r if residual == "scaled" else [1.0] * len(r)
        return [*drafts[:kept], drawn(after_block(p, q, scales, kept), rng)]

    return verify
