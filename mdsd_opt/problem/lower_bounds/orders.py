r"""Lower bounds on min_H [P(H) - Q(H)] for any supermodular Q, proved by orders of the tokens.

The greedy rule "return the draft that comes last in a fixed order" selects token j of the order
with mass :math:`y_{o(j)} = Q(H_j) - Q(H_{j-1})`, H_j the first j tokens. A mixture of orders
is a lossless selection rule too, so with y its marginal

.. math:: \alpha^* \ge \sum_i \min(p_i, y_i),

with equality at the minimum-norm point of the base polytope of P - Q (Fujishige). Only the
containment oracle is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import floats, integers
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.errors import InvalidInput


@dataclass(frozen=True, slots=True, eq=False)
class OrderMixture:
    """Proof of a lower bound: priority orders with their weights.

    Attributes
    ----------
    orders : ndarray of int64, shape (m, V)
        Permutations of the tokens.
    weights : ndarray, shape (m,)
        Non-negative and finite, as their sum is; they are divided by it.
    """

    orders: NDArray[np.int64]
    weights: NDArray[np.float64]


def order_marginal(drafts: DraftScheme, order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Law of the draft that comes last in the order, shape (V,)."""
    marginal = np.empty(order.size)
    marginal[order] = np.diff(drafts.prefix_containment(order))
    return marginal


def mixture_shortfall(p: NDArray[Any], drafts: DraftScheme, proof: OrderMixture) -> Any:
    """Sum of min(p - y, 0): at most P(H) - Q(H) for every H; None if the proof is malformed.

    Exact where p holds Fractions; else less what a second evaluation of Q differs by. The empty
    draft set, if the scheme has it, belongs to y(V) < 1.
    """
    read = _read(proof, p.size)
    if read is None:
        return None
    orders, weights, total = read
    if p.dtype != object:
        shares = weights / total
        mixed = _mixed_marginal(drafts, orders, shares)
        again = drafts.rechecked()
        doubt = 0.0
        if again is not drafts:
            doubt = float(np.abs(mixed - _mixed_marginal(again, orders, shares)).sum())
        empty = drafts.containment(np.zeros(p.size, dtype=np.bool_))
        return float(np.minimum(p - mixed, 0.0).sum()) - empty - doubt
    return _exact_shortfall(p, drafts, orders, [Fraction(w) for w in weights.tolist()])


def _read(
    proof: OrderMixture, size: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], float] | None:
    """Orders, weights in float64 and their sum; None unless all of it is a mixture of orders."""
    try:
        orders = integers(proof.orders, "the orders")
        weights = floats(proof.weights, "the weights")
    except InvalidInput:
        return None
    if weights.ndim != 1 or orders.shape != (weights.size, size) or not (weights >= 0).all():
        return None
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if not 0 < total < np.inf or (np.sort(orders, axis=1) != np.arange(size)).any():
        return None
    return orders, weights, total


def _mixed_marginal(
    drafts: DraftScheme, orders: NDArray[np.int64], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    marginals = [order_marginal(drafts, order) for order in orders]
    mixed: NDArray[np.float64] = shares @ np.array(marginals)
    return mixed


def _exact_shortfall(
    p: NDArray[Any], drafts: DraftScheme, orders: NDArray[np.int64], exact: list[Fraction]
) -> Fraction:
    total = sum(exact)
    y = [Fraction(0)] * p.size
    empty = drafts.exact_containment(np.zeros(p.size, dtype=np.bool_))
    for weight, order in zip(exact, orders.tolist(), strict=True):
        if not weight:
            continue
        prefixes = drafts.exact_prefix_containment(order)
        for j, i in enumerate(order):
            y[i] += weight / total * (prefixes[j + 1] - prefixes[j])
    return sum((min(a - b, Fraction(0)) for a, b in zip(p, y, strict=True)), Fraction(0)) - empty
