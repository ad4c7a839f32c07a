r"""Selecting one of two drafts: the marginals that a fixed rule gives, and what a truncation costs.

Two drafts X_1 ~ q_1 and X_2 ~ q_2 make the pair {i, j} with mass
:math:`w_{ij} = q_1(i) q_2(j) + q_1(j) q_2(i)`. The truncated LP of [Khisti25] chooses freely
between i and j only if both lie in a small set; in every other pair the token of higher priority
wins.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TruncatedPairs:
    """A transport problem with two drafts, in which few pairs are left to decide.

    Attributes
    ----------
    p, q1, q2 : ndarray, shape (V,)
    free : ndarray of int64, shape (s,)
        Tokens between which the LP decides.
    order : ndarray of int64, shape (V,)
        All tokens; in a pair that is not free the later one wins.
    """

    p: Vector
    q1: Vector
    q2: Vector
    free: Ids
    order: Ids

    @functools.cached_property
    def priority(self) -> Ids:
        """Place of every token in the order, shape (V,)."""
        places = np.empty_like(self.order)
        places[self.order] = np.arange(self.order.size)
        return places

    @property
    def free_pair_mass(self) -> NDArray[np.float64]:
        """w_ij between the free tokens, zero on the diagonal, shape (s, s)."""
        one_way = np.outer(self.q1[self.free], self.q2[self.free])
        mass = one_way + one_way.T
        np.fill_diagonal(mass, 0.0)
        return mass

    def fixed_selection(self) -> Vector:
        """Selected mass of every token, pairs of two free tokens left out, shape (V,)."""
        return self.q1 * self.q2 + self.fixed_wins(np.ones(self.p.size))

    def fixed_wins(self, weights: Vector) -> Vector:
        """Mass of the fixed pairs {i, j} that select i, each times the weight of j, shape (V,)."""
        q1, q2, weights = self.q1[self.order], self.q2[self.order], weights[self.order]
        is_free = np.zeros(weights.size, dtype=np.bool_)
        is_free[self.free] = True
        free = np.flatnonzero(is_free[self.order])
        won = np.empty(weights.size)
        won[self.order] = q1 * _lost(q2 * weights, free) + q2 * _lost(q1 * weights, free)
        return won

    def loss_bounds(self) -> tuple[float, float]:
        r"""What deciding the other pairs as well can gain, if free tokens win against all others.

        .. math:: \sum_{i \text{ not free}} (p_i - q_1 q_2)_+ \quad\text{[Khisti25]}\qquad
                  \sum_{i \text{ not free}} \min\bigl((p_i - q_1 q_2)_+, q_1 + q_2 - 2 q_1 q_2\bigr)

        Take an optimal selection and give the mixed pairs to their free tokens. Those only gain;
        another token keeps what it is drafted with alone, at least q_1 q_2, and it never had more
        than all pairs it is in.
        """
        alone = self.q1 * self.q2
        surplus = np.maximum(self.p - alone, 0.0)
        in_pairs = self.q1 + self.q2 - 2.0 * alone
        surplus[self.free] = 0.0
        return float(surplus.sum()), float(np.minimum(surplus, in_pairs).sum())


def _lost(masses: Vector, free: Ids) -> Vector:
    """Sum before each place; before a free one, of which the places are given, of bound ones."""
    before = np.concatenate([[0.0], np.cumsum(masses[:-1])])
    start, total = 0, 0.0
    for place in free.tolist():
        total += float(masses[start:place].sum())
        before[place] = total
        start = place + 1
    return before


def ascending_ratio(p: Vector, q1: Vector, q2: Vector) -> Ids:
    """Tokens by p / (q1 + q2), ties towards the lowest id; tokens never drafted come last."""
    drafted = q1 + q2
    ratio = np.full(p.size, np.inf)
    np.divide(p, drafted, out=ratio, where=drafted > 0)
    return stable_order(ratio)


def stable_order(values: Vector) -> Ids:
    """What a stable argsort gives; NumPy's own takes several times as long.

    The leading bits of a value and its place are sorted as one integer. Values that differ in other
    bits alone are sorted afterwards.
    """
    bits = (values + 0.0).view(np.int64)  # no negative zeros
    keys = bits ^ ((bits >> 63) & np.iinfo(np.int64).max)  # ascend as the values do
    places = np.int64((1 << (values.size - 1).bit_length()) - 1)
    keys = (keys & ~places) | np.arange(values.size)
    keys.sort()
    order = keys & places
    ascending = values[order]
    falls = np.flatnonzero(ascending[1:] < ascending[:-1])
    if falls.size > 0:
        leading = keys & ~places
        run = np.append(0, np.cumsum(leading[1:] != leading[:-1]))
        falls_in_run = np.zeros(run[-1] + 1, dtype=np.bool_)
        falls_in_run[run[falls]] = True
        doubtful = np.flatnonzero(falls_in_run[run])
        order[doubtful] = order[doubtful][np.lexsort((ascending[doubtful], run[doubtful]))]
    return order
