r"""Optimal acceptance of K drafts with replacement, without sorting.

.. math:: \alpha^* = 1 + \min_H \left[ P(H) - q(H)^K \right]

over the prefixes H of the tokens ordered by p/q ascending ([Hu25]). One pass distributes the tokens
over buckets of the log-ratio; the objective is then known at the ends of every bucket, and bounded
inside (`bound_kernels`). Only buckets whose bound beats the best end are opened, and an opened
group is divided in the same way until nothing is left to gain: an exact answer, up to a certified
slack of 1e-15.

Logits of 16 and 32 bits are weighed in float32 in the first pass, with a slack of 1e-9: their
rounding moves the result by at most 1e-7, and seldom by more than 1e-8. Sums are in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.distributions import SMALLEST_PROBABILITY
from mdsd_opt.numba_cache import kernel
from mdsd_opt.prefix_search.bound_kernels import contained_at, kink, power
from mdsd_opt.prefix_search.bucket_kernels import (
    CELLS,
    bucket_keys,
    cells_of,
    group_columns,
    sort_columns,
    tokens_in,
)
from mdsd_opt.prefix_search.exp2_kernels import scaled_exp2
from mdsd_opt.prefix_search.pair_kernels import add_pair
from mdsd_opt.prefix_search.sum_kernels import BLOCK
from mdsd_opt.prefix_search.weigh_kernels import exponent_of, largest_logit, offset_of
from mdsd_opt.prefix_search.weigh_single_kernels import weigh_block

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]
Keys = NDArray[np.uint16]

# How well ratios are known, and the gain for which a group is not worth opening.
SINGLE = (1e-5, 1e-9)
DOUBLE = (1e-12, 1e-15)

_SORTED_DIRECTLY = 24  # opened groups up to this size are sorted, not divided

#: Tokens after which the running sums of the buckets are put aside and begun anew: adding equal
#: numbers always rounds the same way, and long runs of them are common (ties, bfloat16).
_RUN = 16 * BLOCK

# Columns of groups of tokens: what is inside, and the sums over all groups before.
_P, _Q, _P_BEFORE, _Q_BEFORE = 0, 1, 2, 3
_LOWEST, _HIGHEST = 4, 5  # of cells: extreme log-ratios


@kernel
def rates_of_rows(
    target: NDArray[Any], draft: NDArray[Any], target_scale: float, draft_scale: float,
    num_drafts: Integers, grid: NDArray[Any], edges: Vector, ratio_error: float, slack: float,
    rates: Matrix, totals: Matrix, block: NDArray[Any], keys: Keys, tokens: NDArray[np.int32],
    columns: Matrix, grouped: Matrix, run: Matrix, buckets: Matrix, cells: Matrix, ends: Integers,
    is_open: NDArray[np.bool_], marks: NDArray[np.uint8], best: Vector,
) -> None:  # fmt: skip
    """The rates, in the room given for the work."""
    num_buckets = is_open.size
    for row in range(target.shape[0]):
        p_row, q_row = target[row], draft[row]
        p_largest = largest_logit(p_row, columns[0])
        q_largest = largest_logit(q_row, columns[0])
        _fill_buckets(
            p_row, q_row, p_largest, q_largest, target_scale, draft_scale, grid, block, keys,
            run, buckets,
        )  # fmt: skip
        p_total = 0.0
        q_total = 0.0
        for b in range(num_buckets):
            p_total += buckets[b, _P]
            q_total += buckets[b, _Q]
        totals[row, 0] = p_total
        totals[row, 1] = q_total
        if not (np.isfinite(p_total) and np.isfinite(q_total)):
            continue
        for b in range(num_buckets):
            buckets[b, _P] /= p_total
            buckets[b, _Q] /= q_total
        for j in range(best.size):
            best[j] = 0.0  # the empty prefix
        _scan_ends(buckets, num_buckets, 0.0, 0.0, num_drafts, best)

        factor = q_total / p_total  # from ratios of weights to probabilities
        found = False
        for b in range(num_buckets):
            is_open[b] = b + 1 < num_buckets and _can_improve(
                edges[b] * factor, edges[b + 1] * factor, buckets, b, ratio_error, slack,
                num_drafts, best,
            )  # fmt: skip
            found |= is_open[b]
        if found:
            count = tokens_in(keys, is_open, marks, tokens)
            p_offset = offset_of(p_largest, target_scale)
            q_offset = offset_of(q_largest, draft_scale)
            for i in range(count):  # weigh them again, now in float64 whatever they are stored in
                token = tokens[i]
                p_exponent = exponent_of(p_row[token], p_largest, target_scale, p_offset)
                q_exponent = exponent_of(q_row[token], q_largest, draft_scale, q_offset)
                columns[0, i] = p_exponent - q_exponent
                columns[1, i] = scaled_exp2(p_exponent)
                columns[2, i] = scaled_exp2(q_exponent)
                keys[i] = keys[token]
            group_columns(columns, 0, count, keys, num_buckets, ends[0], grouped)
            for b in range(num_buckets):
                if ends[0, b + 1] - ends[0, b] > 1:
                    _search_bucket(
                        grouped, ends[0, b], ends[0, b + 1], buckets, b, num_drafts, best, keys,
                        columns, cells, ends[1],
                    )  # fmt: skip
        for j in range(best.size):
            rates[row, j] = max(1.0 + best[j], 0.0)


@kernel(inner=True)
def _fill_buckets(
    p_row: NDArray[Any], q_row: NDArray[Any], p_largest: float, q_largest: float, p_scale: float,
    q_scale: float, grid: NDArray[Any], block: NDArray[Any], keys: Keys, run: Matrix,
    buckets: Matrix,
) -> None:  # fmt: skip
    """Sum the weights of both rows in every bucket. `run` is zero before and after."""
    p_exponents, p_weights, q_exponents, q_weights = block[0], block[1], block[2], block[3]
    for b in range(run.shape[0]):
        buckets[b, _P] = 0.0
        buckets[b, _Q] = 0.0
    for start in range(0, keys.size, BLOCK):
        stop = min(start + BLOCK, keys.size)
        keys_here = keys[start:stop]
        weigh_block(p_row[start:stop], p_largest, p_scale, p_exponents, p_weights)
        weigh_block(q_row[start:stop], q_largest, q_scale, q_exponents, q_weights)
        for i in range(keys_here.size):
            p_exponents[i] -= q_exponents[i]
        bucket_keys(p_exponents, grid, keys_here)
        for i in range(keys_here.size):
            add_pair(run, keys_here[i], p_weights[i], q_weights[i])
        if stop % _RUN == 0 or stop == keys.size:
            for b in range(run.shape[0]):
                buckets[b, _P] += run[b, 0]
                buckets[b, _Q] += run[b, 1]
                run[b, 0] = 0.0
                run[b, 1] = 0.0


@kernel(inner=True)
def _scan_ends(
    groups: Matrix, num_groups: int, p_mass: float, q_mass: float, num_drafts: Integers,
    best: Vector,
) -> None:  # fmt: skip
    """Masses before every group, and the least objective of the prefixes that end with one."""
    for g in range(num_groups):
        groups[g, _P_BEFORE] = p_mass
        groups[g, _Q_BEFORE] = q_mass
        if groups[g, _Q] > 0.0:
            p_mass += groups[g, _P]
            q_mass += groups[g, _Q]
            _lower(best, num_drafts, p_mass, q_mass)


@kernel(inner=True)
def _lower(best: Vector, num_drafts: Integers, p_mass: float, q_mass: float) -> None:
    """Account for one prefix."""
    for j in range(best.size):
        value = p_mass - power(q_mass, num_drafts[j])
        best[j] = value if value < best[j] else best[j]


@kernel(inner=True)
def _can_improve(
    lowest: float, highest: float, groups: Matrix, g: int, ratio_error: float, slack: float,
    num_drafts: Integers, best: Vector,
) -> bool:  # fmt: skip
    """Whether a prefix that ends inside a group with ratios in [lowest, highest] may be better."""
    if groups[g, _Q] == 0.0:
        return False
    p_mass, q_mass, share = kink(
        lowest, highest, ratio_error, groups[g, _P_BEFORE], groups[g, _P], groups[g, _Q_BEFORE],
        groups[g, _Q],
    )  # fmt: skip
    p_mass += slack
    for j in range(best.size):
        if p_mass - contained_at(num_drafts[j], q_mass, share, 0.0, 1.0) < best[j]:
            return True
    return False


@kernel(inner=True)
def _search_bucket(
    tokens: Matrix, start: int, stop: int, buckets: Matrix, b: int, num_drafts: Integers,
    best: Vector, parts: Keys, spare: Matrix, cells: Matrix, ends: Integers,
) -> None:  # fmt: skip
    """Lower `best` to the least objective of the prefixes that end inside a bucket.

    Its weights are scaled to the sums already known, which may come from float32: near q(H) = 1 the
    objective would magnify any disagreement K times. The bucket is divided into cells of the
    log-ratio, and the tokens of those that may matter are sorted.
    """
    p_total = 0.0
    q_total = 0.0
    for i in range(start, stop):
        p_total += tokens[1, i]
        q_total += tokens[2, i]
    p_scale = buckets[b, _P] / max(p_total, SMALLEST_PROBABILITY)
    q_scale = buckets[b, _Q] / max(q_total, SMALLEST_PROBABILITY)
    for i in range(start, stop):
        tokens[1, i] *= p_scale
        tokens[2, i] *= q_scale
    p_before = buckets[b, _P_BEFORE]
    q_before = buckets[b, _Q_BEFORE]
    if stop - start <= _SORTED_DIRECTLY:
        _walk_tokens(tokens, start, stop, p_before, q_before, num_drafts, best)
        return
    cells_of(tokens, start, stop - start, CELLS, parts)
    group_columns(tokens, start, stop - start, parts, CELLS, ends, spare)
    for c in range(CELLS):
        cells[c, _P] = 0.0
        cells[c, _Q] = 0.0
        cells[c, _LOWEST] = np.inf
        cells[c, _HIGHEST] = -np.inf
        for i in range(ends[c], ends[c + 1]):
            cells[c, _P] += spare[1, i]
            cells[c, _Q] += spare[2, i]
            cells[c, _LOWEST] = min(cells[c, _LOWEST], spare[0, i])
            cells[c, _HIGHEST] = max(cells[c, _HIGHEST], spare[0, i])
    _scan_ends(cells, CELLS, p_before, q_before, num_drafts, best)
    factor = p_scale / q_scale
    ratio_error, slack = DOUBLE
    for c in range(CELLS):
        lowest = cells[c, _LOWEST]
        highest = cells[c, _HIGHEST]
        # Within ties the objective is concave: the ends decide.
        if lowest < highest and _can_improve(
            2.0**lowest * factor, 2.0**highest * factor, cells, c, ratio_error, slack, num_drafts,
            best,
        ):  # fmt: skip
            _walk_tokens(
                spare, ends[c], ends[c + 1], cells[c, _P_BEFORE], cells[c, _Q_BEFORE], num_drafts,
                best,
            )  # fmt: skip


@kernel(inner=True)
def _walk_tokens(
    tokens: Matrix, start: int, stop: int, p_mass: float, q_mass: float, num_drafts: Integers,
    best: Vector,
) -> None:  # fmt: skip
    """Sort tokens by their ratio and account for every prefix."""
    sort_columns(tokens, start, stop)
    for i in range(start, stop):
        p_mass += tokens[1, i]
        q_mass += tokens[2, i]
        _lower(best, num_drafts, p_mass, q_mass)
