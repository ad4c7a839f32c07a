"""Q at the ends of groups of tokens: a power of q, or the race of draws without replacement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.numba_cache import kernel
from mdsd_opt.prefix_search.bucket_kernels import power
from mdsd_opt.prefix_search.race_group_kernels import add_group, collect_groups
from mdsd_opt.prefix_search.race_kernels import (
    RACE_ROWS,
    add_token,
    escape,
    fill_race,
    lightness,
    num_nodes,
    once_gain,
    start_race,
)
from mdsd_opt.prefix_search.sum_kernels import sum_of_others
from mdsd_opt.prefix_search.weigh_kernels import likeliest_tokens
from mdsd_opt.verifiers.optimal.ratio_groups_kernels import (
    NEVER_DRAFTED,
    NUM_BUCKETS,
    TOKEN_MASK,
    Groups,
)

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]
Buckets = NDArray[np.uint16]
Flags = NDArray[np.bool_]


@kernel
def bucket_sums(p: Vector, q: Vector, buckets: Buckets) -> Matrix:
    """Sums of p and q over every bucket."""
    sums = np.zeros((NUM_BUCKETS, 2))
    for i in range(p.size):
        bucket = buckets[i]
        sums[bucket, 0] += p[i]
        sums[bucket, 1] += q[i]
    return sums


@kernel
def fill_powers(groups: Groups, num_drafts: int) -> None:
    """Draws with replacement."""
    for j in range(groups.contained.size):
        groups.contained[j] = power(groups.sums_q[j], num_drafts)


@kernel
def race_rates(q: Vector, num_drafts: int, tokens: Integers) -> tuple[float, float]:
    """The slowest rate that matters, and that of all tokens but the likeliest.

    `tokens` is room for K - 1 of them.
    """
    count = likeliest_tokens(q, q, tokens.size, tokens) if num_drafts > 1 else 0
    others = 0.0
    for i in range(1, count):
        others += q[tokens[i]]
    slowest = sum_of_others(q, tokens, count)
    return slowest, others + slowest


@kernel
def race_table(num_drafts: int, slowest: float) -> Matrix:
    """What the race needs at every node of its quadrature."""
    race = np.empty((RACE_ROWS + num_drafts, num_nodes(slowest, num_drafts)))
    fill_race(race, slowest, num_drafts)
    return race


@kernel
def race_sums(
    p: Vector, q: Vector, buckets: Buckets, num_drafts: int, slowest: float, run: Matrix,
    sums: Matrix, first_heavy: Integers, next_heavy: Integers, heavy: Vector,
) -> None:  # fmt: skip
    """Sums of p, q and what the race asks for over every bucket."""
    light_rate = slowest / lightness(num_drafts)
    collect_groups(p, q, buckets, light_rate, run, sums, first_heavy, next_heavy, heavy)


@kernel
def merge_small(
    sums: Matrix, first_heavy: Integers, next_heavy: Integers, most_mass: float, most_buckets: int,
    ends: Integers,
) -> None:  # fmt: skip
    """Merge runs of neighbouring small buckets, each run into its lowest bucket.

    ends[b] becomes the end of the run that bucket b holds.
    """
    for bucket in range(ends.size):
        ends[bucket] = bucket + 1
    into = 0
    for bucket in range(1, NEVER_DRAFTED):
        if sums[bucket, 1] == 0.0:
            continue
        p_mass = sums[into, 0] + sums[bucket, 0]
        q_mass = sums[into, 1] + sums[bucket, 1]
        if max(p_mass, q_mass) > most_mass or bucket - into >= most_buckets:
            into = bucket
            continue
        for column in range(sums.shape[1]):
            sums[into, column] += sums[bucket, column]
            sums[bucket, column] = 0.0
        ends[into] = bucket + 1
        heavy = first_heavy[bucket]
        while heavy >= 0:
            following = next_heavy[heavy]
            next_heavy[heavy] = first_heavy[into]
            first_heavy[into] = heavy
            heavy = following
        first_heavy[bucket] = -1


@kernel
def race_curve(
    race: Matrix, sums: Matrix, first_heavy: Integers, next_heavy: Integers, heavy: Vector,
    num_drafts: Integers, slowest: float, others: float, buckets: Integers, contained: Vector,
    kept: NDArray[np.float64], once_before: Vector, outside: Vector,
) -> None:  # fmt: skip
    """Run the race over all groups, which are closed; fill in Q at their ends.

    Of each group also `once` before it and the q of all tokens from it on; and the race before it,
    if `kept`, of shape (NUM_BUCKETS, K, nodes), has room.
    """
    most = num_drafts[0]
    light_rate = slowest / lightness(most)
    rang = np.empty((most, race.shape[1]))
    escaped = np.empty(1)
    start_race(rang, most)
    once = 0.0
    outside[NUM_BUCKETS] = 0.0
    for bucket in range(NUM_BUCKETS - 1, -1, -1):
        outside[bucket] = outside[bucket + 1] + sums[bucket, 1]
    for g in range(buckets.size):
        bucket = buckets[g]
        if kept.shape[0] > 0:
            once_before[bucket] = once
            for n in range(most):
                for j in range(rang.shape[1]):
                    kept[bucket, n, j] = rang[n, j]
        once = add_group(
            rang, once, most, sums[bucket], first_heavy[bucket], next_heavy, heavy, light_rate,
            others, race,
        )  # fmt: skip
        escape(rang, once, outside[bucket + 1], race, num_drafts, 1, escaped)
        contained[g + 1] = min(max(1.0 - escaped[0], 0.0), 1.0)


@kernel
def fill_opened_race(
    race: Matrix, num_drafts: Integers, others: float, keys: Integers, buckets: Integers,
    contained: Vector, is_open: Flags, q: Vector, kept: NDArray[np.float64], once_before: Vector,
    outside: Vector,
) -> None:  # fmt: skip
    """Draws without replacement: fill in Q at the tokens of the open buckets.

    The arrays are those of `race_curve`; a race that is used up here is not needed again.
    """
    most = num_drafts[0]
    escaped = np.empty(1)
    left = np.empty(keys.size + 1)
    g = 0
    while g < keys.size:
        bucket = ~buckets[g]
        start = g
        g += 1
        if bucket < 0 or not is_open[bucket]:
            continue
        while g < keys.size and ~buckets[g] == bucket:
            g += 1
        left[g] = outside[bucket + 1]
        for j in range(g - 1, start - 1, -1):
            left[j] = left[j + 1] + q[keys[j] & TOKEN_MASK]
        rang = kept[bucket]
        once = once_before[bucket]
        for j in range(start, g):
            rate = q[keys[j] & TOKEN_MASK]
            once += once_gain(rate, others)
            if most > 2:
                add_token(rang, most, rate, race)
            escape(rang, once, left[j + 1], race, num_drafts, 1, escaped)
            contained[j + 1] = min(max(1.0 - escaped[0], 0.0), 1.0)
