"""Every tree of drafts that can be drawn, with its probability."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.trees.tables import Laws
from mdsd_opt.decoding.draft_tree import Node, Tokens
from mdsd_opt.decoding.topology import Place, Topology, in_draw_order, place_values
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.drafts.by_name import SchemeMaker

#: Drafts after a text, how they are drawn, and their place.
Hung = dict[Tokens, tuple[DraftScheme, NDArray[np.int64]]]


def drawn_trees(
    target: Laws, draft: Laws, topology: Topology, make: SchemeMaker
) -> Iterator[tuple[Node, float]]:
    """Trees as `decoding.grow` draws them, with the target's laws at their nodes."""
    topology = in_draw_order(topology)
    values = place_values(topology)
    for hung, probability in _ways(draft, topology, make, [((), ())], {}, 1.0):
        root = Node((), ())
        nodes = [root]
        for node in nodes:
            node.target = target(node.tokens)
            if node.tokens in hung:
                drafts, draws = hung[node.tokens]
                nodes += node.add_drafts(drafts, draws, values[node.place])
        yield root, probability


def _ways(
    draft: Laws,
    topology: Topology,
    make: SchemeMaker,
    waiting: list[tuple[Tokens, Place]],
    hung: Hung,
    probability: float,
) -> Iterator[tuple[Hung, float]]:
    """All ways to draw what comes after the nodes that wait."""
    open_nodes = [(text, place) for text, place in waiting if topology.drafts_at(place)]
    if not open_nodes:
        yield hung, probability
        return
    (text, place), rest = open_nodes[0], open_nodes[1:]
    drafts = make(draft(text), topology.drafts_at(place))
    tuples, weights = drafts.tuple_law()
    for n in np.flatnonzero(weights > 0).tolist():
        draws = tuples[n].astype(np.int64)
        ranks: dict[int, int] = {}
        for rank, token in enumerate(draws.tolist()):
            if token >= 0:
                ranks.setdefault(token, rank)
        children = [((*text, token), (*place, rank)) for token, rank in ranks.items()]
        more = {**hung, text: (drafts, draws)}
        yield from _ways(
            draft, topology, make, [*rest, *children], more, probability * float(weights[n])
        )
