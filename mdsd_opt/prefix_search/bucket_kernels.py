"""Buckets of the ratio of two rows of weights, and bounds for prefixes that end inside one.

All ratios are of p over q. Ranking needs no probabilities: weights are as good, whose ratios are
those of probabilities but for a constant of the row. There are three kinds of buckets:

- `even_keys`: even in t = p / (p + c q), which is bounded, for what counts on the width of a bucket
  in p/q near c: rates with replacement, and bins that are never opened.
- `octave_keys`: equally many in each octave, by the leading bits of p/q, for what counts on ratios
  of ratios: decisions, cuts and certificates, groups beyond lossless.
- `bucket_keys`: the same of logarithms, where these are at hand: rates without replacement.

Tokens in order of their ratio draw a convex curve of p against q, nowhere below its tangents at the
ends of a group, whose slopes are the extreme ratios. These meet in the kink. Q is a power of q, so
that -Q is concave, or it is q-convex and below its chord. Either way, whatever P - s Q takes below
a line between the ends it takes there at the ends or at the kink: a group whose kink is not low
enough is closed for good. Others are divided.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Integers, Keys, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel

#: Parts into which an opened bucket is divided.
CELLS = 64

_TOGETHER = 1024  # tokens whose bins are found before they are added


def bucket_grid(first: float, per_octave: float, size: int, dtype: Any) -> tuple[Any, Vector]:
    """Grid of log-ratios from first + b / per_octave on; the first and last bucket are open-ended.

    Returns the grid, shape (4,): what `bucket_keys` multiplies and adds, the last bucket and the
    first, in the dtype of log-ratios; and the ratio at the lower edge of every bucket, with
    infinity at the end, shape (size + 1,).
    """
    edges = 2.0 ** (first + np.arange(size + 1) / per_octave)
    edges[0] = 0.0
    edges[size] = np.inf
    return np.array([per_octave, -first * per_octave, size - 1, 0], dtype), edges


@kernel(inner=True)
def bucket_keys(log_ratios: Any, grid: Any, keys: Keys) -> None:
    """Write the bucket of every token, computed in the precision of the log-ratios."""
    factor = grid[0]
    offset = grid[1]
    last = grid[2]
    zero = grid[3]
    for i in range(keys.size):
        position = log_ratios[i] * factor + offset
        position = position if position > zero else zero  # a NaN goes to bucket 0, too
        position = position if position < last else last
        keys[i] = np.int32(position)


def even_buckets(size: int, error: float) -> Matrix:
    """Least and largest p/q, in units of c, of buckets even in t = p / (p + c q); shape (2, size).

    `error` is how well t is known.
    """
    edges = np.arange(size + 1) / size
    lowest, highest = np.maximum(edges[:-1] - error, 0.0), edges[1:] + error
    highest[-1] = 1.0
    with np.errstate(divide="ignore"):
        return np.stack([lowest / (1.0 - lowest), highest / (1.0 - highest)])


@kernel(inner=True)
def even_keys(p: Any, q: Any, steps: Any, keys: Keys) -> None:
    """Write the bucket of every token by t = p / (p + c q); the first for zeros and NaN.

    `steps` holds c, the number of buckets, the last one and zero, in the dtype of the weights.
    """
    c = steps[0]
    size = steps[1]
    last = steps[2]
    zero = steps[3]
    for i in range(keys.size):
        position = p[i] / (p[i] + c * q[i]) * size
        position = position if position > zero else zero
        position = position if position < last else last
        keys[i] = np.int32(position)


@kernel
def row_table(target: Any, draft: Any, steps: Any, bins: Any, ends: Any, table: Any) -> None:
    """Write the bins of all tokens of a row, the sums of both laws in each, and the ends of t.

    `target` and `draft`, shape (V,), are n and m: probabilities, or integer weights; `steps` are as
    `even_keys` takes them, for all bins but the last, which holds what is never drafted. Written
    are `bins`, shape (V,); to zeros of `table`, float64 of shape (B, 2), the sums of n and m; and
    to ones and zeros of `ends`, shape (B, 2), the least and largest t of all bins but the last, or
    nothing if it has no rows.
    """
    never = table.shape[0] - 1
    half = steps[0]
    for start in range(0, target.size, _TOGETHER):
        n = target[start : start + _TOGETHER]
        m = draft[start : start + _TOGETHER]
        keys = bins[start : start + _TOGETHER]
        even_keys(n, m, steps, keys)
        for i in range(n.size):
            keys[i] = keys[i] if m[i] > 0 else never
        for i in range(n.size):
            place = keys[i]
            table[place, 0] += n[i]
            table[place, 1] += m[i]
        if ends.shape[0] > 0:
            for i in range(n.size):
                place = keys[i]
                if place < never:
                    t = n[i] / (n[i] + half * m[i])
                    ends[place, 0] = min(ends[place, 0], t)
                    ends[place, 1] = max(ends[place, 1], t)


@kernel(inner=True)
def octave_keys(
    p: Vector, q: Vector, ratios: Vector, shift: int, half: int, first: int, ends: Any, keys: Keys
) -> None:
    """Write the bucket of some tokens, by the bits of p/q above `shift`; `half` rounds them.

    Buckets count from the bits `first` on. `ends` are the least and the largest bucket of tokens
    that may be drafted, beyond which ratios are put there, too, that of p = 0, and that of q = 0.
    `ratios` is room for these tokens.
    """
    least, largest, massless, never_drafted = ends
    bits = ratios.view(np.int64)
    for i in range(keys.size):
        ratios[i] = p[i] / q[i]
    for i in range(keys.size):
        bucket: Any = ((bits[i] + half) >> shift) - first
        bucket = bucket if bucket > least else least
        bucket = bucket if bucket < largest else largest
        bucket = bucket if p[i] > 0.0 else massless
        keys[i] = bucket if q[i] > 0.0 else never_drafted


@kernel(inner=True)
def tokens_in(
    keys: Keys, is_open: Flags, marks: NDArray[np.uint8], tokens: NDArray[np.int32]
) -> int:
    """Write the ids of all tokens in open buckets to `tokens`, of size V + 1; return how many.

    `marks` is room for some tokens at once, a multiple of eight.
    """
    first_0, stop_0 = _open_run(is_open, 0)
    first_1, stop_1 = _open_run(is_open, stop_0)
    first_2, stop_2 = _open_run(is_open, stop_1)
    first_3, stop_3 = _open_run(is_open, stop_2)
    count = 0
    if stop_3 < is_open.size and _open_run(is_open, stop_3)[0] < is_open.size:
        for i in range(keys.size):  # free of branches: three times as fast where many are open
            tokens[count] = i
            count += is_open[keys[i]]
        return count
    # Few runs are compared with many keys at once, and most groups of eight hold none of them.
    edges = (
        np.uint16(first_0), np.uint16(stop_0), np.uint16(first_1), np.uint16(stop_1),
        np.uint16(first_2), np.uint16(stop_2), np.uint16(first_3), np.uint16(stop_3),
    )  # fmt: skip
    eights = marks.view(np.uint64)
    for start in range(0, keys.size, marks.size):
        here = keys[start : start + marks.size]
        _mark(here, edges, marks)
        for i in range(here.size, marks.size):
            marks[i] = 0
        for eight in range(eights.size):
            if eights[eight] != 0:
                for i in range(8 * eight, 8 * eight + 8):
                    tokens[count] = start + i
                    count += marks[i]
    return count


@kernel(inner=True)
def _open_run(is_open: Flags, bucket: int) -> tuple[int, int]:
    """First and end of the next run of open buckets from one on; twice the size without one."""
    while bucket < is_open.size and not is_open[bucket]:
        bucket += 1
    first = bucket
    while bucket < is_open.size and is_open[bucket]:
        bucket += 1
    return first, bucket


@kernel(inner=True)
def _mark(keys: Keys, edges: Any, marks: NDArray[np.uint8]) -> None:
    """Mark the keys in any of four runs, given by their firsts and ends."""
    first_0, stop_0, first_1, stop_1, first_2, stop_2, first_3, stop_3 = edges
    size_0 = np.uint16(stop_0 - first_0)
    size_1 = np.uint16(stop_1 - first_1)
    size_2 = np.uint16(stop_2 - first_2)
    size_3 = np.uint16(stop_3 - first_3)
    for i in range(keys.size):
        key = keys[i]  # below the first, the difference is a large number
        marks[i] = (
            (np.uint16(key - first_0) < size_0)
            | (np.uint16(key - first_1) < size_1)
            | (np.uint16(key - first_2) < size_2)
            | (np.uint16(key - first_3) < size_3)
        )


@kernel(inner=True)
def group_columns(
    columns: Matrix, start: int, size: int, parts: Keys, num_parts: int, ends: Integers,
    grouped: Matrix,
) -> None:  # fmt: skip
    """Copy columns[:3, start : start + size] in order of the part that each belongs to.

    Part c becomes grouped[:3, ends[c] : ends[c + 1]]; order within a part is kept. `ends` has room
    for num_parts + 2.
    """
    for c in range(num_parts + 2):
        ends[c] = 0
    for i in range(size):
        ends[parts[i] + 2] += 1
    for c in range(num_parts):
        ends[c + 2] += ends[c + 1]
    for i in range(size):
        place = ends[parts[i] + 1]
        ends[parts[i] + 1] = place + 1
        for r in range(3):
            grouped[r, place] = columns[r, start + i]


@kernel(inner=True)
def cells_of(columns: Matrix, start: int, size: int, num_cells: int, cells: Keys) -> None:
    """Divide the range of log-ratios, columns[0], into equal cells; write the cell of each."""
    lowest = columns[0, start]
    highest = lowest
    for i in range(start, start + size):
        value = columns[0, i]
        lowest = value if value < lowest else lowest
        highest = value if value > highest else highest
    scale = num_cells / (highest - lowest) if lowest < highest else 0.0
    for i in range(size):
        cells[i] = min(int((columns[0, start + i] - lowest) * scale), num_cells - 1)


@kernel(inner=True)
def sort_columns(columns: Matrix, start: int, stop: int) -> None:
    """Sort columns[:3, start:stop] by their first entry (Shell's sort)."""
    gap = 1
    while gap < (stop - start) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(start + gap, stop):
            first, second, third = columns[0, i], columns[1, i], columns[2, i]
            j = i
            while j >= start + gap and columns[0, j - gap] > first:
                for r in range(3):
                    columns[r, j] = columns[r, j - gap]
                j -= gap
            columns[0, j] = first
            columns[1, j] = second
            columns[2, j] = third
        gap //= 3


@kernel(inner=True)
def power(base: float, exponent: int) -> float:
    """Power min(base, 1) ** exponent: Q of a prefix with q(H) = base, with replacement."""
    base = min(base, 1.0)
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@kernel(inner=True)
def kink(
    lowest: float, highest: float, ratio_error: float, p_before: float, p_inside: float,
    q_before: float, q_inside: float,
) -> tuple[float, float, float]:  # fmt: skip
    """P and q at the kink of a group, and the share of the group's q up to there.

    The group holds masses p_inside and q_inside > 0 at ratios in [lowest, highest], known up to a
    factor 1 + ratio_error.
    """
    lowest *= 1.0 - ratio_error
    highest *= 1.0 + ratio_error
    q_kink = q_inside
    if highest < np.inf:
        q_kink = (highest * q_inside - p_inside) / (highest - lowest)
        q_kink = min(max(q_kink, 0.0), q_inside)
    return p_before + lowest * q_kink, q_before + q_kink, q_kink / q_inside


@kernel(inner=True)
def contained_at(exponent: int, q_mass: float, share: float, before: float, after: float) -> float:
    """Lower bound of Q at the kink, at q(H) = q_mass and this share of the group's q.

    `exponent` is the K of the power that Q is, or zero for the chord of Q from `before` the group
    to `after` it. The kink is the same for every K.
    """
    if exponent > 0:
        return power(q_mass, exponent)
    return before + (after - before) * share
