r"""Optimal acceptance of K drafts without replacement, without sorting.

.. math:: \alpha^* = 1 + \min_H \left[ P(H) - Q(H) \right]

over the prefixes H of the tokens ordered by p/q ascending ([Hu25]), with Q by the race of
`race_kernels`. Tokens are collected in buckets of the log-ratio, and the objective is computed at
the ends of every bucket. Inside, the curve of P against q lies above its end tangents, and, as Q is
q-convex, that of Q below its chord: a bucket whose bound does not beat the best end is closed. The
others are divided once more in the same way, and what then remains open is sorted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.batch.logit_kernels import (
    drop_impossible,
    likeliest_tokens,
    row_side,
    weigh_row,
)
from mdsd_opt.kernels.race_budget import require_race
from mdsd_opt.kernels.race_group_kernels import (
    P,
    Q,
    RaceGroups,
    add_group,
    collect_groups,
    rates_left,
)
from mdsd_opt.kernels.race_kernels import (
    Race,
    State,
    add_token,
    copy_state,
    empty_prefix,
    escape,
    most_heavy,
    new_race,
)
from mdsd_opt.kernels.race_quadrature_kernels import MAX_RACE_WORK, race_work
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

#: A group of tokens is closed when it cannot lower the minimum by more than this.
_SLACK = 1e-14

#: Ratios are known up to a few rounding errors.
_RATIO_ERROR = 1e-12

_SORTED_DIRECTLY = 64  # opened groups up to this size are sorted, not divided


class Curve(NamedTuple):
    """The prefixes that end at the ends of groups: P, 1 - q and 1 - Q, one row more than groups."""

    p_mass: Vector
    outside: Vector
    escape: Matrix


def without_replacement_rates(
    target: NDArray[Any],
    draft: NDArray[Any],
    is_half: bool,
    target_scale: float,
    draft_scale: float,
    num_drafts: Integers,
    rates: Matrix,
    totals: Matrix,
) -> None:
    """Acceptance rates of rows of logits; the arguments are those of `row_functions.RowFunction`.

    Raises
    ------
    ProblemTooLarge
        Too many drafts for so many tokens.
    """
    refused = _rates_within_budget(
        target, draft, is_half, target_scale, draft_scale, num_drafts, rates, totals
    )
    require_race(*refused)


@kernel
def _rates_within_budget(
    target: NDArray[Any],
    draft: NDArray[Any],
    is_half: bool,
    target_scale: float,
    draft_scale: float,
    num_drafts: Integers,
    rates: Matrix,
    totals: Matrix,
) -> tuple[int, int, float]:
    """Rates of the rows up to the first that takes too long; its tokens, drafts, slowest rate."""
    vocab_size = target.shape[1]
    log_ratios = np.empty(vocab_size)
    exponents = np.empty(vocab_size)
    p = np.empty(vocab_size)
    q = np.empty(vocab_size)
    for row in range(target.shape[0]):
        p_side = row_side(target[row], is_half, target_scale)
        q_side = row_side(draft[row], is_half, draft_scale)
        totals[row, 0] = weigh_row(p_side, log_ratios, p)
        totals[row, 1] = weigh_row(q_side, exponents, q)
        if not np.isfinite(totals[row]).all():
            continue
        support = drop_impossible(q, totals[row, 1])
        _normalise(log_ratios, exponents, p, q, totals[row])
        fewer = num_drafts[num_drafts < support]
        if fewer.size > 0:
            likeliest = likeliest_tokens(exponents, q, fewer.max())
            slowest, others = rates_left(q, likeliest[: fewer.max() - 1])
            heavy = most_heavy(support, fewer.max())
            if race_work(heavy, fewer.max(), slowest) > MAX_RACE_WORK:
                return heavy, fewer.max(), slowest
            race = new_race(slowest, others, fewer.max())
            best = _least_objective(log_ratios, p, q, race, fewer)
        done = 0
        for j in range(num_drafts.size):
            if num_drafts[j] < support:
                rates[row, j] = max(1.0 + best[done], 0.0)
                done += 1
            else:  # the drafts are all the tokens there are
                rates[row, j] = min(lane_sum(p), 1.0)
    return 0, 0, 1.0


@kernel
def _normalise(log_ratios: Vector, exponents: Vector, p: Vector, q: Vector, totals: Vector) -> None:
    """Make probabilities of the weights, and their log-ratios of the exponents.

    Tokens that are never drafted are never accepted: their p is set to zero.
    """
    p_factor = 1.0 / totals[0]
    q_factor = 1.0 / totals[1]
    shift = np.log2(totals[1] / totals[0])
    for i in range(p.size):
        p[i] = p[i] * p_factor if q[i] > 0.0 else 0.0
        q[i] *= q_factor
        log_ratios[i] += shift - exponents[i]


@kernel
def _least_objective(
    log_ratios: Vector, p: Vector, q: Vector, race: Race, num_drafts: Integers
) -> Vector:
    """min over prefixes of P - Q, for every number of drafts (all below the support's size)."""
    most = num_drafts.max()
    per_octave = min(4.0, max(2.0, q.size / 8192.0))
    grid = Grid(-22.0, per_octave, int(34 * per_octave))
    edges = bucket_ratios(grid)
    keys = np.empty(q.size, np.uint16)
    bucket_keys(log_ratios, grid, keys)
    buckets = collect_groups(p, q, keys, grid.size, race)
    state = empty_prefix(race, most)
    curve = _curve(buckets, copy_state(state), 0.0, 0.0, race, num_drafts)
    best = np.zeros(num_drafts.size)
    _lower_at_ends(curve, best)
    is_open = np.zeros(grid.size, np.bool_)
    last_open = -1
    for b in range(grid.size):
        if _can_improve(edges[b], edges[b + 1], buckets, curve, b, best):
            is_open[b] = True
            last_open = b
    if last_open < 0:
        return best

    tokens = np.empty(q.size + 1, np.int32)
    tokens = tokens[: tokens_in(keys, is_open, tokens)]
    columns = np.empty((3, tokens.size))
    for i in range(tokens.size):
        token = tokens[i]
        columns[0, i], columns[1, i], columns[2, i] = log_ratios[token], p[token], q[token]
    spare = np.empty_like(columns)
    ends = np.empty(grid.size + 1, np.int64)
    group_columns(columns, spare, keys[tokens], ends)
    for b in range(last_open + 1):
        if is_open[b]:
            group = columns[:, ends[b] : ends[b + 1]]
            _search_group(
                group, spare, state, curve.p_mass[b], curve.outside[b + 1], race, num_drafts, best
            )
        else:
            add_group(state, buckets, b, race)
    return best


@kernel
def _curve(
    groups: RaceGroups,
    state: State,
    p_before: float,
    outside_after: float,
    race: Race,
    num_drafts: Integers,
) -> Curve:
    """Prefixes at the ends of the groups, starting from (and advancing) a given state."""
    num_groups = groups.sums.shape[0]
    p_mass = np.empty(num_groups + 1)
    outside = np.empty(num_groups + 1)
    escapes = np.empty((num_groups + 1, num_drafts.size))
    outside[num_groups] = outside_after
    for g in range(num_groups - 1, -1, -1):
        outside[g] = outside[g + 1] + groups.sums[g, Q]
    p_mass[0] = p_before
    escape(state, outside[0], race, num_drafts, escapes[0])
    for g in range(num_groups):
        p_mass[g + 1] = p_mass[g] + groups.sums[g, P]
        if groups.sums[g, Q] > 0.0:
            add_group(state, groups, g, race)
            escape(state, outside[g + 1], race, num_drafts, escapes[g + 1])
        else:
            escapes[g + 1] = escapes[g]
    return Curve(p_mass, outside, escapes)


@kernel
def _lower_at_ends(curve: Curve, best: Vector) -> None:
    """Account for the prefixes at the ends of groups; P - Q = P - 1 + (1 - Q)."""
    for g in range(1, curve.p_mass.size):
        for j in range(best.size):
            best[j] = min(best[j], curve.p_mass[g] - 1.0 + curve.escape[g, j])


@kernel
def _can_improve(
    lowest: float, highest: float, groups: RaceGroups, curve: Curve, g: int, best: Vector
) -> bool:
    """Whether a prefix ending inside group g, with ratios in [lowest, highest], may be better."""
    q_inside = groups.sums[g, Q]
    if q_inside == 0.0:
        return False
    p_kink, q_kink = kink(lowest, highest, groups.sums[g, P], q_inside, _RATIO_ERROR)
    for j in range(best.size):
        drop = curve.escape[g, j] - curve.escape[g + 1, j]
        chord = curve.escape[g, j] - drop * (q_kink / q_inside)
        if curve.p_mass[g] + p_kink - 1.0 + chord < best[j] - _SLACK:
            return True
    return False


@kernel
def _search_group(
    columns: Matrix,
    spare: Matrix,
    state: State,
    p_before: float,
    outside_after: float,
    race: Race,
    num_drafts: Integers,
    best: Vector,
) -> None:
    """Add a group's tokens to the state and account for all prefixes that end inside it."""
    if columns.shape[1] <= _SORTED_DIRECTLY:
        _walk_tokens(columns, state, p_before, outside_after, race, num_drafts, best)
        return
    lowest = columns[0].min()
    highest = columns[0].max()
    cells = cells_of(columns[0], lowest, highest)
    groups = collect_groups(columns[1], columns[2], cells, CELLS, race)
    curve = _curve(groups, copy_state(state), p_before, outside_after, race, num_drafts)
    _lower_at_ends(curve, best)
    ends = np.empty(CELLS + 1, np.int64)
    group_columns(columns, spare, cells, ends)
    for c in range(CELLS):
        inside = columns[:, ends[c] : ends[c + 1]]
        if inside.shape[1] == 0:
            continue
        low = inside[0].min()
        high = inside[0].max()
        # Within ties P is linear and Q convex: the ends decide.
        if low < high and _can_improve(2.0**low, 2.0**high, groups, curve, c, best):
            _walk_tokens(
                inside, state, curve.p_mass[c], curve.outside[c + 1], race, num_drafts, best
            )
        else:
            add_group(state, groups, c, race)


@kernel
def _walk_tokens(
    columns: Matrix,
    state: State,
    p_before: float,
    outside_after: float,
    race: Race,
    num_drafts: Integers,
    best: Vector,
) -> None:
    """Add tokens one by one in order of their ratio; account for every prefix."""
    order = np.argsort(columns[0])
    size = order.size
    outside = np.empty(size + 1)
    outside[size] = outside_after
    for i in range(size - 1, -1, -1):
        outside[i] = outside[i + 1] + columns[2, order[i]]
    escapes = np.empty(num_drafts.size)
    p_mass = p_before
    for i in range(size):
        token = order[i]
        if columns[2, token] == 0.0:
            continue
        add_token(state, columns[2, token], race)
        p_mass += columns[1, token]
        if i + 1 == size or columns[0, order[i + 1]] > columns[0, token]:
            escape(state, outside[i + 1], race, num_drafts, escapes)
            for j in range(best.size):
                best[j] = min(best[j], p_mass - 1.0 + escapes[j])
