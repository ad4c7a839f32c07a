"""Tokens of one row of logits in groups of nearly equal p/q, and Q along the groups.

A bucket holds ratios between two neighbouring values of their leading bits, 2048 to an octave;
neighbouring buckets that matter little are merged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Integers, Keys, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.bucket_kernels import octave_keys
from mdsd_opt.prefix_search.race_group_kernels import add_group, collect_groups
from mdsd_opt.prefix_search.race_kernels import escape, fill_terms, start_race
from mdsd_opt.prefix_search.sum_kernels import BLOCK, add_carrying
from mdsd_opt.prefix_search.weigh_kernels import drop_impossible, likeliest_tokens, weigh_row

_BITS = 11  # of the fraction, beside sign and exponent
_SHIFT = 52 - _BITS
_LOWEST = (1023 - 19) << _BITS  # these bits of 2**-19
_OCTAVES = 31  # up to 2**12

#: Numbers of the first bucket, for tokens without mass in the target, and of the next one. The next
#: one and the last but one are open-ended.
MASSLESS, BELOW = 0, 1
ABOVE = (_OCTAVES << _BITS) + 2
NEVER_DRAFTED = ABOVE + 1
NUM_BUCKETS = NEVER_DRAFTED + 1

#: Least ratio of each bucket but the first, the last and the one after the first.
_EDGES = ((np.arange(NUM_BUCKETS) + (_LOWEST - 2)) << _SHIFT).view(np.float64)

#: Number of buckets that are searched together.
_STRETCH = 64

#: Number of ratios that there is room for.
RATIOS = BLOCK

#: KL that each merged group may hide.
_HIDDEN = 1e-11


@kernel
def weigh_both(
    target: NDArray[Any], draft: NDArray[Any], target_scale: float, draft_scale: float,
    exponents: Vector, p: Vector, q: Vector, likeliest: Integers,
) -> tuple[float, float, int, int]:  # fmt: skip
    """Write p, q and the likeliest tokens of q.

    Returns the sums of weights, which are not finite for a bad row, the number of likeliest tokens
    found, and that of tokens that may be drafted.
    """
    p_total = weigh_row(target, target_scale, exponents, p)
    q_total = weigh_row(draft, draft_scale, exponents, q)
    if not (np.isfinite(p_total) and np.isfinite(q_total)):
        return p_total, q_total, 0, 0
    drop_impossible(p, p_total)
    support = drop_impossible(q, q_total)
    found = likeliest_tokens(exponents, q, likeliest.size, likeliest)
    p_factor, q_factor = 1.0 / p_total, 1.0 / q_total
    for i in range(p.size):
        p[i] *= p_factor
        q[i] *= q_factor
    return p_total, q_total, found, support


@kernel
def fill_buckets(
    p: Vector, q: Vector, ratios: Vector, keys: Keys, sums: Matrix, counts: NDArray[np.int32]
) -> None:
    """Write the bucket of every token; add to sums and numbers of tokens, which are zero before.

    `ratios` is room for some tokens at once.
    """
    ends = BELOW, ABOVE, MASSLESS, NEVER_DRAFTED
    for start in range(0, p.size, ratios.size):
        p_here = p[start : start + ratios.size]
        q_here = q[start : start + ratios.size]
        keys_here = keys[start : start + ratios.size]
        octave_keys(p_here, q_here, ratios, _SHIFT, 0, _LOWEST - 2, ends, keys_here)
        for i in range(p_here.size):
            bucket = keys_here[i]
            sums[bucket, 0] += p_here[i]
            sums[bucket, 1] += q_here[i]
            counts[bucket] += 1


@kernel(inner=True)
def _next_used(counts: NDArray[np.int32], bucket: int) -> int:
    """First bucket from this one on that has tokens; few of them have."""
    while bucket < counts.size:
        if bucket % _STRETCH == 0 and bucket + _STRETCH <= counts.size:
            stretch = counts[bucket : bucket + _STRETCH]
            number = 0
            for i in range(_STRETCH):
                number += stretch[i]
            if number == 0:
                bucket += _STRETCH
                continue
        if counts[bucket] > 0:
            return bucket
        bucket += 1
    return bucket


@kernel(inner=True)
def _doubt(spread: float) -> float:
    """Half of the KL that a group may hide, whose ratios are within this factor."""
    width = spread - 1.0  # no less than the logarithm
    return spread * spread * spread * width * width / 8.0


@kernel
def merge_buckets(
    sums: Matrix, counts: NDArray[np.int32], lowest: float, highest: float,
    group_of_bucket: Keys, groups: Matrix,
) -> int:  # fmt: skip
    """Merge the buckets that can be drafted into groups, in order; return their number.

    Rows of `groups` are P, q and what a group may hide of KL for each unit of acceptance. A law may
    spread the ratios x/p within a group no further than p/q, and a spread by a factor 1 + w is
    worth about w^2/8, at most (1 + w)^3 w^2/4. All sums are cleared but those of the last bucket,
    tokens that are never drafted. `lowest` and `highest` are extreme ratios p/q in the open-ended
    buckets, which are not merged; of no meaning for one token alone.
    """
    count = 0
    factor = 0.0  # one over the least ratio of the group at hand
    bucket = _next_used(counts, 0)
    while bucket < NEVER_DRAFTED:
        number = counts[bucket]
        p, q = sums[bucket, 0], sums[bucket, 1]
        sums[bucket, 0] = 0.0
        sums[bucket, 1] = 0.0
        counts[bucket] = 0
        start = lowest if bucket == BELOW else _EDGES[bucket]
        stop = highest if bucket == ABOVE else _EDGES[bucket + 1]
        merged = False
        if factor > 0.0 and bucket < ABOVE:
            doubt = _doubt(stop * factor)
            both = max(groups[0, count - 1] + p, groups[1, count - 1] + q)
            if both * doubt <= _HIDDEN:
                merged = True
                groups[0, count - 1] += p
                groups[1, count - 1] += q
                groups[2, count - 1] = doubt
        if not merged:
            factor = 1.0 / start if bucket > BELOW else 0.0
            groups[0, count] = p
            groups[1, count] = q
            groups[2, count] = _doubt(stop / start) if bucket > MASSLESS and number > 1 else 0.0
            count += 1
        group_of_bucket[bucket] = count - 1
        bucket = _next_used(counts, bucket + 1)
    group_of_bucket[NEVER_DRAFTED] = count
    return count


@kernel
def rename(keys: Keys, group_of_bucket: Keys, groups: Keys) -> None:
    """Replace the bucket of every token by its group."""
    for i in range(keys.size):
        groups[i] = group_of_bucket[keys[i]]


@kernel
def race_over_groups(
    q: Vector, groups: Keys, num_drafts: Integers, light_rate: float, step: float, first: float,
    others: float, race: Matrix, rang: Matrix, run: Matrix, moments: Matrix,
    first_heavy: Integers, next_heavy: Integers, heavy: Vector, outside: Vector, escaped: Vector,
    contained: Matrix,
) -> None:  # fmt: skip
    """Compute Q of the first 0, 1, .. groups without replacement, for ascending numbers of drafts.

    The last of the groups is never drafted. `contained` has shape (len(num_drafts), groups).
    """
    collect_groups(q, q, groups, light_rate, run, moments, first_heavy, next_heavy, heavy)
    count = num_drafts.size
    most = num_drafts[count - 1]
    fill_terms(race, light_rate, step, first)
    start_race(rang, most)
    size = contained.shape[1] - 1
    outside[size] = 0.0
    lost = 0.0
    for g in range(size - 1, -1, -1):
        outside[g], lost = add_carrying(outside[g + 1], moments[g, 1], lost)
    once = 0.0
    for k in range(count):
        contained[k, 0] = 0.0
    for g in range(size):
        once = add_group(
            rang, once, most, moments[g], first_heavy[g], next_heavy, heavy, light_rate, others,
            race,
        )  # fmt: skip
        escape(rang, once, outside[g + 1], race, num_drafts, count, escaped)
        for k in range(count):
            contained[k, g + 1] = min(max(1.0 - escaped[k], contained[k, g]), 1.0)
