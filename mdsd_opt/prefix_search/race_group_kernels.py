"""Groups of tokens in the race: the sums by which each is added at once, and Q at its end.

Groups are the buckets of p/q of a row, in order; the race may be kept before each, to go on inside.
"""

from __future__ import annotations

from mdsd_opt.base.arrays import Integers, Keys, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.race_kernels import (
    add_light_tokens,
    add_token,
    escape,
    fill_terms,
    light_once_gain,
    rates_beside,
    start_race,
)
from mdsd_opt.prefix_search.sum_kernels import add_carrying
from mdsd_opt.prefix_search.weigh_kernels import likeliest_tokens

#: Number of tokens after which the running sums are put aside and begun anew: adding equal numbers
#: always rounds the same way, and long runs of them are common (ties, bfloat16).
_RUN = 32_768

# Columns of the sums kept of every group of tokens: 8 to fill a cache line.
P = 0
Q = 1
MOMENT = 2  # and the following four: light tokens only
COLUMNS = 8


@kernel(inner=True)
def collect_groups(
    p: Vector, q: Vector, keys: Keys, light_rate: float, run: Matrix, sums: Matrix,
    first_heavy: Integers, next_heavy: Integers, heavy: Vector,
) -> None:  # fmt: skip
    """Sum p, q and the moments of light tokens by group, and chain its heavy tokens.

    -1 ends a chain; there is room for at least `most_heavy` tokens in all. `run` has the shape of
    `sums`.
    """
    num_heavy = 0
    factor = 1.0 / light_rate
    for g in range(sums.shape[0]):
        first_heavy[g] = -1
        for column in range(COLUMNS):
            sums[g, column] = 0.0
            run[g, column] = 0.0
    for start in range(0, q.size, _RUN):
        # Slices, indexed from 0: no index needs a check for being negative.
        p_here = p[start : start + _RUN]
        q_here = q[start : start + _RUN]
        keys_here = keys[start : start + _RUN]
        for i in range(q_here.size):
            key = keys_here[i]
            x = q_here[i] * factor
            if x > 1.0:
                heavy[num_heavy] = q_here[i]
                next_heavy[num_heavy] = first_heavy[key]
                first_heavy[key] = num_heavy
                num_heavy += 1
                x = 0.0
            x2 = x * x
            x4 = x2 * x2
            run[key, 0] += p_here[i]
            run[key, 1] += q_here[i]
            run[key, 2] += x
            run[key, 3] += x2
            run[key, 4] += x2 * x
            run[key, 5] += x4
            run[key, 6] += x4 * x
        for g in range(sums.shape[0]):
            for column in range(COLUMNS):
                sums[g, column] += run[g, column]
                run[g, column] = 0.0


@kernel(inner=True)
def add_group(
    rang: Matrix, once: float, num_drafts: int, sums: Vector, first_heavy: int,
    next_heavy: Integers, heavy: Vector, light_rate: float, others: float, race: Matrix,
) -> float:  # fmt: skip
    """Add a group, given by its sums and the start of its chain; return the new `once`."""
    if sums[MOMENT] > 0.0:
        moments = sums[MOMENT:]
        once += light_once_gain(moments, light_rate)
        if num_drafts > 2:
            add_light_tokens(rang, num_drafts, moments, light_rate, race)
    i = first_heavy
    while i >= 0:
        once = add_token(rang, once, num_drafts, heavy[i], others, race)
        i = next_heavy[i]
    return once


@kernel
def race_rates(q: Vector, num_drafts: int, likeliest: Integers) -> tuple[float, float]:
    """Slowest rate that matters, and the rate of all tokens but the likeliest.

    `likeliest` is room for the ids of the likeliest `num_drafts` tokens.
    """
    likeliest_tokens(q, q, num_drafts, likeliest)
    return rates_beside(q, likeliest, num_drafts)


@kernel
def race_sums(
    p: Vector, q: Vector, buckets: Keys, light_rate: float, run: Matrix, moments: Matrix,
    first_heavy: Integers, next_heavy: Integers, heavy: Vector,
) -> None:  # fmt: skip
    """Write sums of p, and those that the race needs, over every bucket."""
    collect_groups(p, q, buckets, light_rate, run, moments, first_heavy, next_heavy, heavy)


@kernel(inner=True)
def run_race(
    sums: Matrix, moments: Matrix, first_heavy: Integers, next_heavy: Integers, heavy: Vector,
    rang: Matrix, once: float, light_rate: float, others: float, race: Matrix,
    num_drafts: Integers, count: int, outside: Vector, escapes: Matrix, states: Matrix,
    num_kept: int, once_before: Vector,
) -> None:  # fmt: skip
    """Add groups in order; write 1 - q and 1 - Q at their ends, for ascending numbers of drafts.

    `rang` and `once` are advanced from before the first group; q of all tokens behind the last is
    given in `outside`. `once` before each group that has any is kept, and the race before the first
    `num_kept`, K rows each.
    """
    num_groups = sums.shape[0]
    most = num_drafts[count - 1]
    lost = 0.0
    for g in range(num_groups - 1, -1, -1):
        outside[g], lost = add_carrying(outside[g + 1], sums[g, Q], lost)
    escape(rang, once, outside[0], race, num_drafts, count, escapes[0])
    for g in range(num_groups):
        if sums[g, Q] > 0.0:
            once_before[g] = once
            if g < num_kept:
                copy_race(rang, 0, states, g * most, most)
            once = add_group(
                rang, once, most, moments[g], first_heavy[g], next_heavy, heavy, light_rate, others,
                race,
            )  # fmt: skip
            escape(rang, once, outside[g + 1], race, num_drafts, count, escapes[g + 1])
        else:
            for j in range(count):
                escapes[g + 1, j] = escapes[g, j]


@kernel(inner=True)
def copy_race(source: Matrix, first: int, copy: Matrix, first_copy: int, num_drafts: int) -> None:
    """Copy the rows of one prefix, from one row on to another."""
    for n in range(num_drafts):
        for j in range(source.shape[1]):
            copy[first_copy + n, j] = source[first + n, j]


@kernel
def race_curve(
    sums: Matrix, moments: Matrix, first_heavy: Integers, next_heavy: Integers, heavy: Vector,
    num_drafts: Integers, light_rate: float, step: float, first: float, others: float,
    race: Matrix, rang: Matrix, states: Matrix, once_before: Vector, outside: Vector,
    escapes: Matrix,
) -> None:  # fmt: skip
    """Run the race over n groups; write 1 - Q of the first 0, 1, .. of them, (n + 1, len(K)).

    Behind them `sums` have one more, which stays outside. For each group, `once` before it and the
    q of all tokens from it on are written as well; so is the race before it, K rows each, if
    `states` has room.
    """
    most = num_drafts[num_drafts.size - 1]
    never_drafted = sums.shape[0] - 1
    fill_terms(race, light_rate, step, first)
    start_race(rang, most)
    outside[never_drafted] = sums[never_drafted, Q]
    run_race(
        sums[:never_drafted], moments, first_heavy, next_heavy, heavy, rang, 0.0, light_rate,
        others, race, num_drafts, num_drafts.size, outside, escapes, states,
        states.shape[0] // most, once_before,
    )  # fmt: skip


@kernel
def merge_small(
    sums: Matrix, moments: Matrix, first_heavy: Integers, next_heavy: Integers, most_mass: float,
    most_buckets: int,
) -> None:  # fmt: skip
    """Merge runs of neighbouring small buckets, each run into its lowest bucket."""
    into = 0
    for bucket in range(1, sums.shape[0] - 1):
        if sums[bucket, Q] == 0.0:
            continue
        p_mass = sums[into, P] + sums[bucket, P]
        q_mass = sums[into, Q] + sums[bucket, Q]
        if max(p_mass, q_mass) > most_mass or bucket - into >= most_buckets:
            into = bucket
            continue
        for column in range(sums.shape[1]):
            sums[into, column] += sums[bucket, column]
            sums[bucket, column] = 0.0
        for column in range(moments.shape[1]):
            moments[into, column] += moments[bucket, column]
        heavy = first_heavy[bucket]
        while heavy >= 0:
            following = next_heavy[heavy]
            next_heavy[heavy] = first_heavy[into]
            first_heavy[into] = heavy
            heavy = following
        first_heavy[bucket] = -1


@kernel
def race_opened(
    tokens: Integers, buckets: Keys, q: Vector, num_drafts: Integers, others: float,
    race: Matrix, states: Matrix, once_before: Vector, outside: Vector,
    escaped: Vector, rates: Vector, contained: Vector,
) -> None:  # fmt: skip
    """Write Q at the tokens of buckets that are opened, which are given in order.

    The arrays are those of `race_curve`, and room for the rates left; a race that is used up here
    is not needed again.
    """
    most = num_drafts[0]
    start = 0
    while start < tokens.size:
        bucket = buckets[tokens[start]]
        stop = start
        while stop < tokens.size and buckets[tokens[stop]] == bucket:
            stop += 1
        rate_left = outside[bucket + 1]
        for j in range(stop - 1, start - 1, -1):
            rates[j] = rate_left
            rate_left += q[tokens[j]]
        rang = states[bucket * most : (bucket + 1) * most]
        once = once_before[bucket]
        for j in range(start, stop):
            rate = q[tokens[j]]
            once = add_token(rang, once, most, rate, others, race)
            escape(rang, once, rates[j], race, num_drafts, 1, escaped)
            contained[j] = min(max(1.0 - escaped[0], 0.0), 1.0)
        start = stop
