"""Q at the ends of groups of tokens: a power of q, or the race of draws without replacement."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.kernels.race_group_kernels import (
    RaceGroups,
    add_group,
    collect_groups,
    rates_left,
)
from mdsd_opt.kernels.race_kernels import (
    Race,
    State,
    add_token,
    empty_prefix,
    escape,
    new_race,
)
from mdsd_opt.numba_cache import kernel
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
def power(base: float, exponent: int) -> float:
    """min(base, 1) ** exponent."""
    base = min(base, 1.0)
    result = base
    for _ in range(exponent - 1):
        result *= base
    return result


@kernel
def fill_powers(groups: Groups, num_drafts: int) -> None:
    """Draws with replacement."""
    for j in range(groups.contained.size):
        groups.contained[j] = power(groups.sums_q[j], num_drafts)


class RaceCurve(NamedTuple):
    """The race before each bucket, and the q of all tokens from each bucket on."""

    race: Race
    rang: NDArray[np.float64]  # (bucket, number, node)
    once: Vector
    outside: Vector


@kernel
def likeliest(q: Vector, count: int) -> Integers:
    """Tokens of the largest q, in descending order."""
    tokens = np.empty(count, np.int64)
    found = 0
    least = -1.0
    for i in range(q.size):
        if q[i] <= least:
            continue
        place = min(found, count - 1)
        while place > 0 and q[tokens[place - 1]] < q[i]:
            tokens[place] = tokens[place - 1]
            place -= 1
        tokens[place] = i
        found = min(found + 1, count)
        if found == count:
            least = q[tokens[count - 1]]
    return tokens


@kernel
def race_rates(q: Vector, num_drafts: int) -> tuple[float, float]:
    """The slowest rate that matters, and that of all tokens but the likeliest."""
    slowest, others = rates_left(q, likeliest(q, max(num_drafts - 1, 1)))
    return (1.0 if num_drafts == 1 else slowest), others


@kernel
def race_sums(
    p: Vector, q: Vector, buckets: Buckets, num_drafts: int, slowest: float, others: float
) -> tuple[Race, RaceGroups]:
    """Sums of p, q and what the race asks for over every bucket."""
    race = new_race(slowest, others, num_drafts)
    return race, collect_groups(p, q, buckets, NUM_BUCKETS, race)


@kernel
def merge_small(race_groups: RaceGroups, most_mass: float, most_buckets: int) -> Integers:
    """Merge runs of neighbouring small buckets, each run into its lowest bucket.

    Returns
    -------
    ndarray, shape (NUM_BUCKETS,)
        For the bucket that holds a run, the end of the run.
    """
    sums = race_groups.sums
    ends = np.arange(1, NUM_BUCKETS + 1)
    into = 0
    for bucket in range(1, NEVER_DRAFTED):
        if sums[bucket, 1] == 0.0:
            continue
        p_mass = sums[into, 0] + sums[bucket, 0]
        q_mass = sums[into, 1] + sums[bucket, 1]
        if max(p_mass, q_mass) > most_mass or bucket - into >= most_buckets:
            into = bucket
            continue
        sums[into] += sums[bucket]
        sums[bucket] = 0.0
        ends[into] = bucket + 1
        heavy = race_groups.first_heavy[bucket]
        while heavy >= 0:
            following = race_groups.next_heavy[heavy]
            race_groups.next_heavy[heavy] = race_groups.first_heavy[into]
            race_groups.first_heavy[into] = heavy
            heavy = following
        race_groups.first_heavy[bucket] = -1
    return ends


@kernel
def race_curve(
    race: Race, race_groups: RaceGroups, num_drafts: int, groups: Groups, may_open: bool
) -> RaceCurve:
    """Run the race over all groups, which are closed; fill in Q at their ends.

    The race before each group is kept only if groups may be opened later.
    """
    count = np.array([num_drafts])
    escaped = np.empty(1)
    state = empty_prefix(race, num_drafts)
    rang = np.empty((NUM_BUCKETS if may_open else 0, num_drafts, race.times.size))
    once = np.empty(NUM_BUCKETS)
    outside = np.zeros(NUM_BUCKETS + 1)
    for bucket in range(NUM_BUCKETS - 1, -1, -1):
        outside[bucket] = outside[bucket + 1] + race_groups.sums[bucket, 1]
    for g in range(groups.buckets.size):
        bucket = groups.buckets[g]
        if may_open:
            rang[bucket] = state.rang
            once[bucket] = state.once[0]
        add_group(state, race_groups, bucket, race)
        escape(state, outside[bucket + 1], race, count, escaped)
        groups.contained[g + 1] = min(max(1.0 - escaped[0], 0.0), 1.0)
    return RaceCurve(race, rang, once, outside)


@kernel
def fill_opened_race(groups: Groups, is_open: Flags, q: Vector, curve: RaceCurve) -> None:
    """Draws without replacement: fill in Q at the tokens of the open buckets."""
    count = np.array([curve.rang.shape[1]])
    escaped = np.empty(1)
    g = 0
    while g < groups.keys.size:
        bucket = ~groups.buckets[g]
        start = g
        g += 1
        if bucket < 0 or not is_open[bucket]:
            continue
        while g < groups.keys.size and ~groups.buckets[g] == bucket:
            g += 1
        outside = np.empty(g - start + 1)
        outside[g - start] = curve.outside[bucket + 1]
        for j in range(g - 1, start - 1, -1):
            token = groups.keys[j] & TOKEN_MASK
            outside[j - start] = outside[j - start + 1] + q[token]
        state = State(curve.rang[bucket].copy(), curve.once[bucket : bucket + 1].copy())
        for j in range(start, g):
            add_token(state, q[groups.keys[j] & TOKEN_MASK], curve.race)
            escape(state, outside[j + 1 - start], curve.race, count, escaped)
            groups.contained[j + 1] = min(max(1.0 - escaped[0], 0.0), 1.0)
