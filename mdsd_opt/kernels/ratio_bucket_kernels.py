"""Buckets of the log-ratio of two rows of weights, and the division of groups of tokens.

All ratios are of p over q, in base 2. Ranking needs no probabilities: the log-ratio of weights
differs from that of probabilities by a constant of the row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.numba_cache import kernel

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]
Keys = NDArray[np.uint16]

#: Parts into which an opened group of tokens is divided.
CELLS = 64


class Grid(NamedTuple):
    """Bucket b holds log-ratios from first + b / per_octave; first and last are open-ended."""

    first: float
    per_octave: float
    size: int


@kernel
def bucket_ratios(grid: Grid) -> Vector:
    """Ratio of weights at the lower edge of every bucket, and infinity at the end."""
    edges = np.empty(grid.size + 1)
    for b in range(grid.size):
        edges[b] = 2.0 ** (grid.first + b / grid.per_octave)
    edges[0] = 0.0
    edges[grid.size] = np.inf
    return edges


@kernel
def bucket_keys(log_ratios: Any, grid: Grid, keys: Keys) -> None:
    """Bucket of every token; computed in the precision of the log-ratios."""
    constants = np.zeros(4, log_ratios.dtype)
    constants[1] = grid.per_octave
    constants[2] = -grid.first * grid.per_octave
    constants[3] = grid.size - 1
    zero, factor, offset, last = constants[0], constants[1], constants[2], constants[3]
    for i in range(keys.size):
        position = log_ratios[i] * factor + offset
        position = position if position > zero else zero  # a NaN goes to bucket 0, too
        position = position if position < last else last
        keys[i] = np.int32(position)


@kernel
def kink(
    lowest: float, highest: float, p_inside: float, q_inside: float, ratio_error: float
) -> tuple[float, float]:
    """Where the two end tangents of a group meet: (p, q) gained since the group's start.

    A group holds masses p_inside and q_inside at ratios in [lowest, highest], known up to a factor
    1 + ratio_error. Tokens in order of their ratio draw a convex curve of p against q, which is
    nowhere below the two tangents.
    """
    lowest *= 1.0 - ratio_error
    highest *= 1.0 + ratio_error
    q_kink = q_inside
    if highest < np.inf:
        q_kink = (highest * q_inside - p_inside) / (highest - lowest)
        q_kink = min(max(q_kink, 0.0), q_inside)
    return lowest * q_kink, q_kink


@kernel
def tokens_in(keys: Keys, is_open: NDArray[np.bool_], tokens: NDArray[np.int32]) -> int:
    """Write the ids of all tokens in open buckets to `tokens`, of size V + 1; return how many."""
    count = 0
    for i in range(keys.size):  # free of branches: three times as fast where many are open
        tokens[count] = i
        count += is_open[keys[i]]
    return count


@kernel
def group_columns(columns: Matrix, spare: Matrix, parts: Keys, ends: Integers) -> None:
    """Reorder columns by the part each belongs to; part c becomes ends[c] : ends[c + 1].

    `spare` has the shape of `columns`. Order within a part is kept.
    """
    ends[:] = 0
    for i in range(parts.size):
        ends[parts[i] + 1] += 1
    for c in range(ends.size - 1):
        ends[c + 1] += ends[c]
    places = ends[:-1].copy()
    for i in range(parts.size):
        place = places[parts[i]]
        places[parts[i]] += 1
        for r in range(columns.shape[0]):
            spare[r, place] = columns[r, i]
    for r in range(columns.shape[0]):
        for i in range(parts.size):
            columns[r, i] = spare[r, i]


@kernel
def cells_of(values: Vector, lowest: float, highest: float) -> Keys:
    """Divide [lowest, highest] into equal cells; return the cell of every value."""
    cells = np.zeros(values.size, np.uint16)
    if lowest < highest:
        scale = CELLS / (highest - lowest)
        for i in range(values.size):
            cells[i] = min(int((values[i] - lowest) * scale), CELLS - 1)
    return cells
