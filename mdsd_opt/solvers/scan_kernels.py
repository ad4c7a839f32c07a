"""Passes over the vocabulary: over prefixes, and against a linear form of the models."""

from __future__ import annotations

import numpy as np

from mdsd_opt.base.arrays import Flags, Floats, Integers, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search import BLOCK, block_sum, octave_keys


@kernel
def smallest_prefix_difference(p: Floats, contained: Floats) -> tuple[float, int]:
    """Minimum over j of P_j - Q_j and the first j that attains it.

    p is in prefix order, shape (n,); contained holds Q of every prefix, shape (n + 1,). The sum P_j
    is compensated (Neumaier), so it is exact to rounding at any length.
    """
    best = -contained[0]
    best_length = 0
    total = 0.0
    lost = 0.0
    for j in range(p.size):
        x = p[j]
        new_total = total + x
        if total >= x:
            lost += (total - new_total) + x
        else:
            lost += (x - new_total) + total
        total = new_total
        difference = (total + lost) - contained[j + 1]
        if difference < best:
            best = difference
            best_length = j + 1
    return best, best_length


_SHIFT = 48  # of a float64: leaves sign, exponent and 4 bits of the fraction
_LOWEST = (1023 - 28) << 4  # these bits of 2**-28
#: Number of buckets of ratios below one, 16 to an octave.
NUM_BUCKETS = 28 << 4


@kernel
def sum_ratio_buckets(p: Vector, q: Matrix, slopes: Vector, sums: Matrix) -> None:
    """Add the rows of q, shape (R, V), and p to sums over buckets of p / (slopes . q) < 1.

    `sums` is of shape (NUM_BUCKETS + 1, R + 1), its last row for ratios that are not below one.
    """
    for b in range(sums.shape[0]):
        for r in range(sums.shape[1]):
            sums[b, r] = 0.0
    mixed, ratios, keys = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK, np.uint16)
    ends = 0, NUM_BUCKETS, 0, NUM_BUCKETS
    for start in range(0, p.size, BLOCK):
        here = p[start : start + BLOCK]
        _combine(q, slopes, start, mixed[: here.size])
        octave_keys(here, mixed, ratios, _SHIFT, 0, _LOWEST, ends, keys[: here.size])
        for i in range(here.size):
            bucket = keys[i]
            for r in range(q.shape[0]):
                sums[bucket, r] += q[r, start + i]
            sums[bucket, q.shape[0]] += here[i]


@kernel
def below_threshold(p: Vector, q: Matrix, slopes: Vector, is_below: Flags, sums: Vector) -> None:
    """Mark the tokens with p < slopes . q; write sums of the R rows of q and of p over them."""
    for r in range(sums.size):
        sums[r] = 0.0
    num_rows = q.shape[0]
    marked = np.empty(BLOCK)
    for start in range(0, p.size, BLOCK):
        here = p[start : start + BLOCK]
        _combine(q, slopes, start, marked[: here.size])
        marks = is_below[start : start + BLOCK]
        for i in range(here.size):
            marks[i] = here[i] < marked[i]
        for r in range(num_rows + 1):
            row = q[r] if r < num_rows else p
            values = row[start : start + BLOCK]
            for i in range(here.size):
                marked[i] = values[i] if marks[i] else 0.0
            sums[r] += block_sum(marked, 0, here.size)


@kernel
def near_threshold(p: Vector, q: Matrix, slopes: Vector, curvature: float, tokens: Integers) -> int:
    """Write the tokens with |p - slopes . q| <= curvature (sum of q)^2; return their number."""
    count = 0
    ones = np.ones(slopes.size)
    linear, total = np.empty(BLOCK), np.empty(BLOCK)
    for start in range(0, p.size, BLOCK):
        here = p[start : start + BLOCK]
        _combine(q, slopes, start, linear[: here.size])
        _combine(q, ones, start, total[: here.size])
        for i in range(here.size):
            total[i] = curvature * total[i] * total[i] - abs(here[i] - linear[i])
        for i in range(here.size):
            if total[i] >= 0.0:
                tokens[count] = start + i
                count += 1
    return count


@kernel(contract=True, inner=True)
def _combine(q: Matrix, slopes: Vector, start: int, combined: Vector) -> None:
    """Compute slopes . q for as many tokens as there is room for."""
    for i in range(combined.size):
        combined[i] = 0.0
    for r in range(slopes.size):
        slope = slopes[r]
        row = q[r, start : start + combined.size]
        for i in range(combined.size):
            combined[i] += slope * row[i]


@kernel
def take_columns(q: Matrix, tokens: Integers, taken: Matrix) -> None:
    """Copy taken[i] = q[:, tokens[i]]."""
    for r in range(q.shape[0]):
        row = q[r]
        for i in range(tokens.size):
            taken[i, r] = row[tokens[i]]
