"""Trees of drafts: drawn from a draft model, and weighed by the target model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.decoding.topology import DynamicTree, Place, Topology
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, DraftScheme
from mdsd_opt.errors import UnknownName

Law = NDArray[np.float64]
Tokens = tuple[int, ...]

#: Makes the scheme of a node from its draft law and the number of drafts.
SchemeMaker = Callable[[Law, int], DraftScheme]

#: Draft law after a text (the prompt's continuation), of all texts at once: [n, V].
DraftModel = Callable[[Sequence[Tokens]], NDArray[Any]]


@dataclass(slots=True, eq=False)
class Node:
    """A draft token with the drafts drawn after it.

    Attributes
    ----------
    tokens : tuple of int
        The drafts on the way from the root, itself included; () for the root.
    place : tuple of int
        Its place in the topology.
    drafts : DraftScheme or None
        How the drafts after it were drawn; None for a leaf.
    draws : ndarray of int64, shape (K,)
        They, in draw order; they may coincide.
    children : dict of int to Node
        By token.
    target : ndarray, shape (V,)
        p after this node, once the target model has been asked.
    """

    tokens: Tokens
    place: Place
    drafts: DraftScheme | None = None
    draws: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    children: dict[int, Node] = field(default_factory=dict)
    target: Law = field(default_factory=lambda: np.empty(0))

    @property
    def depth(self) -> int:
        return len(self.tokens)

    def add_drafts(self, drafts: DraftScheme, draws: NDArray[np.int64]) -> list[Node]:
        """Hang the draws below this node; return the new nodes."""
        self.drafts, self.draws = drafts, draws
        for rank, token in enumerate(draws.tolist()):
            if token >= 0 and token not in self.children:
                self.children[token] = Node((*self.tokens, token), (*self.place, rank))
        return list(self.children.values())

    def walk(self) -> list[Node]:
        """This node and all below, parents before children."""
        nodes = [self]
        for node in nodes:
            nodes.extend(node.children.values())
        return nodes


def scheme_maker(scheme: str | SchemeMaker) -> SchemeMaker:
    """A scheme by name ("with_replacement", ...), or a function (q, num_drafts) -> scheme."""
    if callable(scheme):
        return scheme
    if scheme not in SINGLE_MODEL_SCHEMES:
        raise UnknownName.among("draft scheme", scheme, SINGLE_MODEL_SCHEMES)
    return SINGLE_MODEL_SCHEMES[scheme]


def grow(
    model: DraftModel,
    topology: Topology,
    scheme: str | SchemeMaker,
    rng: np.random.Generator,
) -> Node:
    """Draw a tree of drafts, one level after another.

    Parameters
    ----------
    model : callable
        Draft laws after some continuations, as probabilities [n, V].
    topology : Topology
    scheme : str or callable
        How the drafts of a node are drawn.
    rng : numpy.random.Generator

    Returns
    -------
    Node
        The root, without target laws.
    """
    make = scheme_maker(scheme)
    root = Node((), ())
    level = [root]
    while level:
        inner = [node for node in level if topology.drafts_at(node.place) > 0]
        if not inner:
            break
        laws = model([node.tokens for node in inner])
        level = []
        for node, law in zip(inner, laws, strict=True):
            drafts = make(law, topology.drafts_at(node.place))
            level += node.add_drafts(drafts, drafts.sample(rng))
    return root


def grow_by_acceptance(
    model: DraftModel,
    tree: DynamicTree,
    scheme: str | SchemeMaker,
    rng: np.random.Generator,
) -> Node:
    """Grow a tree where acceptance is likeliest, under a budget of drafts.

    Of each level only the likeliest nodes get drafts, by the product of the draft probabilities on
    the way: the target is not known yet (EAGLE-2 does so). Which nodes get drafts depends on
    earlier levels only, so that every rule stays lossless.

    Parameters
    ----------
    model : callable
        Draft laws after some continuations, as probabilities [n, V].
    tree : DynamicTree
        The budget; at least the drafts of the root are drawn.
    scheme : str or callable
    rng : numpy.random.Generator
    """
    make = scheme_maker(scheme)
    root = Node((), ())
    level = [(1.0, root)]
    num_drafts = tree.num_drafts
    left = max(tree.num_nodes, num_drafts)
    for depth in range(tree.max_depth):
        widest = max(left // (num_drafts * (tree.max_depth - depth)), 1)
        level = sorted(level, key=lambda item: (-item[0], item[1].tokens))[:widest]
        level = level[: left // num_drafts]
        if not level:
            break
        laws = model([node.tokens for _, node in level])
        following = []
        for (chance, node), law in zip(level, laws, strict=True):
            drafts = make(law, num_drafts)
            left -= num_drafts
            for child in node.add_drafts(drafts, drafts.sample(rng)):
                following.append((chance * float(law[child.tokens[-1]]), child))
        level = following
    return root
