"""The numba kernel behind `bin_marginal`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.concave_kernels import pool
from mdsd_opt.verifiers.optimal.group_fill_kernels import water_level_of

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]


@kernel
def fill_bins(
    p: Vector, q: Vector, lowest: Vector, highest: Vector, contained: Vector, room: Matrix,
    starts: Integers, x: Vector,
) -> tuple[int, float]:  # fmt: skip
    """Write the marginal x of groups in ascending order of p/q; return the cut, and P - Q there.

    Parameters
    ----------
    p, q : ndarray, shape (n,)
        Masses; q > 0.
    lowest, highest : ndarray, shape (n,)
        Bounds of p/q.
    contained : ndarray, shape (n + 1,)
        Q of the first 0, 1, ... groups.
    room : ndarray, shape (3, n + 1)
    starts : ndarray, shape (n + 1,)
        Room.
    x : ndarray, shape (n,)
    """
    n = p.size
    split, least, reached = 0, 0.0, 0.0
    for g in range(n):
        reached += p[g]
        if reached - contained[g + 1] < least:
            split, least = g + 1, reached - contained[g + 1]
    inside = contained[split]
    for g in range(n):
        bound = highest[g] if g < split else lowest[g]
        x[g] = bound * q[g] if bound < np.inf else p[g]
    _towards_means(p, x, 0, split, inside, True)
    _towards_means(p, x, split, n, 1.0 - inside, False)
    fill_side(q, x, 0, split, inside, True, room)
    fill_side(q, x, split, n, 1.0 - inside, False, room)
    # Rounded masses may have brought R below Q: it is kept above.
    reached, before = 0.0, 0.0
    for g in range(n):
        reached += x[g]
        if g + 1 == split:
            reached = inside
        if g + 1 == n:
            reached = 1.0
        above = max(reached, contained[g + 1])
        x[g] = max(above - before, 0.0)
        before = max(above, before)
    _pool(q, x, 0, split, room, starts)
    _pool(q, x, split, n, room, starts)
    return split, least


@kernel(inner=True)
def _towards_means(
    p: Vector, x: Vector, start: int, stop: int, mass: float, from_above: bool
) -> None:
    """From the mean ratios to those at the bounds only as far as there is room for in the mass."""
    means, bounds = 0.0, 0.0
    for g in range(start, stop):
        means += p[g]
        bounds += x[g]
    if bounds <= mass if from_above else bounds >= mass:
        return
    share = min(max((mass - means) / (bounds - means), 0.0), 1.0)
    for g in range(start, stop):
        x[g] = p[g] + share * (x[g] - p[g])


@kernel(inner=True)
def fill_side(
    q: Vector, x: Vector, start: int, stop: int, mass: float, rising: bool, room: Matrix
) -> None:
    """Raise the least ratios x/q of groups in order of them to a level, or cap the largest, so that
    all hold the mass; room is of shape (3, n + 1).
    """
    size = stop - start
    room[0, 0], room[1, 0] = 0.0, 0.0
    for i in range(size):
        g = start + i if rising else stop - 1 - i
        room[0, i + 1] = room[0, i] + x[g]
        room[1, i + 1] = room[1, i] + q[g]
        room[2, g - start] = x[g] / q[g]
    count, level = water_level_of(room[:2, : size + 1], room[2, :size], mass, rising)
    for i in range(count):
        g = start + i if rising else stop - 1 - i
        x[g] = level * q[g]


@kernel(inner=True)
def _pool(q: Vector, x: Vector, start: int, stop: int, room: Matrix, starts: Integers) -> None:
    """Ascending ratios: bounds that are widened overlap, by what they are widened for."""
    count = 0
    for g in range(start, stop):
        count = pool(count, g, x[g], q[g], starts, room[0], room[1])
    starts[count] = stop
    for b in range(count):
        if starts[b + 1] - starts[b] > 1:
            for g in range(starts[b], starts[b + 1]):
                x[g] = room[0, b] / room[1, b] * q[g]
