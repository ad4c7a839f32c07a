r"""Optimal acceptance of K drafts without replacement, without sorting.

.. math:: \alpha^* = 1 + \min_H \left[ P(H) - Q(H) \right]

over the prefixes H of the tokens ordered by p/q ascending ([Hu25]), with Q by the race of
`race_kernels`. Tokens are collected in buckets of the log-ratio, and the objective is computed at
the ends of every bucket. One whose bound inside (`bucket_kernels`) does not beat the best end is
closed. The others are divided once more in the same way, and what then remains open is sorted. A
group is looked into for those K alone for which it is open.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Floats, Integers, Keys, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.bucket_kernels import (
    CELLS,
    bucket_keys,
    cells_of,
    contained_at,
    group_columns,
    kink,
    sort_columns,
    tokens_in,
)
from mdsd_opt.prefix_search.race_group_kernels import (
    P,
    Q,
    add_group,
    collect_groups,
    copy_race,
    run_race,
)
from mdsd_opt.prefix_search.race_kernels import (
    MAX_RACE_WORK,
    RACE_ROWS,
    add_token,
    escape,
    fill_terms,
    most_heavy,
    race_terms,
    race_work,
    rates_beside,
    start_race,
)
from mdsd_opt.prefix_search.sum_kernels import range_sum
from mdsd_opt.prefix_search.weigh_kernels import drop_impossible, likeliest_tokens, weigh_row

#: Least decrease of the minimum for which a group of tokens is kept open.
_SLACK = 1e-14

#: Relative error of ratios: a few rounding errors.
_RATIO_ERROR = 1e-12

_SORTED_DIRECTLY = 64  # opened groups up to this size are sorted, not divided

#: Most numbers kept of the states before a bucket's cells: the more of them, the fewer cells.
_STATES = 1 << 19


@kernel
def rates_of_rows(
    target: NDArray[Any], draft: NDArray[Any], target_scale: float, draft_scale: float,
    num_drafts: Integers, grid: Vector, edges: Vector, rates: Matrix, totals: Matrix,
    columns: Matrix, opened: Matrix, spare: Matrix, keys: Keys, tokens: NDArray[np.int32],
    sums: Floats, masses: Matrix, escapes: Floats, ends: Integers,
    heavy: Matrix, chains: Integers, subsets: Integers, likeliest: Integers,
    is_open: Flags, marks: NDArray[np.uint8], work: Matrix,
) -> tuple[int, int, float]:  # fmt: skip
    """Write rates up to the first row that takes too long; return its tokens, drafts, slowest rate.

    The numbers of drafts ascend. All else is room for the work, much of it for buckets and, behind
    these, for the cells of one.
    """
    log_ratios, p, q, exponents = columns[0], columns[1], columns[2], spare[0]
    num_buckets = is_open.size
    all_places, bucket_places, bucket_drafts = subsets[0], subsets[1], subsets[2]
    best = work[0]
    sums_of, p_mass, outside, escaped = sums[0, :num_buckets], masses[0], masses[1], escapes[0]
    first_heavy, bucket_ends = ends[0], ends[1]
    for row in range(target.shape[0]):
        p_total = weigh_row(target[row], target_scale, log_ratios, p)
        q_total = weigh_row(draft[row], draft_scale, exponents, q)
        totals[row, 0] = p_total
        totals[row, 1] = q_total
        if not (np.isfinite(p_total) and np.isfinite(q_total)):
            continue
        support = drop_impossible(q, q_total)
        count = 0
        while count < num_drafts.size and num_drafts[count] < support:
            count += 1
        most = num_drafts[count - 1] if count > 0 else 1
        num_heavy = most_heavy(support, most)
        if race_work(num_heavy, most, 1.0) > MAX_RACE_WORK:  # before anything takes time
            return num_heavy, most, 1.0
        likeliest_tokens(exponents, q, most, likeliest)
        _normalise(log_ratios, exponents, p, q, p_total, q_total)
        if count < num_drafts.size:  # the drafts are all the tokens there are
            certain = min(range_sum(p, 0, p.size), 1.0)
            for j in range(count, num_drafts.size):
                rates[row, j] = certain
        if count == 0:
            continue

        slowest, others = rates_beside(q, likeliest, most)
        if race_work(num_heavy, most, slowest) > MAX_RACE_WORK:
            return num_heavy, most, slowest
        light_rate, step, first, nodes = race_terms(slowest, most, False)
        num_cells = CELLS if nodes == 0 else max(min(CELLS, _STATES // (most * nodes)), 4)
        table = np.empty((RACE_ROWS + (num_cells + 3) * most, nodes))
        race = table[: RACE_ROWS + most]
        rang = table[RACE_ROWS + most : RACE_ROWS + 2 * most]
        states = table[RACE_ROWS + 2 * most :]
        fill_terms(race, light_rate, step, first)

        bucket_keys(log_ratios, grid, keys)
        collect_groups(
            p, q, keys, light_rate, sums[1, :num_buckets], sums_of, first_heavy, chains[0],
            heavy[0],
        )  # fmt: skip
        for j in range(count):
            all_places[j] = j
            best[j] = 0.0  # the empty prefix
        p_mass[0] = 0.0
        outside[num_buckets] = 0.0
        start_race(rang, most)
        _scan_ends(
            sums_of, first_heavy, chains[0], heavy[0], rang, 0.0, light_rate, others, race,
            num_drafts, all_places, count, p_mass, outside, escaped, best, states, 0, masses[2],
        )  # fmt: skip
        last_open = -1
        for b in range(num_buckets):
            is_open[b] = 0 < _opened_for(
                edges[b], edges[b + 1], sums_of, p_mass, escaped, b, num_drafts, all_places, count,
                best, bucket_drafts, bucket_places,
            )  # fmt: skip
            if is_open[b]:
                last_open = b
        if last_open >= 0:
            num_open = tokens_in(keys, is_open, marks, tokens)
            for i in range(num_open):
                token = tokens[i]
                for r in range(3):
                    spare[r, i] = columns[r, token]
                keys[i] = keys[token]
            group_columns(spare, 0, num_open, keys, num_buckets, bucket_ends, opened)
        once = 0.0
        start_race(rang, most)
        for b in range(last_open + 1):
            if is_open[b]:
                fitting = _opened_for(
                    edges[b], edges[b + 1], sums_of, p_mass, escaped, b, num_drafts, all_places,
                    count, best, bucket_drafts, bucket_places,
                )  # fmt: skip
                if fitting > 0:
                    _search_bucket(
                        opened, bucket_ends[b], bucket_ends[b + 1], spare, keys, rang, once,
                        p_mass[b], outside[b + 1], light_rate, others, race, subsets, fitting,
                        best, states, num_cells, sums, masses, escapes[1], ends, heavy[1],
                        chains[1], work[1], log_ratios,
                    )  # fmt: skip
            if sums_of[b, Q] > 0.0:
                once = add_group(
                    rang, once, most, sums_of[b], first_heavy[b], chains[0], heavy[0], light_rate,
                    others, race,
                )  # fmt: skip
        for j in range(count):
            rates[row, j] = max(1.0 + best[j], 0.0)
    return 0, 0, 1.0


@kernel(inner=True)
def _normalise(
    log_ratios: Vector, exponents: Vector, p: Vector, q: Vector, p_total: float, q_total: float
) -> None:
    """Make probabilities of the weights, and their log-ratios of the exponents.

    Tokens that are never drafted are never accepted: their p is set to zero.
    """
    p_factor = 1.0 / p_total
    q_factor = 1.0 / q_total
    shift = np.log2(q_total / p_total)
    for i in range(p.size):
        p[i] = p[i] * p_factor if q[i] > 0.0 else 0.0
        q[i] *= q_factor
        log_ratios[i] += shift - exponents[i]


@kernel(inner=True)
def _scan_ends(
    sums: Matrix, first_heavy: Integers, next_heavy: Integers, heavy: Vector, rang: Matrix,
    once: float, light_rate: float, others: float, race: Matrix, num_drafts: Integers,
    places: Integers, count: int, p_mass: Vector, outside: Vector, escapes: Matrix, best: Vector,
    states: Matrix, num_kept: int, once_before: Vector,
) -> None:  # fmt: skip
    """Write P, 1 - q and 1 - Q at the ends of groups, and the least P - Q = P - 1 + (1 - Q).

    `rang` is advanced from before the first group; p_mass[0] and outside[-1] are given. The states
    before the first `num_kept` groups are kept.
    """
    run_race(
        sums, sums, first_heavy, next_heavy, heavy, rang, once, light_rate, others, race,
        num_drafts, count, outside, escapes, states, num_kept, once_before,
    )  # fmt: skip
    for g in range(sums.shape[0]):
        p_mass[g + 1] = p_mass[g] + sums[g, P]
        for j in range(count):
            value = p_mass[g + 1] - 1.0 + escapes[g + 1, j]
            best[places[j]] = min(best[places[j]], value)


@kernel(inner=True)
def _opened_for(
    lowest: float, highest: float, sums: Matrix, p_mass: Vector, escapes: Matrix, g: int,
    num_drafts: Integers, places: Integers, count: int, best: Vector, drafts_open: Integers,
    places_open: Integers,
) -> int:  # fmt: skip
    """Find the K for which a prefix that ends in group g, ratios in [lowest, highest], may be best.

    Writes these K and their places; returns how many there are.
    """
    if sums[g, Q] == 0.0:
        return 0
    height, q_kink, share = kink(
        lowest, highest, _RATIO_ERROR, p_mass[g], sums[g, P], 0.0, sums[g, Q]
    )
    fitting = 0
    for j in range(count):
        contained = contained_at(0, q_kink, share, 1.0 - escapes[g, j], 1.0 - escapes[g + 1, j])
        if height - contained < best[places[j]] - _SLACK:
            drafts_open[fitting] = num_drafts[j]
            places_open[fitting] = places[j]
            fitting += 1
    return fitting


@kernel(inner=True)
def _search_bucket(
    tokens: Matrix, start: int, stop: int, spare: Matrix, parts: Keys, before: Matrix,
    once: float, p_before: float, outside_after: float, light_rate: float, others: float,
    race: Matrix, subsets: Integers, count: int, best: Vector, states: Matrix, num_cells: int,
    all_sums: Floats, masses: Matrix, escapes: Matrix, ends: Integers, heavy: Vector,
    chain: Integers, values: Vector, suffix: Vector,
) -> None:  # fmt: skip
    """Account for all prefixes that end inside a bucket, for the K for which it is open."""
    places, num_drafts, cell_places, cell_drafts = subsets[1], subsets[2], subsets[3], subsets[4]
    most = num_drafts[count - 1]
    rang = states[num_cells * most :]
    size = stop - start
    copy_race(before, 0, rang, 0, most)
    if size <= _SORTED_DIRECTLY:
        _walk_tokens(
            tokens, start, stop, rang, once, p_before, outside_after, others, race, num_drafts,
            places, count, best, values, suffix,
        )  # fmt: skip
        return
    cells_of(tokens, start, size, num_cells, parts)
    sums = all_sums[2, :num_cells]
    first_heavy, cell_ends = ends[2], ends[3]
    collect_groups(
        tokens[1, start:stop], tokens[2, start:stop], parts, light_rate, all_sums[1, :num_cells],
        sums, first_heavy, chain, heavy,
    )  # fmt: skip
    group_columns(tokens, start, size, parts, num_cells, cell_ends, spare)
    p_mass, outside, once_before = masses[2], masses[3], masses[4]
    p_mass[0] = p_before
    outside[num_cells] = outside_after
    _scan_ends(
        sums, first_heavy, chain, heavy, rang, once, light_rate, others, race, num_drafts, places,
        count, p_mass, outside, escapes, best, states, num_cells, once_before,
    )  # fmt: skip
    for c in range(num_cells):
        if cell_ends[c + 1] - cell_ends[c] < 2:
            continue
        lowest = spare[0, cell_ends[c]]
        highest = lowest
        for i in range(cell_ends[c], cell_ends[c + 1]):
            lowest = min(lowest, spare[0, i])
            highest = max(highest, spare[0, i])
        if lowest == highest:  # within ties P is linear and Q convex: the ends decide
            continue
        fitting = _opened_for(
            2.0**lowest, 2.0**highest, sums, p_mass, escapes, c, num_drafts, places, count, best,
            cell_drafts, cell_places,
        )  # fmt: skip
        if fitting > 0:
            _walk_tokens(
                spare, cell_ends[c], cell_ends[c + 1], states[c * most :], once_before[c],
                p_mass[c], outside[c + 1], others, race, cell_drafts, cell_places, fitting, best,
                values, suffix,
            )  # fmt: skip


@kernel(inner=True)
def _walk_tokens(
    tokens: Matrix, start: int, stop: int, rang: Matrix, once: float, p_mass: float,
    outside_after: float, others: float, race: Matrix, num_drafts: Integers, places: Integers,
    count: int, best: Vector, escapes: Vector, outside: Vector,
) -> None:  # fmt: skip
    """Add tokens one by one in order of their ratio; account for every prefix."""
    sort_columns(tokens, start, stop)
    most = num_drafts[count - 1]
    size = stop - start
    for i in range(size - 1, -1, -1):
        outside[i] = outside_after
        outside_after += tokens[2, start + i]
    for i in range(size):
        q = tokens[2, start + i]
        if q == 0.0:
            continue
        once = add_token(rang, once, most, q, others, race)
        p_mass += tokens[1, start + i]
        if i + 1 == size or tokens[0, start + i + 1] > tokens[0, start + i]:
            escape(rang, once, outside[i], race, num_drafts, count, escapes)
            for j in range(count):
                best[places[j]] = min(best[places[j]], p_mass - 1.0 + escapes[j])
