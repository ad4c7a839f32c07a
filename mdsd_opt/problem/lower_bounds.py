r"""Proofs of lower bounds on min_H [P(H) - Q(H)] that a solution can contain.

*Boxes*, for draws from different models: Q(H) = f(q_1(H), .., q_R(H)), f a polynomial without
negative coefficients (`ProductForm`), from which two facts follow. Let H be an optimal subset and
x = (q_r(H)) its point.

- *Thresholds.* A token i outside H has :math:`p_i \ge \nabla f(x) \cdot q_i`, a token inside has
  :math:`p_i \le \nabla f(x) \cdot q_i`. So if x lies in a box :math:`l \le x \le u`, tokens with
  :math:`p_i < \nabla f(l) \cdot q_i` are in H, tokens with :math:`p_i > \nabla f(u) \cdot q_i` are
  not, and the box shrinks to what the undecided tokens leave open.
- *Chains.* On a box, f, convex in each coordinate, lies below its interpolation along every
  monotone path from l to u that raises one coordinate after the other. Against such an affine
  function, the best subset is a threshold set and its value a sum, in O(V).

The least bound over boxes ("tiles") that cover the unit cube holds for every H. All of it runs on
float64 and on Fractions.

*Orders*, for any supermodular Q: the greedy rule "return the draft that comes last in a fixed
order" selects token j of the order with mass :math:`y_{o(j)} = Q(H_j) - Q(H_{j-1})`, H_j the first
j tokens. A mixture of orders is a lossless selection rule too, so with y its marginal

.. math:: \alpha^* \ge \sum_i \min(p_i, y_i),

with equality at the minimum-norm point of the base polytope of P - Q (Fujishige). Only the
containment oracle is needed.

Upper bound from the probability of each token to be drafted, whatever the law is besides.

No token has more of the accepted mass than p_i, nor more than :math:`\pi_i = \Pr(i \in S)`, so that
:math:`\alpha^* \le \sum_i \min(p_i, \pi_i)`. It is the cut of [Hu25] with the union bound
:math:`\Pr(S \text{ meets } A) \le \pi(A)`, at its best :math:`A = \{p > \pi\}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Floats, Integers, Numbers
from mdsd_opt.base.checked import floats, integers
from mdsd_opt.drafts import DraftScheme, ProductForm, inclusion_probabilities
from mdsd_opt.errors import InvalidInput, ProblemTooLarge
from mdsd_opt.problem.transport_problem import TransportProblem, checked_problem

#: Distance by which rounding may move a token over a threshold or a point over a face, in float64.
_SLACK = 1e-13

#: Most rows for which all chains are tried; beyond it only the cyclic ones are, both ways round.
_ALL_CHAINS_UP_TO = 4

_MAX_CONTRACTIONS = 100

#: Low and high corner of a tile.
Tile = tuple[tuple[float, ...], tuple[float, ...]]

#: Most Fractions that a cover may take to compute.
MAX_EXACT_STEPS = 10**7


@dataclass(frozen=True, slots=True, eq=False)
class BoxCover:
    """Proof of a lower bound by tiles that cover the unit cube of (q_1(H), .., q_R(H)).

    The corners of the tiles, `low` and `high`, have shape (n, R).
    """

    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True, eq=False)
class TileBound:
    """Facts about the subsets whose point lies in one tile.

    No such subset that is optimal has a smaller P(H) - Q(H) than `lower`; `value` is that of
    `subset`, which need not lie in the tile. `low` and `high`, shape (R,), are the box after
    contraction.
    """

    lower: Any
    value: Any
    subset: Flags
    low: NDArray[Any]
    high: NDArray[Any]


def tile_bound(
    p: NDArray[Any], form: ProductForm, low: NDArray[Any], high: NDArray[Any]
) -> TileBound | None:
    """Contract a tile of these corners and bound it; None if no optimal subset lies there."""
    slack = 0 if p.dtype == object else _SLACK
    inside = np.zeros(p.size, dtype=np.bool_)
    undecided = np.arange(p.size)
    mass, q = p, form.q
    held_mass = p[:0].sum() + p[0] * 0
    held = low * 0
    for _ in range(_MAX_CONTRACTIONS):
        least, most = np.stack([form.gradient(low), form.gradient(high)]) @ q
        enter = np.flatnonzero(mass < least * (1 - slack))
        stay = np.flatnonzero((mass >= least * (1 - slack)) & (mass <= most * (1 + slack)))
        if enter.size:
            inside[undecided[enter]] = True
            held_mass = held_mass + mass[enter].sum()
            held = held + q[:, enter].sum(axis=1)
        if stay.size < undecided.size:
            undecided, mass, q = undecided[stay], mass[stay], q[:, stay]
        new_low = np.maximum(low, held * (1 - slack))
        new_high = np.minimum(high, (held + _row_sums(q)) * (1 + slack))
        if (new_low > new_high * (1 + slack) + slack).any():
            return None
        new_high = np.maximum(new_low, new_high)
        moved = ((new_low - low) + (high - new_high)).max()
        low, high = new_low, new_high
        if moved * 1000 <= (high - low).max() or undecided.size == 0:
            break
    return _bounded(form, low, high, inside, undecided, mass, q, held_mass, held)


def _row_sums(q: NDArray[Any]) -> NDArray[Any]:
    return q.sum(axis=1) if q.shape[1] else np.zeros(len(q), dtype=q.dtype)


def _bounded(
    form: ProductForm,
    low: NDArray[Any],
    high: NDArray[Any],
    inside: Flags,
    undecided: Integers,
    mass: NDArray[Any],
    q: NDArray[Any],
    held_mass: Any,
    held: NDArray[Any],
) -> TileBound:
    """Bound of a tile: the best chain from below, its threshold set from above."""
    slopes = form.chain_slopes(low, high, np.array(_orders(low.size)))
    gains = mass - slopes @ q
    lower = held_mass - form.value(low) - slopes @ (held - low)
    lower = lower + (np.minimum(gains, mass[:1].sum() * 0).sum(axis=1) if mass.size else 0)
    best = int(np.argmax(lower))
    members = np.flatnonzero(gains[best] < 0)
    point = held + _row_sums(q[:, members])
    subset = inside.copy()
    subset[undecided[members]] = True
    value = held_mass + mass[members].sum() - form.value(point)
    return TileBound(lower[best], value, subset, low, high)


def _orders(num_rows: int) -> Sequence[tuple[int, ...]]:
    rows = tuple(range(num_rows))
    if num_rows <= _ALL_CHAINS_UP_TO:
        return list(permutations(rows))
    turned = [rows[r:] + rows[:r] for r in rows]
    return turned + [order[::-1] for order in turned]


def cover_bound(p: NDArray[Any], form: ProductForm, cover: BoxCover) -> Any:
    """Bound that the tiles prove; None unless they lie in the unit cube and cover it."""
    size = len(form.q)
    tiles = read_tiles(cover, size)
    if tiles is None:
        return None
    if p.dtype == object:
        _require_few(len(tiles), size, p.size)
    if not are_covering((0.0,) * size, (1.0,) * size, tiles):
        return None
    lower = p[0] * 0  # the empty subset
    for low, high in tiles:
        number = form.q.dtype
        bound = tile_bound(p, form, _corner(low, number), _corner(high, number))
        if bound is not None:
            lower = min(lower, bound.lower)
    return lower


def read_tiles(cover: BoxCover, size: int) -> list[Tile] | None:
    """Corners of every tile; None unless 0 <= low <= high <= 1, where f has its slopes."""
    try:
        low = floats(cover.low, "the low corners")
        high = floats(cover.high, "the high corners")
    except InvalidInput:
        return None
    if low.ndim != 2 or low.shape != high.shape or low.shape[1] != size:
        return None
    if not ((low >= 0) & (low <= high) & (high <= 1)).all():
        return None
    return [(tuple(a), tuple(b)) for a, b in zip(low.tolist(), high.tolist(), strict=True)]


def _require_few(num_tiles: int, num_rows: int, num_tokens: int) -> None:
    """Refuse covers that would keep Fractions busy for minutes."""
    steps = num_tiles * len(_orders(num_rows)) * num_rows * (num_tokens + num_rows)
    if steps > MAX_EXACT_STEPS:
        raise ProblemTooLarge(
            f"the exact bound of {num_tiles} tiles in {num_rows} dimensions over V={num_tokens} "
            f"takes about {steps:,} steps, over the limit of {MAX_EXACT_STEPS:,}: certify in "
            "floating point (exact=False), or restrict the vocabulary (top_k, top_p)"
        )


def _corner(values: tuple[float, ...], dtype: Any) -> NDArray[Any]:
    if np.dtype(dtype).hasobject:
        return np.array([Fraction(x) for x in values], dtype=object)
    return np.array(values)


def are_covering(low: tuple[float, ...], high: tuple[float, ...], tiles: Sequence[Tile]) -> bool:
    """Whether the tiles cover the box, which is cut along faces until tiles hold the parts."""
    pending = [(low, high, list(tiles))]
    while pending:
        low, high, near = pending.pop()
        near = [t for t in near if _meet(low, high, t)]
        if any(_holds(t, low, high) for t in near):
            continue
        if not near:
            return False
        r, cut = _cut(low, high, near)
        pending.append((low, (*high[:r], cut, *high[r + 1 :]), near))
        pending.append(((*low[:r], cut, *low[r + 1 :]), high, near))
    return True


def _meet(low: tuple[float, ...], high: tuple[float, ...], tile: Tile) -> bool:
    return all((a < d and c < b) or a == b for a, b, c, d in zip(low, high, *tile, strict=True))


def _holds(tile: Tile, low: tuple[float, ...], high: tuple[float, ...]) -> bool:
    return all(c <= a and b <= d for a, b, c, d in zip(low, high, *tile, strict=True))


def _cut(
    low: tuple[float, ...], high: tuple[float, ...], tiles: Sequence[Tile]
) -> tuple[int, float]:
    """Face inside the box that runs through the fewest tiles."""
    faces = {
        (r, x)
        for tile in tiles
        for corner in tile
        for r, x in enumerate(corner)
        if low[r] < x < high[r]
    }
    return min(
        faces, key=lambda face: (sum(t[0][face[0]] < face[1] < t[1][face[0]] for t in tiles), face)
    )


@dataclass(frozen=True, slots=True, eq=False)
class OrderMixture:
    """Proof of a lower bound: priority orders of the tokens, shape (m, V), with their weights.

    Weights are not negative, and are divided by their sum.
    """

    orders: Integers
    weights: Floats


def order_marginal(drafts: DraftScheme, order: Integers) -> Numbers:
    """Law of the draft that comes last in the order, shape (V,)."""
    gains = np.diff(drafts.prefix_containment(order))
    marginal = np.empty_like(gains)
    marginal[order] = gains
    return marginal


def mixture_shortfall(p: NDArray[Any], drafts: DraftScheme, proof: OrderMixture) -> Any:
    """Sum of min(p - y, 0): at most P(H) - Q(H) for every H; None if the proof is malformed.

    Exact where p and the drafts hold Fractions; else less what a second evaluation of Q differs by.
    The empty draft set, if the scheme has it, belongs to y(V) < 1.
    """
    read = read_mixture(proof, p.size)
    if read is None:
        return None
    orders, weights, total = read
    orders, weights = orders[weights > 0], weights[weights > 0]
    nothing = np.zeros(p.size, dtype=np.bool_)
    if p.dtype == object:
        exact = np.array([Fraction(weight) for weight in weights.tolist()], dtype=object)
        mixed = _mixed_marginal(drafts, orders, exact / exact.sum())
        return np.minimum(p - mixed, p[0] * 0).sum() - drafts.containment(nothing)
    mixed = _mixed_marginal(drafts, orders, weights / total)
    again = drafts.with_finer_quadrature()
    doubt = 0.0
    if again is not drafts:
        doubt = float(np.abs(mixed - _mixed_marginal(again, orders, weights / total)).sum())
    return float(np.minimum(p - mixed, 0.0).sum()) - drafts.containment(nothing) - doubt


def read_mixture(proof: OrderMixture, size: int) -> tuple[Integers, Floats, float] | None:
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


def _mixed_marginal(drafts: DraftScheme, orders: Integers, shares: Numbers) -> Numbers:
    return shares @ np.array([order_marginal(drafts, order) for order in orders])


def inclusion_bound(problem: TransportProblem) -> float:
    r"""Bound :math:`\alpha^* \le \min(1, \sum_i \min(p_i, \pi_i))` by marginals of the drafts.

    Every law of draft sets in which token i is drafted with probability
    :math:`\pi_i = \Pr(i \in \{X_1, \dots, X_K\})` stays below it.

    Parameters
    ----------
    problem : TransportProblem

    Returns
    -------
    float
        Bound, up to rounding of about 1e-12.

    Raises
    ------
    ProblemTooLarge
        The law has no formula for its marginals and too many draft sets to list.

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> problem = mo.TransportProblem([0.6, 0.3, 0.1], mo.WithoutReplacement([0.2, 0.3, 0.5], 2))
    >>> round(mo.inclusion_bound(problem), 4), round(mo.solve(problem).acceptance_rate, 4)
    (0.8857, 0.8857)
    """
    included = inclusion_probabilities(checked_problem(problem).drafts)
    return min(1.0, float(np.minimum(problem.target, included).sum()))
