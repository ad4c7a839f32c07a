"""Branch and bound over the masses that an optimal subset has under each draft model."""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts.product_form import ProductForm
from mdsd_opt.problem.lower_bounds import BoxCover, TileBound, tile_bound

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class BoxSearch:
    """What the search found: P(H) - Q(H) of the best subset, a lower bound, and its proof."""

    value: float
    lower: float
    subset: NDArray[np.bool_]
    cover: BoxCover
    tiles: int


def search(
    p: Vector, form: ProductForm, tolerance: float, max_tiles: int, time_limit: float | None
) -> BoxSearch:
    """Split the tile of the least bound until it comes within `tolerance` of the best subset."""
    deadline = np.inf if time_limit is None else time.perf_counter() + time_limit
    best, subset = 0.0, np.zeros(p.size, dtype=np.bool_)
    open_tiles: list[tuple[float, int, Vector, Vector, TileBound]] = []
    closed: list[tuple[Vector, Vector]] = []
    lower_closed = 0.0  # the empty subset belongs to no tile in particular
    count = 0

    def visit(low: Vector, high: Vector) -> None:
        nonlocal best, subset, lower_closed, count
        count += 1
        bound = tile_bound(p, form, low, high)
        if bound is None:
            closed.append((low, high))
            return
        if bound.value < best:
            best, subset = float(bound.value), bound.subset
        if bound.lower >= best - tolerance:
            closed.append((low, high))
            lower_closed = min(lower_closed, float(bound.lower))
        else:
            heapq.heappush(open_tiles, (float(bound.lower), count, low, high, bound))

    size = len(form.q)
    visit(np.zeros(size), np.ones(size))
    while open_tiles and open_tiles[0][0] < best - tolerance:
        if count >= max_tiles or time.perf_counter() > deadline:
            break
        _, _, low, high, bound = heapq.heappop(open_tiles)
        r = int(np.argmax(bound.high - bound.low))
        cut = float(bound.low[r] + bound.high[r]) / 2
        for side_low, side_high in _halves(low, high, r, cut):
            visit(side_low, side_high)
    closed += [(low, high) for _, _, low, high, _ in open_tiles]
    lower = min([lower_closed, best, *(bound for bound, *_ in open_tiles)])
    cover = BoxCover(np.array([low for low, _ in closed]), np.array([high for _, high in closed]))
    return BoxSearch(best, lower, subset, cover, count)


def _halves(low: Vector, high: Vector, r: int, cut: float) -> list[tuple[Any, Any]]:
    below, above = high.copy(), low.copy()
    below[r] = above[r] = cut
    return [(low, below), (above, high)]
