r"""Optimal acceptance of K drafts with replacement, without sorting.

.. math:: \alpha^* = 1 + \min_H \left[ P(H) - q(H)^K \right]

over the prefixes H of the tokens ordered by p/q ascending ([Hu25]). One pass distributes the tokens
over buckets; the objective is then known at the ends of every bucket, and bounded inside
(`bucket_kernels`). Only buckets whose bound beats the best end are opened, and an opened group is
divided in the same way until nothing is left to gain: an exact answer, up to a certified slack of
1e-15.

Buckets are even in t = p / (p + c q), which has the order of p/q and is bounded: what an end may
miss depends on the absolute width of a bucket in p/q, where this is near one.

Logits of 16 and 32 bits are weighed in float32 in the first pass, with a slack of 1e-9: their
rounding moves the result by at most 1e-7, and seldom by more than 1e-8. Sums are in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Integers, Keys, Matrix, Vector
from mdsd_opt.base.distributions import SMALLEST_PROBABILITY
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.bucket_kernels import (
    CELLS,
    cells_of,
    even_keys,
    group_columns,
    kink,
    power,
    sort_columns,
    tokens_in,
)
from mdsd_opt.prefix_search.sum_kernels import BLOCK, add_to_columns
from mdsd_opt.prefix_search.weigh_kernels import (
    SINGLE_UNIT,
    exponent_of,
    largest_logit,
    offset_of,
    scaled_exp2,
    weigh_block,
)

# Error of t, gain for which a group is not worth opening, and largest weight (up to a factor of
# 1.5), by the precision of weights.
SINGLE = (4e-7, 1e-9, 2.0**52 / SINGLE_UNIT)
DOUBLE = (1e-12, 1e-15, 2.0**52)

#: Relative error of ratios within a bucket.
_RATIO_ERROR = 1e-12

#: Factor c between probabilities. The best cut is at p/q between zero and K.
_C = 2.0

#: Number of blocks of which one is weighed, to estimate c between weights.
_SAMPLED = 16

#: Share of the tokens in open buckets from which one draft is settled by a pass over all of them.
_MOST = 0.25

_SORTED_DIRECTLY = 24  # opened groups up to this size are sorted, not divided

#: Number of tokens after which the running sums of the buckets are put aside and begun anew: adding
#: equal numbers always rounds the same way, and long runs of them are common (ties, bfloat16).
_RUN = 16 * BLOCK

# Rows of groups of tokens: what is inside, the sums over all groups before, the extreme ratios (of
# cells, their logarithms at first), the kink (`bucket_kernels`), and room.
_P, _Q, _P_BEFORE, _Q_BEFORE, _LOWEST, _HIGHEST, _P_KINK, _Q_KINK, _POWER, _SQUARE = range(10)
GROUP_ROWS = 10


@kernel
def rates_of_rows(
    target: NDArray[Any], draft: NDArray[Any], target_scale: float, draft_scale: float,
    num_drafts: Integers, bounds: Matrix, slack: float, largest_weight: float, rates: Matrix,
    totals: Matrix, block: NDArray[Any], keys: Keys, tokens: NDArray[np.int32], columns: Matrix,
    grouped: Matrix, run: Matrix, buckets: Matrix, cells: Matrix, ends: Integers,
    is_open: Flags, marks: NDArray[np.uint8], best: Vector,
) -> None:  # fmt: skip
    """Write the rates, with the given buffers. `bounds` are those of `even_buckets`."""
    num_buckets = is_open.size
    for row in range(target.shape[0]):
        p_row, q_row = target[row], draft[row]
        p_largest = largest_logit(p_row, block[0])
        q_largest = largest_logit(q_row, block[0])
        steps = block[3]  # in the precision of the weights
        steps[0] = _C * (
            _rough_total(p_row, p_largest, target_scale, largest_weight, block)
            / _rough_total(q_row, q_largest, draft_scale, largest_weight, block)
        )
        steps[1] = num_buckets
        steps[2] = num_buckets - 1
        steps[3] = 0.0
        _fill_buckets(
            p_row, q_row, p_largest, q_largest, target_scale, draft_scale, steps, block, keys,
            run, buckets,
        )  # fmt: skip
        p_total = 0.0
        q_total = 0.0
        for b in range(num_buckets):
            p_total += buckets[_P, b]
            q_total += buckets[_Q, b]
        totals[row, 0] = p_total
        totals[row, 1] = q_total
        if not (np.isfinite(p_total) and np.isfinite(q_total)):
            continue
        factor = steps[0] * q_total / p_total  # from ratios of weights to probabilities
        for b in range(num_buckets):
            buckets[_P, b] /= p_total
            buckets[_Q, b] /= q_total
            buckets[_LOWEST, b] = bounds[0, b] * factor
            buckets[_HIGHEST, b] = bounds[1, b] * factor
        for j in range(best.size):
            best[j] = 0.0  # the empty prefix
        _scan_ends(buckets, 0.0, 0.0, num_drafts, best)
        lacking = np.inf
        if _doubt_groups(buckets, 0.0, slack, num_drafts, best, is_open):
            count = tokens_in(keys, is_open, marks, tokens)
            if count > _MOST * keys.size and _asks_for_one(num_drafts):  # p is nearly q
                lacking = _lacking_mass(
                    p_row, q_row, p_largest, q_largest, target_scale, draft_scale, p_total, q_total,
                    block,
                )  # fmt: skip
                _settle_one_draft(num_drafts, -np.inf, best)
                _doubt_groups(buckets, 0.0, slack, num_drafts, best, is_open)
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
                        columns, cells, ends[1], is_open,
                    )  # fmt: skip
        if lacking <= 0.0:
            _settle_one_draft(num_drafts, lacking, best)
        for j in range(best.size):
            rates[row, j] = max(1.0 + best[j], 0.0)


@kernel(inner=True)
def _lacking_mass(
    p_row: NDArray[Any], q_row: NDArray[Any], p_largest: float, q_largest: float, p_scale: float,
    q_scale: float, p_total: float, q_total: float, block: NDArray[Any],
) -> float:  # fmt: skip
    """Sum of min(p - q, 0), the least objective for one draft."""
    total = 0.0
    for start in range(0, p_row.size, BLOCK):
        p_here, q_here = p_row[start : start + BLOCK], q_row[start : start + BLOCK]
        weigh_block(p_here, p_largest, p_scale, block[2], block[0])
        weigh_block(q_here, q_largest, q_scale, block[2], block[1])
        total += _sum_below(block[0][: p_here.size], block[1], 1.0 / p_total, 1.0 / q_total)
    return total


@kernel(reassociate=True, inner=True)
def _sum_below(p: NDArray[Any], q: NDArray[Any], p_unit: float, q_unit: float) -> float:
    total = 0.0
    for i in range(p.size):
        excess = p[i] * p_unit - q[i] * q_unit
        total += excess if excess < 0.0 else 0.0
    return total


@kernel(inner=True)
def _asks_for_one(num_drafts: Integers) -> bool:
    """Whether one draft is asked for, without `min`: numba would load SciPy in every process."""
    for k in num_drafts:
        if k == 1:
            return True
    return False


@kernel(inner=True)
def _settle_one_draft(num_drafts: Integers, value: float, best: Vector) -> None:
    for j in range(best.size):
        if num_drafts[j] == 1:
            best[j] = value


@kernel(inner=True)
def _rough_total(
    row: NDArray[Any], largest: float, scale: float, largest_weight: float, block: NDArray[Any]
) -> float:
    """Estimated sum of the weights of a row, from one block of tokens in sixteen.

    Each token stands for sixteen, but no heavy one: the heaviest is counted apart.
    """
    weights = block[0]
    limit = largest_weight / _SAMPLED
    total = 0.0
    for start in range(0, row.size, _SAMPLED * BLOCK):
        here = row[start : start + BLOCK]
        weigh_block(here, largest, scale, block[1], weights)
        total += _sum_up_to(weights[: here.size], limit)
    return largest_weight + _SAMPLED * total


@kernel(reassociate=True, inner=True)
def _sum_up_to(weights: NDArray[Any], limit: float) -> float:
    """Sum of the weights, each cut off at a limit."""
    total = 0.0
    for i in range(weights.size):
        weight = np.float64(weights[i])
        total += weight if weight < limit else limit
    return total


@kernel(inner=True)
def _fill_buckets(
    p_row: NDArray[Any], q_row: NDArray[Any], p_largest: float, q_largest: float, p_scale: float,
    q_scale: float, steps: NDArray[Any], block: NDArray[Any], keys: Keys, run: Matrix,
    buckets: Matrix,
) -> None:  # fmt: skip
    """Sum the weights of both rows in every bucket. `run` is zero before and after."""
    p_weights, q_weights, scratch = block[0], block[1], block[2]
    for b in range(run.shape[0]):
        buckets[_P, b] = 0.0
        buckets[_Q, b] = 0.0
    for start in range(0, keys.size, BLOCK):
        stop = min(start + BLOCK, keys.size)
        keys_here = keys[start:stop]
        weigh_block(p_row[start:stop], p_largest, p_scale, scratch, p_weights)
        weigh_block(q_row[start:stop], q_largest, q_scale, scratch, q_weights)
        even_keys(p_weights, q_weights, steps, keys_here)
        for i in range(keys_here.size):
            add_to_columns(run, keys_here[i], p_weights[i], q_weights[i])
        if stop % _RUN == 0 or stop == keys.size:
            for b in range(run.shape[0]):
                buckets[_P, b] += run[b, 0]
                buckets[_Q, b] += run[b, 1]
                run[b, 0] = 0.0
                run[b, 1] = 0.0


@kernel(inner=True)
def _scan_ends(
    groups: Matrix, p_mass: float, q_mass: float, num_drafts: Integers, best: Vector
) -> None:
    """Write masses before every group; find the least objective of prefixes that end with one."""
    for g in range(groups.shape[1]):
        groups[_P_BEFORE, g] = p_mass
        groups[_Q_BEFORE, g] = q_mass
        if groups[_Q, g] > 0.0:
            p_mass += groups[_P, g]
            q_mass += groups[_Q, g]
        groups[_P_KINK, g] = p_mass
        groups[_Q_KINK, g] = q_mass
    for j in range(best.size):
        _raise_to_power(groups, num_drafts[j])
        values = groups[_SQUARE]
        for g in range(values.size):
            values[g] = groups[_P_KINK, g] - groups[_POWER, g]
        least = _least(values)
        best[j] = least if least < best[j] else best[j]


@kernel(inner=True)
def _least(values: Vector) -> float:
    """Least of some numbers, which are overwritten: halves against each other, as vectors."""
    size = values.size
    while size > 1:
        half = (size + 1) // 2
        for i in range(size - half):
            other = values[half + i]
            values[i] = other if other < values[i] else values[i]
        size = half
    return values[0]


@kernel(inner=True)
def _raise_to_power(groups: Matrix, exponent: int) -> None:
    """Compute `bucket_kernels.power` of the masses of q in one row, for all groups at once."""
    base = groups[_Q_KINK]
    square = groups[_SQUARE]
    result = groups[_POWER]
    for g in range(base.size):
        square[g] = base[g] if base[g] < 1.0 else 1.0
        result[g] = 1.0
    while exponent > 0:
        if exponent & 1:
            for g in range(base.size):
                result[g] *= square[g]
        exponent >>= 1
        if exponent > 0:
            for g in range(base.size):
                square[g] *= square[g]


@kernel(inner=True)
def _doubt_groups(
    groups: Matrix, ratio_error: float, slack: float, num_drafts: Integers, best: Vector,
    is_doubtful: Flags,
) -> bool:  # fmt: skip
    """Flag the groups inside which a prefix may end that is better; return if there are any."""
    for g in range(groups.shape[1]):
        groups[_P_KINK, g], groups[_Q_KINK, g], _ = kink(
            groups[_LOWEST, g], groups[_HIGHEST, g], ratio_error, groups[_P_BEFORE, g],
            groups[_P, g], groups[_Q_BEFORE, g], groups[_Q, g],
        )  # fmt: skip
        is_doubtful[g] = False
    for j in range(best.size):
        _raise_to_power(groups, num_drafts[j])
        enough = best[j] - slack
        for g in range(groups.shape[1]):
            is_doubtful[g] |= groups[_P_KINK, g] - groups[_POWER, g] < enough
    found = False
    for g in range(groups.shape[1]):
        # Within ties the objective is concave: the ends decide.
        is_doubtful[g] &= (groups[_Q, g] > 0.0) & (groups[_LOWEST, g] < groups[_HIGHEST, g])
        found |= is_doubtful[g]
    return found


@kernel(inner=True)
def _search_bucket(
    tokens: Matrix, start: int, stop: int, buckets: Matrix, b: int, num_drafts: Integers,
    best: Vector, parts: Keys, spare: Matrix, cells: Matrix, ends: Integers,
    is_open: Flags,
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
    p_scale = buckets[_P, b] / max(p_total, SMALLEST_PROBABILITY)
    q_scale = buckets[_Q, b] / max(q_total, SMALLEST_PROBABILITY)
    for i in range(start, stop):
        tokens[1, i] *= p_scale
        tokens[2, i] *= q_scale
    p_before = buckets[_P_BEFORE, b]
    q_before = buckets[_Q_BEFORE, b]
    if stop - start <= _SORTED_DIRECTLY:
        _walk_tokens(tokens, start, stop, p_before, q_before, num_drafts, best)
        return
    cells_of(tokens, start, stop - start, CELLS, parts)
    group_columns(tokens, start, stop - start, parts, CELLS, ends, spare)
    factor = p_scale / q_scale
    for c in range(CELLS):
        p_mass = 0.0
        q_mass = 0.0
        lowest = np.inf
        highest = -np.inf
        for i in range(ends[c], ends[c + 1]):
            p_mass += spare[1, i]
            q_mass += spare[2, i]
            lowest = min(lowest, spare[0, i])
            highest = max(highest, spare[0, i])
        cells[_P, c] = p_mass
        cells[_Q, c] = q_mass
        cells[_LOWEST, c] = 2.0**lowest * factor
        cells[_HIGHEST, c] = 2.0**highest * factor
    _scan_ends(cells, p_before, q_before, num_drafts, best)
    _doubt_groups(cells, _RATIO_ERROR, DOUBLE[1], num_drafts, best, is_open)
    for c in range(CELLS):
        if is_open[c]:
            _walk_tokens(
                spare, ends[c], ends[c + 1], cells[_P_BEFORE, c], cells[_Q_BEFORE, c], num_drafts,
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
        for j in range(best.size):
            value = p_mass - power(q_mass, num_drafts[j])
            best[j] = value if value < best[j] else best[j]
