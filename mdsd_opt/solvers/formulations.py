r"""The transport LP on draft sets, on ordered tuples as the textbook has it, or on pairs of tokens.

With two drafts, draft set {i, j} hands the share :math:`x_{ij}` of its mass to i and the rest to j
(i < j), so token i is selected with mass :math:`W_i + \sum_{j>i} x_{ij} + \sum_{j<i} (W_{ji} -
x_{ji})`, and t_i of it is accepted:

.. math:: \max \sum_i t_i \quad\text{s.t.}\quad 0 \le t_i \le p_i, \; 0 \le x_{ij} \le W_{ij}, \quad
          t_i - \sum_{j>i} x_{ij} + \sum_{j<i} x_{ji} \le W_i + \sum_{j<i} W_{ji} .
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Flags, Integers, Vector
from mdsd_opt.base.arrays import weighted_count
from mdsd_opt.drafts import SupportLaw
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers.highs_backend import PackingLp, SparseMatrix


@dataclass(frozen=True, slots=True, eq=False)
class TransportNetwork:
    """Tokens on one side, draft events (sets or tuples) with their masses on the other.

    `tokens` and `events`, shape (num_arcs,), are the ends of the arcs: token i may be accepted in
    event s.
    """

    target: Vector
    mass: Vector
    tokens: NDArray[np.int32]
    events: Integers

    @property
    def num_arcs(self) -> int:
        return self.tokens.size

    def packing_matrix(self) -> SparseMatrix:
        """Matrix with rows for tokens, then events; columns are arcs."""
        arc = np.arange(self.num_arcs)
        return SparseMatrix(
            shape=(self.target.size + self.mass.size, self.num_arcs),
            rows=np.concatenate([self.tokens, self.target.size + self.events]),
            columns=np.concatenate([arc, arc]),
            values=np.ones(2 * self.num_arcs),
        )

    def covering_matrix(self) -> SparseMatrix:
        """Transposed matrix: rows are arcs, columns the prices of tokens and events."""
        packing = self.packing_matrix()
        return SparseMatrix(packing.shape[::-1], packing.columns, packing.rows, packing.values)


def support_network(problem: TransportProblem, law: SupportLaw) -> TransportNetwork:
    """Network with one event for each draft set."""
    return TransportNetwork(problem.target, law.mass, law.tokens, law.arc_support)


def tuple_network(problem: TransportProblem) -> tuple[TransportNetwork, NDArray[np.int32]]:
    """Network with one event for each ordered draft tuple, and the tuples, each sorted, [n, K]."""
    tuples, mass = problem.drafts.tuple_law()
    possible = mass > 0
    tuples, mass = np.sort(tuples[possible], axis=1), mass[possible]
    fresh = tuples >= 0  # not padding, and not a repeat of the place before
    fresh[:, 1:] &= tuples[:, 1:] != tuples[:, :-1]
    events, places = np.nonzero(fresh)
    return TransportNetwork(problem.target, mass, tuples[events, places], events), tuples


def on_supports(
    network: TransportNetwork, tuples: NDArray[np.int32], flow: Vector, law: SupportLaw
) -> Vector:
    """Sums of a flow on tuples over the tuples of each draft set, one for each arc of `law`."""
    places = {members: s for s, members in enumerate(law.sets())}
    support_of = np.array([places[tuple(sorted({*row} - {-1}))] for row in tuples.tolist()])
    # Within a set tokens ascend in both, so an arc is found by its set and token.
    vocab_size = network.target.size
    wanted = support_of[network.events] * vocab_size + network.tokens
    arcs = law.arc_support * vocab_size + law.tokens
    return weighted_count(np.searchsorted(arcs, wanted), flow, law.num_arcs)


def rounded_subset(
    problem: TransportProblem, law: SupportLaw, price: Vector
) -> tuple[float, Flags]:
    """Best level set {price > level} of token prices, and its cut value 1 + P(H) - Q(H).

    A feasible dual point is an average of its level sets, so the best of them is no worse.
    """
    order = np.argsort(-price, kind="stable")
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    inside = np.concatenate([[0.0], np.cumsum(problem.target[order])])
    complete = np.zeros(law.num_supports, dtype=np.int64)  # prefix length that holds the set
    filled = np.flatnonzero(np.diff(law.offsets) > 0)
    if filled.size:
        complete[filled] = np.maximum.reduceat(rank[law.tokens], law.offsets[filled]) + 1
    contained = np.cumsum(weighted_count(complete, law.mass, order.size + 1))
    # A level set ends where the price changes.
    ends = np.concatenate([[True], np.diff(price[order]) != 0, [True]])
    values = np.where(ends, 1.0 + inside - contained, np.inf)
    length = int(np.argmin(values))
    subset = np.zeros(order.size, dtype=np.bool_)
    subset[order[:length]] = True
    return float(values[length]), subset


def pair_lp(
    p: Vector,
    fixed: Vector,
    first: NDArray[np.integer],
    second: NDArray[np.integer],
    pair_mass: Vector,
) -> PackingLp:
    """Packing LP with columns t_1..t_V, then x of every pair, first < second.

    `fixed`, shape (V,), is the mass that each token is selected with anyway.
    """
    size, num_pairs = p.size, first.size
    t = np.arange(size)
    x = size + np.arange(num_pairs)
    return PackingLp(
        matrix=SparseMatrix(
            shape=(size, size + num_pairs),
            rows=np.concatenate([t, first, second]),
            columns=np.concatenate([t, x, x]),
            values=np.concatenate([np.ones(size), -np.ones(num_pairs), np.ones(num_pairs)]),
        ),
        objective=np.concatenate([np.ones(size), np.zeros(num_pairs)]),
        row_upper=fixed + weighted_count(second, pair_mass, size),
        column_upper=np.concatenate([p, pair_mass]),
    )
