"""The optimum of a tiny tree by the whole linear programme: every antichain is a row."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
from scipy.optimize import linprog

from mdsd_opt.drafts import scheme_maker


def whole_programme(target, draft, topology, scheme="with_replacement", missed_by=None):
    """Largest mean number of accepted drafts; V = 3 and two levels, or V = 2 and three.

    `missed_by` is the chance that a tree holds none of some texts; by default that of the topology.
    """
    vocab_size, depth = target(()).size, topology.depth
    texts = [w for n in range(1, depth + 1) for w in product(range(vocab_size), repeat=n)]
    column = {w: i for i, w in enumerate(texts)}
    misses = misses_of(draft, topology, scheme_maker(scheme))
    rows, bounds = [], []
    for w in texts:
        share = float(target(w[:-1])[w[-1]])
        row = np.zeros(len(texts))
        row[column[w]] = 1.0
        if len(w) > 1:
            row[column[w[:-1]]] = -share
        rows.append(row)
        bounds.append(share if len(w) == 1 else 0.0)
    for chain in antichains((), vocab_size, depth):
        if chain and chain != ((),):
            row = np.zeros(len(texts))
            row[[column[w] for w in chain]] = 1.0
            rows.append(row)
            if missed_by is None:
                bounds.append(1.0 - misses((), (), frozenset(chain)))
            else:
                bounds.append(1.0 - missed_by(chain))
    found = linprog(
        -np.ones(len(texts)), A_ub=np.array(rows), b_ub=np.array(bounds), method="highs"
    )
    assert found.status == 0
    return float(-found.fun)


def antichains(node, vocab_size, depth):
    """Sets of texts from a text on, none of which begins with another."""
    yield (node,)
    if len(node) == depth:
        yield ()
        return
    below = [list(antichains((*node, y), vocab_size, depth)) for y in range(vocab_size)]
    for parts in product(*below):
        yield tuple(w for part in parts for w in part)


def misses_of(draft, topology, make):
    """A function: the probability that the tree below a drawn node holds none of some texts.

    Its arguments are the node's text and place, and the texts that begin with that text.
    """

    @cache
    def ways(node, num_drafts):
        """Tokens that are drawn, each with the first place that holds it; and the probability."""
        found = []
        for draws, weight in zip(*make(draft(node), num_drafts).tuple_law(), strict=True):
            if weight > 0.0:
                places = {}
                for rank, token in enumerate(draws.tolist()):
                    if token >= 0:
                        places.setdefault(token, rank)
                found.append((places, float(weight)))
        return found

    @cache
    def missed(node, place, chain):
        if node in chain:
            return 0.0
        num_drafts = topology.drafts_at(place)
        if num_drafts == 0 or not chain:
            return 1.0
        below = {}
        for text in chain:
            below.setdefault(text[len(node)], set()).add(text)
        total = 0.0
        for places, weight in ways(node, num_drafts):
            chance = weight
            for token, rank in places.items():
                if token in below:
                    chance *= missed((*node, token), (*place, rank), frozenset(below[token]))
            total += chance
        return total

    return missed
