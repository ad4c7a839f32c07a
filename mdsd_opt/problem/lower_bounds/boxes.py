r"""Lower bounds on min_H [P(H) - f(q_1(H), .., q_R(H))] for draws from different models.

f is a polynomial without negative coefficients (`ProductForm`), from which two facts follow. Let H
be an optimal subset and x = (q_r(H)) its point.

- *Thresholds.* A token i outside H has :math:`p_i \ge \nabla f(x) \cdot q_i`, a token inside has
  :math:`p_i \le \nabla f(x) \cdot q_i`. So if x lies in a box :math:`l \le x \le u`, tokens with
  :math:`p_i < \nabla f(l) \cdot q_i` are in H, tokens with :math:`p_i > \nabla f(u) \cdot q_i` are
  not, and the box shrinks to what the undecided tokens leave open.
- *Chains.* On a box, f, convex in each coordinate, lies below its interpolation along every
  monotone path from l to u that raises one coordinate after the other. Against such an affine
  function, the best subset is a threshold set and its value a sum, in O(V).

The least bound over boxes ("tiles") that cover the unit cube holds for every H. All of it runs on
float64 and on Fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import floats
from mdsd_opt.drafts.product_form import ProductForm
from mdsd_opt.errors import InvalidInput, ProblemTooLarge

#: How far rounding may move a token over a threshold or a point over a face, in float64.
_SLACK = 1e-13

#: All chains up to this many rows; beyond it only the cyclic ones, both ways round.
_ALL_CHAINS_UP_TO = 4

_MAX_CONTRACTIONS = 100

#: Low and high corner.
Tile = tuple[tuple[float, ...], tuple[float, ...]]

#: Fractions that a cover may take to compute.
MAX_EXACT_STEPS = 10**7


@dataclass(frozen=True, slots=True, eq=False)
class BoxCover:
    """Proof of a lower bound by tiles that cover the unit cube of (q_1(H), .., q_R(H)).

    Attributes
    ----------
    low, high : ndarray, shape (n, R)
        Corners of the tiles, 0 <= low <= high <= 1.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class TileBound:
    """What is known about the subsets whose point lies in one tile.

    Attributes
    ----------
    lower : number
        No such subset that is optimal has a smaller P(H) - Q(H).
    value : number
        P(H) - Q(H) of `subset`, which need not lie in the tile.
    subset : ndarray of bool, shape (V,)
    low, high : ndarray, shape (R,)
        The box after contraction.
    """

    lower: Any
    value: Any
    subset: NDArray[np.bool_]
    low: NDArray[Any]
    high: NDArray[Any]


def tile_bound(
    p: NDArray[Any], form: ProductForm, low: NDArray[Any], high: NDArray[Any]
) -> TileBound | None:
    """Contract a tile and bound it; None if no optimal subset has its point there.

    Parameters
    ----------
    p : ndarray, shape (V,)
        Target, possibly sub-normalised.
    form : ProductForm
    low, high : ndarray, shape (R,)
        Corners of the tile.
    """
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
    inside: NDArray[np.bool_],
    undecided: NDArray[np.int64],
    mass: NDArray[Any],
    q: NDArray[Any],
    held_mass: Any,
    held: NDArray[Any],
) -> TileBound:
    """The best chain from below, its threshold set from above."""
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
    """The bound that the tiles prove; None unless they lie in the unit cube and cover it."""
    size = len(form.q)
    tiles = _tiles(cover, size)
    if tiles is None:
        return None
    if p.dtype == object:
        _require_few(len(tiles), size, p.size)
    if not _covered((0.0,) * size, (1.0,) * size, tiles):
        return None
    lower = p[0] * 0  # the empty subset
    for low, high in tiles:
        number = form.q.dtype
        bound = tile_bound(p, form, _corner(low, number), _corner(high, number))
        if bound is not None:
            lower = min(lower, bound.lower)
    return lower


def _tiles(cover: BoxCover, size: int) -> list[Tile] | None:
    """The corners of every tile; None unless 0 <= low <= high <= 1, where f has its slopes."""
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


def _covered(low: tuple[float, ...], high: tuple[float, ...], tiles: Sequence[Tile]) -> bool:
    """Whether the tiles cover the box: cut it along a face of a tile until tiles hold the parts."""
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
    """A face inside the box that runs through the fewest tiles."""
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
