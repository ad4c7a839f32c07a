"""The selection marginal p_I on groups of tokens, as if each group were a tie."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.ratio_groups_kernels import CONTAINED, RATIO, P, Q
from mdsd_opt.problem.water_filling import water_level

Matrix = NDArray[np.float64]

# Rows of what is written: p_I, weight and part of Q of each group, and what the last 0, 1.. groups
# hold.
X, W, GAIN = 0, 1, 2
TOP_P, TOP_W = 3, 4
ROWS = 5

water_level_of = kernel(inner=True)(water_level)


@kernel
def fill_groups(ends: Matrix, split: int, filled: Matrix) -> tuple[int, float, int, float]:
    """Write the marginal, and what it was made from, to room of shape (ROWS, n + 1).

    Returns
    -------
    raised, c, capped, cap
        As `water_filling.fill`.
    """
    n = ends.shape[1] - 1
    for g in range(n):
        for row in (P, Q, CONTAINED):
            filled[row, g] = ends[row, g + 1] - ends[row, g]
    for g in range(n + 1):
        filled[TOP_P, n - g] = ends[P, n] - ends[P, g]
        filled[TOP_W, n - g] = ends[Q, n] - ends[Q, g]
    inside = ends[CONTAINED, split]
    raised, c = water_level_of(ends[:2, : split + 1], ends[RATIO, :split], inside, True)
    others = n - split
    count, cap = water_level_of(
        filled[TOP_P : TOP_W + 1, : others + 1], ends[RATIO, split:n], 1.0 - inside, False
    )
    for g in range(raised):
        filled[X, g] = c * filled[W, g]
    for g in range(n - count, n):
        filled[X, g] = cap * filled[W, g]
    return raised, c, n - count, cap
