"""Drafted tokens in groups of similar p/q: buckets at first, single tokens if necessary.

A bucket holds the ratios between two neighbouring values of their leading bits, 64 to an octave.
Opening it replaces one closed group by its tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Integers, Keys, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.bucket_kernels import contained_at, kink, octave_keys, power, tokens_in
from mdsd_opt.prefix_search.sum_kernels import add_carrying, add_to_columns

Ids32 = NDArray[np.int32]

#: Most tokens whose id fits beside a ratio in one key.
MAX_TOKENS = 1 << 18
TOKEN_MASK = MAX_TOKENS - 1

#: Half of the lower bits: ratios are rounded to the nearest that the upper bits can hold, a
#: relative 3e-11, so that ratios equal but for rounding errors are tied, and in one bucket.
HALF = MAX_TOKENS >> 1

_SHIFT = 46  # of a float64: leaves sign, exponent and 6 bits of the fraction
_LOWEST = (1023 - 22) << 6  # these bits of 2**-22
_OCTAVES = 36  # up to 2**14
NEVER_DRAFTED = _OCTAVES << 6
NUM_BUCKETS = NEVER_DRAFTED + 1

#: Scale of these buckets, as `fill_buckets` takes it.
SCALE = _SHIFT, HALF, _LOWEST, (0, NEVER_DRAFTED - 1, 0, NEVER_DRAFTED)

#: Least ratio that each bucket could hold, and the end of the last.
EDGES = ((np.arange(NUM_BUCKETS) + _LOWEST) << _SHIFT).view(np.float64)
EDGES[0] = 0.0
EDGES[NEVER_DRAFTED] = np.inf

#: Largest relative difference of ratios that may be tied.
RATIO_ERROR = 6e-11

#: Lower bounds of the ratios in each bucket: ratios are rounded before they are put there.
LOWEST = EDGES[:-1] * (1.0 - RATIO_ERROR)
HIGHEST = EDGES[1:] * (1.0 + RATIO_ERROR)

#: Relative error of a ratio.
_ROUNDING = 3e-16

# Rows of the table of groups, and of what is kept of their ends.
KEY, BUCKET, TOKEN = 0, 1, 2
P, Q, CONTAINED, RATIO = 0, 1, 2, 3


@kernel
def fill_buckets(
    p: Vector, q: Vector, shift: int, half: int, first: int, ends: Any, ratios: Vector,
    buckets: Keys,
) -> None:  # fmt: skip
    """Write the bucket of every token on a scale, as `bucket_kernels.octave_keys`.

    `ratios` is room for some tokens at once.
    """
    for start in range(0, p.size, ratios.size):
        stop = start + ratios.size
        octave_keys(
            p[start:stop], q[start:stop], ratios, shift, half, first, ends, buckets[start:stop]
        )


@kernel
def sum_buckets(p: Vector, q: Vector, buckets: Keys, lost: Matrix, sums: Matrix) -> None:
    """Write sums of p and of q over every bucket.

    `lost`, of the shape of sums, is room for what they lose in rounding until it is given back; it
    takes twice as long, and is left out where there is none.
    """
    for b in range(sums.shape[0]):
        sums[b, P] = 0.0
        sums[b, Q] = 0.0
    for b in range(lost.shape[0]):
        lost[b, P] = 0.0
        lost[b, Q] = 0.0
    if lost.shape[0] > 0:
        for i in range(p.size):
            b = buckets[i]
            sums[b, P], lost[b, P] = add_carrying(sums[b, P], p[i], lost[b, P])
            sums[b, Q], lost[b, Q] = add_carrying(sums[b, Q], q[i], lost[b, Q])
    else:
        for i in range(p.size):
            add_to_columns(sums, buckets[i], p[i], q[i])


@kernel
def open_tokens(buckets: Keys, is_open: Flags, marks: NDArray[np.uint8], tokens: Ids32) -> int:
    """Write ids of all tokens in open buckets, ascending, to room for V + 1; return how many."""
    return tokens_in(buckets, is_open, marks, tokens)


@kernel
def ratio_keys(p: Vector, q: Vector, tokens: Integers, packed: bool, keys: Integers) -> None:
    """Write integers in the order of p/q of some tokens; q > 0 there.

    Packed keys sort by p/q, rounded, and then by token, of up to `MAX_TOKENS`.
    """
    ratios = keys.view(np.float64)
    for i in range(tokens.size):
        ratios[i] = p[tokens[i]] / q[tokens[i]]
    if packed:
        for i in range(tokens.size):
            keys[i] = ((keys[i] + HALF) & ~TOKEN_MASK) | tokens[i]


@kernel
def narrow(
    p: Vector, q: Vector, buckets: Keys, tokens: Ids32, lowest: Vector, highest: Vector
) -> None:
    """Write bounds on the ratios of the buckets of some tokens, which are all that these hold."""
    for i in tokens:
        lowest[buckets[i]] = np.inf
        highest[buckets[i]] = 0.0
    for i in tokens:
        ratio = p[i] / q[i]
        bucket = buckets[i]
        lowest[bucket] = min(lowest[bucket], ratio * (1.0 - _ROUNDING))
        highest[bucket] = max(highest[bucket], ratio * (1.0 + _ROUNDING))


@kernel
def arrange(
    sums: Matrix, contained: Vector, is_open: Flags, edges: Vector, p: Vector, q: Vector,
    buckets: Keys, keys: Integers, tokens: Integers, tokens_contained: Vector, exponent: int,
    groups: Integers, ends: Matrix,
) -> int:  # fmt: skip
    """Write a closed group for each bucket with drafted tokens, the tokens of those that are open.

    These come in order, with their keys. Q at the ends of groups is q to the power of `exponent`,
    or else (0) given by bucket and by token. There is room for just these groups. Returns the first
    number of groups that minimises P - Q.
    """
    ends[P, 0] = 0.0
    ends[Q, 0] = 0.0
    ends[CONTAINED, 0] = 0.0
    p_lost = 0.0
    q_lost = 0.0
    best = 0.0
    split = 0
    k = 0
    bucket = 0
    for g in range(groups.shape[1]):
        while sums[bucket, Q] == 0.0 or (
            is_open[bucket] and (k == tokens.size or buckets[tokens[k]] != bucket)
        ):
            bucket += 1
        if is_open[bucket]:
            token = tokens[k]
            key = keys[k]
            p_inside = p[token]
            q_inside = q[token]
            ratio = np.int64(key).view(np.float64)
            place = ~bucket
            inside = tokens_contained[k]
            k += 1
        else:
            token = -1
            p_inside = sums[bucket, P]
            q_inside = sums[bucket, Q]
            lowest = edges[bucket]
            highest = edges[bucket + 1]
            key = np.float64(lowest).view(np.int64)
            ratio = p_inside / q_inside
            ratio = ratio if ratio > lowest else lowest
            ratio = ratio if ratio < highest else highest
            place = bucket
            inside = contained[bucket]
            bucket += 1
        groups[KEY, g] = key
        groups[BUCKET, g] = place
        groups[TOKEN, g] = token
        ends[RATIO, g] = ratio
        ends[P, g + 1], p_lost = add_carrying(ends[P, g], p_inside, p_lost)
        ends[Q, g + 1], q_lost = add_carrying(ends[Q, g], q_inside, q_lost)
        if exponent > 0:
            inside = power(ends[Q, g + 1], exponent)
        ends[CONTAINED, g + 1] = inside
        difference = ends[P, g + 1] - inside
        if difference < best:
            best = difference
            split = g + 1
    return split


@kernel(inner=True)
def lowest_in_group(
    sums: Vector, ends: Matrix, g: int, lowest: float, highest: float, exponent: int
) -> tuple[float, float, float]:
    """Masses P, q and a lower bound of Q at the kink of a closed group with own sums p and q.

    A difference of prefix sums would lose them, and Q may grow from 0 to 1 where q is 1e-30.
    """
    p_mass, q_mass, share = kink(lowest, highest, 0.0, ends[P, g], sums[P], ends[Q, g], sums[Q])
    contained = contained_at(exponent, q_mass, share, ends[CONTAINED, g], ends[CONTAINED, g + 1])
    return p_mass, q_mass, contained


@kernel
def doubt_cut(
    groups: Integers, ends: Matrix, sums: Matrix, lowest: Vector, highest: Vector, exponent: int,
    split: int, slack: float, is_doubtful: Flags,
) -> bool:  # fmt: skip
    """Flag the groups inside which a better cut may lie; return whether there are any.

    Inside a group nothing lies lower than `bucket_kernels` says. `exponent` is the K of the power
    that Q is, or zero for its chord, and `slack` what rounding may feign: a group is not opened for
    less. `sums` are those of p and q over every bucket; `lowest` and `highest` bound its ratios.
    """
    best = ends[P, split] - ends[CONTAINED, split] - slack
    found = False
    for g in range(groups.shape[1]):
        bucket = groups[BUCKET, g]
        if bucket >= 0:
            p_mass, _, contained = lowest_in_group(
                sums[bucket], ends, g, lowest[bucket], highest[bucket], exponent
            )
            if p_mass - contained < best:
                is_doubtful[bucket] = True
                found = True
    return found
