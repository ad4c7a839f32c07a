r"""The most drafts that any lossless rule can accept from a small tree, as a linear programme.

With :math:`m(w)` the probability that the output begins with the accepted drafts w,

.. math:: \max \sum_{w \ne ()} m(w) \quad\text{s.t.}\quad m(wy) \le p(y|w)\, m(w), \qquad
          m(A) \le \Pr(\text{the tree meets } A)

for every antichain A of texts; m(()) = 1. The stop node has law :math:`m(w) - \sum_y m(wy)`, and a
transport of trees to stop nodes inside them exists iff every ancestor-closed set has at least the
probability of the trees inside it: Hall's condition, whose complements are the antichains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.decoding.draft_tree import SchemeMaker, Tokens, scheme_maker
from mdsd_opt.decoding.topology import Place, Topology
from mdsd_opt.drafts.counting import COUNTLESS, count_power, readable
from mdsd_opt.errors import ProblemTooLarge, SolverError

Laws = Callable[[Tokens], NDArray[np.float64]]

#: Antichains, that is, rows of the programme.
MAX_ANTICHAINS = 20_000

#: Draft tuples of one node.
MAX_TUPLES = 20_000


def tree_optimum(
    target: Laws, draft: Laws, topology: Topology, scheme: str | SchemeMaker = "with_replacement"
) -> float:
    """Largest mean number of accepted drafts of one step.

    Parameters
    ----------
    target, draft : callable
        Laws of the next token after some tokens, shape (V,): p and q, everywhere.
    topology : Topology
    scheme : str or callable

    Raises
    ------
    ProblemTooLarge
        More than 20,000 draft tuples of a node, or more than 20,000 antichains: about V = 3, two
        levels, or V = 2, three levels.

    Notes
    -----
    A rule that sees the laws at the nodes of its tree only may fall short of it.
    """
    from scipy.optimize import linprog

    vocab_size, depth = target(()).size, topology.depth
    count = _count_antichains(vocab_size, depth)
    if count > MAX_ANTICHAINS:
        raise ProblemTooLarge(
            f"V = {vocab_size} and depth {depth} make {readable(count)} antichains, over the "
            f"limit of {MAX_ANTICHAINS:,}: take a smaller vocabulary or a shallower tree"
        )
    tuples = count_power(vocab_size, max(topology.num_drafts.values()))
    if tuples > MAX_TUPLES:
        raise ProblemTooLarge(
            f"V = {vocab_size} and {max(topology.num_drafts.values())} drafts after a node make "
            f"{readable(tuples)} draft tuples, over the limit of {MAX_TUPLES:,}: take fewer drafts"
        )
    texts = [w for n in range(1, depth + 1) for w in product(range(vocab_size), repeat=n)]
    column = {w: i for i, w in enumerate(texts)}
    misses = _Misses(draft, topology, scheme_maker(scheme))
    rows, bounds = [], []
    for w in texts:
        row = np.zeros(len(texts))
        row[column[w]] = 1.0
        share = float(target(w[:-1])[w[-1]])
        if len(w) > 1:
            row[column[w[:-1]]] = -share
        rows.append(row)
        bounds.append(share if len(w) == 1 else 0.0)
    for chain in _antichains((), vocab_size, depth):
        if chain and chain != ((),):
            row = np.zeros(len(texts))
            row[[column[w] for w in chain]] = 1.0
            rows.append(row)
            bounds.append(1.0 - misses.probability((), (), frozenset(chain)))
    found = linprog(
        -np.ones(len(texts)), A_ub=np.array(rows), b_ub=np.array(bounds), method="highs"
    )
    if found.status != 0:
        raise SolverError(f"the linear programme of the tree was not solved: {found.message}")
    return float(-found.fun)


def _count_antichains(vocab_size: int, depth: int) -> int:
    count = 1
    for _ in range(depth + 1):
        count = min(1 + count_power(count, vocab_size), COUNTLESS)
    return count


def _antichains(node: Tokens, vocab_size: int, depth: int) -> Iterator[tuple[Tokens, ...]]:
    """Sets of texts from `node` down, none of which begins with another."""
    yield (node,)
    if len(node) == depth:
        yield ()
        return
    below = [list(_antichains((*node, y), vocab_size, depth)) for y in range(vocab_size)]
    for parts in product(*below):
        yield tuple(w for part in parts for w in part)


class _Misses:
    """Probabilities that a random tree holds no text of a set."""

    def __init__(self, draft: Laws, topology: Topology, make: SchemeMaker) -> None:
        self._topology = topology
        self._draft = draft
        self._make = make
        self._laws: dict[tuple[Tokens, int], tuple[NDArray[Any], NDArray[np.float64]]] = {}

    def probability(self, node: Tokens, place: Place, chain: frozenset[Tokens]) -> float:
        """That the tree below a drawn node (itself included) meets none of the texts."""
        if node in chain:
            return 0.0
        num_drafts = self._topology.drafts_at(place)
        wanted = {w for w in chain if w[: len(node)] == node}
        if num_drafts == 0 or not wanted:
            return 1.0
        if (node, num_drafts) not in self._laws:
            drafts = self._make(self._draft(node), num_drafts)
            self._laws[node, num_drafts] = drafts.tuple_law()
        total = 0.0
        for draws, weight in zip(*self._laws[node, num_drafts], strict=True):
            if weight > 0.0:
                missed, seen = float(weight), set()
                for rank, token in enumerate(draws.tolist()):
                    if token >= 0 and token not in seen:
                        seen.add(token)
                        missed *= self.probability((*node, token), (*place, rank), chain)
                total += missed
        return total
