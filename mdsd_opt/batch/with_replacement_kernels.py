r"""Optimal acceptance of K drafts with replacement, without sorting.

.. math:: \alpha^* = 1 + \min_H \left[ P(H) - q(H)^K \right]

over the prefixes H of the tokens ordered by p/q ascending ([Hu25]). One pass distributes the tokens
over buckets of the log-ratio; the objective is then known at the ends of every bucket. Inside a
bucket the curve of P against q lies above both its end tangents, and minus a power is concave, so
the objective is at least its value at the ends or where the tangents meet. Only buckets whose bound
beats the best end are opened, and an opened group is divided in the same way until nothing is left
to gain: an exact answer, up to a certified slack of 1e-15.

Logits of 16 and 32 bits are weighed in float32 in the first pass, with a slack of 1e-9: their
rounding moves the result by at most 1e-7, and seldom by more than 1e-8. Sums are in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.batch.logit_kernels import (
    BLOCK,
    Side,
    row_side,
    stored_number,
    weigh_token,
)
from mdsd_opt.batch.single_precision_kernels import SINGLE_UNIT, weigh
from mdsd_opt.distributions import SMALLEST_PROBABILITY
from mdsd_opt.kernels.ratio_bucket_kernels import (
    CELLS,
    Grid,
    bucket_keys,
    bucket_ratios,
    cells_of,
    group_columns,
    kink,
    tokens_in,
)
from mdsd_opt.kernels.sum_kernels import lane_sum
from mdsd_opt.numba_cache import kernel

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]
Keys = NDArray[np.uint16]


class Tolerance(NamedTuple):
    """How well ratios are known, and the gain for which a group is not worth opening."""

    ratio_error: float
    slack: float


_SINGLE = Tolerance(1e-5, 1e-9)
_DOUBLE = Tolerance(1e-12, 1e-15)

_SORTED_DIRECTLY = 24  # opened groups up to this size are sorted, not divided

#: Tokens after which the running sums of the buckets are put aside and begun anew: adding equal
#: numbers always rounds the same way, and long runs of them are common (ties, bfloat16).
_RUN = 16 * BLOCK


@kernel
def with_replacement_rates(
    target: NDArray[Any],
    draft: NDArray[Any],
    is_half: bool,
    target_scale: float,
    draft_scale: float,
    num_drafts: Integers,
    rates: Matrix,
    totals: Matrix,
) -> None:
    """Acceptance rates of rows of logits; the arguments are those of `schemes.RowFunction`."""
    vocab_size = target.shape[1]
    grid = _grid(vocab_size, num_drafts.max())
    edges = bucket_ratios(grid)
    tolerance = _SINGLE if target.itemsize < 8 else _DOUBLE
    keys = np.empty(vocab_size, np.uint16)
    tokens = np.empty(vocab_size + 1, np.int32)
    sums = np.empty((grid.size, 2))
    before = np.empty((grid.size, 2))
    is_open = np.empty(grid.size, np.bool_)
    best = np.empty(num_drafts.size)
    for row in range(target.shape[0]):
        p = row_side(target[row], is_half, target_scale)
        q = row_side(draft[row], is_half, draft_scale)
        _fill_buckets(p, q, grid, keys, sums)
        for side in range(2):
            totals[row, side] = sums[:, side].sum()
            sums[:, side] /= totals[row, side]
        if not np.isfinite(totals[row]).all():
            continue
        factor = totals[row, 1] / totals[row, 0]  # from ratios of weights to probabilities
        best[:] = 0.0  # the empty prefix
        _scan_ends(sums, num_drafts, before, best)
        if _mark_open(sums, before, edges, factor, tolerance, num_drafts, best, is_open):
            count = tokens_in(keys, is_open, tokens)
            _search_open(p, q, keys, tokens[:count], sums, before, num_drafts, best)
        for j in range(best.size):
            rates[row, j] = max(1.0 + best[j], 0.0)


@kernel
def _grid(vocab_size: int, most_drafts: int) -> Grid:
    """Choose buckets so that the last one holds only ratios p/q of at least K.

    A row's weights sum to between 1 and vocab_size times the largest, so the log-ratio of weights
    and that of probabilities differ by at most log2(vocab_size). Ratios of K and more are never in
    the optimal prefix.
    """
    margin = np.log2(vocab_size) + 1.0
    first = -22.37 - margin  # no bucket edge at equal logits
    per_octave = min(32.0, max(4.0, np.sqrt(vocab_size) / 11.0))
    size = int(np.ceil((np.log2(most_drafts) + margin - first) * per_octave)) + 1
    return Grid(first, per_octave, size)


@kernel
def _fill_buckets(p: Side, q: Side, grid: Grid, keys: Keys, sums: Matrix) -> None:
    """Sum the weights of both rows in every bucket."""
    sums[:] = 0.0
    run = np.zeros_like(sums)
    # float64 for float64, else float32: the type of a number read from the row
    exponents = np.full((2, BLOCK), stored_number(p.row[0], p.is_half))
    weights = np.empty_like(exponents)
    for start in range(0, keys.size, BLOCK):
        size = min(BLOCK, keys.size - start)
        weigh(p, start, size, exponents[0], weights[0])
        weigh(q, start, size, exponents[1], weights[1])
        exponents[0] -= exponents[1]
        keys_here = keys[start : start + size]
        bucket_keys(exponents[0], grid, keys_here)
        for i in range(keys_here.size):
            key = keys_here[i]
            run[key, 0] += weights[0, i]
            run[key, 1] += weights[1, i]
        if (start + BLOCK) % _RUN == 0 or start + BLOCK >= keys.size:
            put_aside = sums.reshape(-1)  # flat, for the sake of vector instructions
            running = run.reshape(-1)
            for b in range(running.size):
                put_aside[b] += running[b]
                running[b] = 0.0
    if weights.itemsize == 4:
        sums *= SINGLE_UNIT


@kernel
def _power(base: float, exponent: int) -> float:
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@kernel
def _lower(best: Vector, num_drafts: Integers, p_mass: float, q_mass: float) -> None:
    """Account for one prefix."""
    for j in range(best.size):
        value = p_mass - _power(q_mass, num_drafts[j])
        best[j] = value if value < best[j] else best[j]


@kernel
def _scan_ends(sums: Matrix, num_drafts: Integers, before: Matrix, best: Vector) -> None:
    """Prefix masses before every bucket, and the least objective at the bucket ends."""
    p_mass = 0.0
    q_mass = 0.0
    for b in range(sums.shape[0]):
        before[b, 0] = p_mass
        before[b, 1] = q_mass
        if sums[b, 1] > 0.0:
            p_mass += sums[b, 0]
            q_mass += sums[b, 1]
            _lower(best, num_drafts, p_mass, q_mass)


@kernel
def _can_improve(
    lowest: float,
    highest: float,
    before: Vector,
    inside: Vector,
    num_drafts: Integers,
    tolerance: Tolerance,
    best: Vector,
) -> bool:
    """Whether a prefix that ends inside a group with ratios in [lowest, highest] may be better."""
    p_kink, q_kink = kink(lowest, highest, inside[0], inside[1], tolerance.ratio_error)
    for j in range(best.size):
        bound = before[0] + p_kink - _power(before[1] + q_kink, num_drafts[j])
        if bound < best[j] - tolerance.slack:
            return True
    return False


@kernel
def _mark_open(
    sums: Matrix,
    before: Matrix,
    edges: Vector,
    factor: float,
    tolerance: Tolerance,
    num_drafts: Integers,
    best: Vector,
    is_open: NDArray[np.bool_],
) -> bool:
    """Mark the buckets in which a better prefix may end; return whether there are any."""
    is_open[:] = False
    found = False
    for b in range(sums.shape[0] - 1):  # ratios in the last bucket are too large
        if sums[b, 1] > 0.0:
            is_open[b] = _can_improve(
                edges[b] * factor,
                edges[b + 1] * factor,
                before[b],
                sums[b],
                num_drafts,
                tolerance,
                best,
            )
            found |= is_open[b]
    return found


@kernel
def _search_open(
    p: Side,
    q: Side,
    keys: Keys,
    tokens: NDArray[np.int32],
    sums: Matrix,
    before: Matrix,
    num_drafts: Integers,
    best: Vector,
) -> None:
    """Weigh the tokens of the open buckets again and search each bucket for a better prefix.

    Here always in float64. Each bucket's weights are scaled to the sums already known, which may
    come from float32: near q(H) = 1 the objective would magnify any disagreement K times.
    """
    columns = np.empty((3, tokens.size))  # log-ratio, p, q of the weights
    buckets = np.empty(tokens.size, np.uint16)
    for i in range(tokens.size):
        p_exponent, columns[1, i] = weigh_token(p, tokens[i])
        q_exponent, columns[2, i] = weigh_token(q, tokens[i])
        columns[0, i] = p_exponent - q_exponent
        buckets[i] = keys[tokens[i]]
    spare = np.empty_like(columns)
    ends = np.empty(before.shape[0] + 1, np.int64)
    group_columns(columns, spare, buckets, ends)
    for b in range(before.shape[0]):
        if ends[b + 1] - ends[b] > 1:
            group = columns[:, ends[b] : ends[b + 1]]
            p_scale = sums[b, 0] / max(lane_sum(group[1]), SMALLEST_PROBABILITY)
            q_scale = sums[b, 1] / max(lane_sum(group[2]), SMALLEST_PROBABILITY)
            group[1] *= p_scale
            group[2] *= q_scale
            _search_group(group, spare, p_scale / q_scale, before[b], num_drafts, best)


@kernel
def _search_group(
    columns: Matrix,
    spare: Matrix,
    factor: float,
    before: Vector,
    num_drafts: Integers,
    best: Vector,
) -> None:
    """Lower `best` to the least objective of the prefixes that end inside a group.

    Groups are divided into cells of the log-ratio until they are ties, too small to matter, or
    few enough to sort. A stack holds the groups still to do: disjoint, and of two tokens or more.
    """
    size = columns.shape[1]
    stack = np.empty((size // 2 + 1, 2), np.int64)
    stack_before = np.empty((size // 2 + 1, 2))
    stack[0, :] = 0, size
    stack_before[0] = before
    height = 1
    ends = np.empty(CELLS + 1, np.int64)
    mass = np.empty(2)
    inside = np.empty(2)
    while height > 0:
        height -= 1
        start = stack[height, 0]
        group = columns[:, start : stack[height, 1]]
        mass[:] = stack_before[height]
        inside[0] = group[1].sum()
        inside[1] = group[2].sum()
        lowest = group[0].min()
        highest = group[0].max()
        if lowest == highest or not _can_improve(
            2.0**lowest * factor, 2.0**highest * factor, mass, inside, num_drafts, _DOUBLE, best
        ):
            continue
        if group.shape[1] <= _SORTED_DIRECTLY:
            for i in np.argsort(group[0]):
                mass += group[1:, i]
                _lower(best, num_drafts, mass[0], mass[1])
            continue
        group_columns(group, spare, cells_of(group[0], lowest, highest), ends)
        for cell in range(CELLS):
            part = group[1:, ends[cell] : ends[cell + 1]]
            if part.shape[1] > 1:
                stack[height, :] = start + ends[cell], start + ends[cell + 1]
                stack_before[height] = mass
                height += 1
            if part.shape[1] > 0:
                mass[0] += part[0].sum()
                mass[1] += part[1].sum()
                _lower(best, num_drafts, mass[0], mass[1])
