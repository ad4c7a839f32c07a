"""Trees of drafts: drawn from a draft model, and weighed by the target model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Floats, Integers, Law, Text
from mdsd_opt.base.checked import Rng, check_function, generator_of, of_kind
from mdsd_opt.drafts import DraftScheme, SchemeMaker, scheme_maker
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees.device_laws import BinnedDrafts, known, sampled
from mdsd_opt.trees.topology import Place, RateTable, Topology, ValuedTopology, valued

#: Maps texts (continuations of the prompt) to the draft laws after them, [n, V].
DraftModel = Callable[[Sequence[Text]], NDArray[Any]]


@dataclass(slots=True, eq=False)
class Node:
    """A draft token with the drafts drawn after it.

    Attributes
    ----------
    tokens : tuple of int
        The drafts on the way from the root, itself included; () for the root.
    place : tuple of int
        Its place in the topology.
    merged : tuple of tuple of int
        Places of later draws that coincide with it, where the topology merges them.
    drafts : DraftScheme or None
        Scheme of the drafts after it; None for a leaf.
    draws : ndarray of int64, shape (K,)
        They, in draw order; they may coincide.
    children : dict of int to Node
        Children by token.
    values : ndarray, shape (K,)
        Values of the drafts by their places, see `add_drafts`.
    """

    tokens: Text
    place: Place
    drafts: DraftScheme | None = None
    draws: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    children: dict[int, Node] = field(default_factory=dict)
    values: Law = field(default_factory=lambda: np.empty(0))
    merged: tuple[Place, ...] = ()
    _target: Law | Callable[[], Law] = field(default_factory=lambda: np.empty(0), repr=False)

    @property
    def target(self) -> Law:
        """Law p after this node, shape (V,), once the target model has been asked."""
        if callable(self._target):
            self._target = self._target()
        return self._target

    @target.setter
    def target(self, law: Law) -> None:
        self._target = law

    def target_by(self, make: Callable[[], Law]) -> None:
        """Compute p when it is first read: rules do not visit all nodes of a tree."""
        self._target = make

    @property
    def depth(self) -> int:
        return len(self.tokens)

    def next_places(self, topology: Topology) -> list[Place]:
        """Places of the drafts that are drawn after the node."""
        return [
            (*place, rank)
            for place in (self.place, *self.merged)
            for rank in range(topology.drafts_at(place))
        ]

    def add_drafts(
        self,
        drafts: DraftScheme,
        draws: Integers,
        values: Law | None = None,
        merged: Sequence[Place] | None = None,
    ) -> list[Node]:
        """Attach the draws below this node; return the new nodes.

        Draws that coincide hang at the place of the first, unless they are merged.

        Parameters
        ----------
        drafts : DraftScheme
        draws : ndarray of int64, shape (K,)
        values : ndarray, shape (K,), optional
            Value of each place: 1 and the drafts expected to be accepted below it, see
            `place_values`; by default all the same. They must be known before these drafts are
            drawn: a rule that favours a draft for its token is not lossless.
        merged : sequence of tuple of int, optional
            `next_places` of a topology that merges draws that coincide.

        Raises
        ------
        InvalidInput
            There is not one positive value for each draw.
        """
        values = np.ones(draws.size) if values is None else values
        if values.shape != draws.shape or not all(value > 0.0 for value in values.tolist()):
            raise InvalidInput(
                f"{draws.size} drafts are worth {values.tolist()}: give one positive value for "
                "each place"
            )
        self.drafts, self.draws, self.values = drafts, draws, values
        for rank, token in enumerate(draws.tolist()):
            place = (*self.place, rank) if merged is None else merged[rank]
            if token >= 0 and token not in self.children:
                self.children[token] = Node((*self.tokens, token), place)
            elif token >= 0 and merged is not None:
                self.children[token].merged += (place,)
        return list(self.children.values())

    def walk(self) -> list[Node]:
        """The node and all below it, parents before children."""
        nodes = [self]
        for node in nodes:
            nodes.extend(node.children.values())
        return nodes


def grow(
    model: DraftModel,
    topology: Topology,
    scheme: str | SchemeMaker,
    rng: Rng = 0,
    rates: RateTable | None = None,
) -> Node:
    """Draw a tree of drafts, one level after another.

    The places are sorted first, so that what is drawn first is worth most: draws that coincide
    then have the best of their places.

    Parameters
    ----------
    model : callable
        Draft laws after some continuations, as probabilities [n, V].
    topology : Topology
    scheme : str or callable
        Scheme by which the drafts of a node are drawn.
    rng : numpy.random.Generator or int, optional
    rates : ndarray, shape (K + 1, K), optional
        Chances of the places, by which the drafts are valued: see `place_values`. Measured ones
        must stem from earlier trees.

    Returns
    -------
    Node
        The root, without target laws.
    """
    return drawn(model, valued(topology, rates), scheme_maker(scheme), generator_of(rng))


def drawn(
    model: DraftModel, shape: ValuedTopology, make: SchemeMaker, rng: np.random.Generator
) -> Node:
    """Draw a tree like `grow`, by a topology whose values are known."""
    root = Node((), ())
    level = [root]
    while inner := [(n, k) for n in level if (k := len(n.next_places(shape.topology)))]:
        level = []
        for node, _, drafts, draws in draw_level(model, inner, make, rng):
            level += hang(node, drafts, draws, shape)
    return root


def draw_level(
    model: DraftModel,
    sizes: Sequence[tuple[Node, int]],
    make: SchemeMaker,
    rng: np.random.Generator,
) -> Iterator[tuple[Node, Law, DraftScheme, Integers]]:
    """Law, drafts and draws of nodes by their number; promised ones spare the host a wait."""
    laws = model([node.tokens for node, _ in sizes])
    per_node: list[Any] = [make(law, count) for (_, count), law in zip(sizes, laws, strict=True)]
    if isinstance(per_node[0], BinnedDrafts):  # no scheme: weights on a device
        draws = sampled(per_node, rng)
    else:
        draws = [drafts.sample(rng) for drafts in per_node]
    return zip((node for node, _ in sizes), laws, per_node, draws, strict=True)


def hang(node: Node, drafts: DraftScheme, draws: Integers, shape: ValuedTopology) -> list[Node]:
    """Attach draws by a topology and its values, like `add_drafts`; return the new nodes."""
    topology, values = shape
    if topology.merges and draws.dtype == object:
        raise InvalidInput(
            f"{topology.name} merges draws that coincide, but on this device they are not known "
            "while the tree is drawn: leave on_device out"
        )
    if not topology.merges:
        return node.add_drafts(drafts, draws, values[node.place])
    places = node.next_places(topology)
    worth = np.array([values[place[:-1]][place[-1]] for place in places])
    return node.add_drafts(drafts, draws, worth, places)


def settle(root: Node) -> None:
    """Replace promised tokens in a tree, once they are known.

    Draws that coincide then hang at the place of the first.
    """
    nodes = [root]
    for node in nodes:
        children, node.children = list(node.children.values()), {}
        node.draws = np.array(known(node.draws.tolist()), np.int64)
        for token, child in zip(node.draws.tolist(), children, strict=True):
            if token >= 0 and token not in node.children:
                child.tokens = (*node.tokens, token)
                node.children[token] = child
        nodes.extend(node.children.values())


def set_targets(root: Node, laws: Callable[[Text], Floats]) -> Node:
    """Give every node of a tree its target law, and return the root."""
    check_function(laws=laws)
    for node in of_kind(root, Node, "root", "what grow returns").walk():
        node.target = laws(node.tokens)
    return root
