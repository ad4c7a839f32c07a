"""Drafted tokens in groups of similar p/q: buckets at first, single tokens where it matters.

A bucket holds the ratios between two neighbouring values of their leading bits, 64 to an octave.
Opening it replaces one closed group by its tokens. Sums over prefixes of groups are all that the
optimal rule needs, and closed groups can often be shown not to matter (`doubt_kernels`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.numba_cache import kernel
from mdsd_opt.prefix_search.bucket_kernels import tokens_in

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Keys = NDArray[np.int64]
Buckets = NDArray[np.uint16]
Flags = NDArray[np.bool_]

#: Tokens that fit beside a ratio in one key.
MAX_TOKENS = 1 << 18
TOKEN_MASK = MAX_TOKENS - 1

#: Ratios are rounded to the nearest that the upper bits can hold, a relative 3e-11: ratios that are
#: equal but for their rounding errors are tied.
_HALF = MAX_TOKENS >> 1

_SHIFT = 46  # of a float64: leaves sign, exponent and 6 bits of the fraction
_LOWEST = (1023 - 22) << 6  # these bits of 2**-22
_OCTAVES = 36  # up to 2**14
NEVER_DRAFTED = _OCTAVES << 6
NUM_BUCKETS = NEVER_DRAFTED + 1

#: Least ratio that each bucket could hold, and the end of the last.
EDGES = ((np.arange(NUM_BUCKETS) + _LOWEST) << _SHIFT).view(np.float64)
EDGES[0] = 0.0
EDGES[NEVER_DRAFTED] = np.inf

_BLOCK = 1024  # tokens whose ratios stay in the first-level cache


class Groups(NamedTuple):
    """Disjoint groups of drafted tokens, in ascending order of p/q.

    Attributes
    ----------
    keys : ndarray of int64, shape (n,)
        Packed key of a single token, or the least key that its bucket could hold.
    buckets : ndarray of int64, shape (n,)
        Bucket of a closed group; ~bucket (negative) for a single token.
    sums_p, sums_q, contained : ndarray, shape (n + 1,)
        P, q and Q of the prefixes.
    """

    keys: Keys
    buckets: Keys
    sums_p: Vector
    sums_q: Vector
    contained: Vector


@kernel
def token_buckets(p: Vector, q: Vector) -> Buckets:
    """Bucket of every token; everything below 2**-22 or from 2**14 on is in the outermost."""
    buckets = np.empty(p.size, np.uint16)
    ratio = np.empty(_BLOCK)
    bits = ratio.view(np.int64)
    for start in range(0, p.size, _BLOCK):  # slices: index from 0, so that the loops vectorise
        p_here, q_here = p[start : start + _BLOCK], q[start : start + _BLOCK]
        buckets_here = buckets[start : start + _BLOCK]
        for i in range(p_here.size):
            ratio[i] = p_here[i] / q_here[i]
        for i in range(p_here.size):
            bucket = ((bits[i] + _HALF) >> _SHIFT) - _LOWEST
            bucket = bucket if bucket > 0 else 0
            bucket = bucket if bucket < NEVER_DRAFTED else NEVER_DRAFTED - 1
            buckets_here[i] = bucket if q_here[i] > 0.0 else NEVER_DRAFTED
    return buckets


@kernel
def closed_groups(sums: Matrix) -> Groups:
    """One closed group for every bucket that holds drafted tokens; `contained` is left to fill.

    Parameters
    ----------
    sums : ndarray, shape (NUM_BUCKETS, 2 or more)
        Sums of p and of q over every bucket.
    """
    count = 0
    for bucket in range(NEVER_DRAFTED):
        count += sums[bucket, 1] > 0.0
    groups = _room(count)
    n = 0
    for bucket in range(NEVER_DRAFTED):
        if sums[bucket, 1] > 0.0:
            _put(groups, n, least_key(bucket), bucket, sums[bucket, 0], sums[bucket, 1])
            n += 1
    return groups


@kernel
def _room(count: int) -> Groups:
    groups = Groups(
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count + 1),
        np.empty(count + 1),
        np.empty(count + 1),
    )
    groups.sums_p[0] = 0.0
    groups.sums_q[0] = 0.0
    groups.contained[0] = 0.0
    return groups


@kernel
def _put(groups: Groups, n: int, key: int, bucket: int, p: float, q: float) -> None:
    groups.keys[n] = key
    groups.buckets[n] = bucket
    groups.sums_p[n + 1] = groups.sums_p[n] + p
    groups.sums_q[n + 1] = groups.sums_q[n] + q


@kernel
def least_key(bucket: int) -> int:
    """Least key that a bucket could hold."""
    return (bucket + _LOWEST) << _SHIFT if bucket > 0 else 0


@kernel
def mean_ratios(groups: Groups) -> Vector:
    """p/q of every group, never out of order, however little of a group shows in the sums."""
    ratios = groups.keys.view(np.float64).copy()
    for g in range(ratios.size):
        bucket = groups.buckets[g]
        p_inside = groups.sums_p[g + 1] - groups.sums_p[g]
        q_inside = groups.sums_q[g + 1] - groups.sums_q[g]
        if bucket >= 0 and p_inside > ratios[g] * q_inside:
            highest = EDGES[bucket + 1]
            ratios[g] = p_inside / q_inside if p_inside < highest * q_inside else highest
    return ratios


@kernel
def keys_of(p: Vector, q: Vector, tokens: Any) -> Keys:
    """Packed keys of some tokens: they sort by p/q, then by token."""
    keys = np.empty(tokens.size, np.int64)
    ratio = keys.view(np.float64)
    for i in range(tokens.size):
        ratio[i] = p[tokens[i]] / q[tokens[i]]
        keys[i] = ((keys[i] + _HALF) & ~TOKEN_MASK) | np.int64(tokens[i])
    return keys


@kernel
def open_tokens(buckets: Buckets, is_open: Flags) -> NDArray[np.int32]:
    """Ids of all tokens in open buckets."""
    tokens = np.empty(buckets.size + 1, np.int32)
    return tokens[: tokens_in(buckets, is_open, tokens)]


@kernel
def opened(groups: Groups, is_open: Flags, keys: Keys, p: Vector, q: Vector) -> Groups:
    """Replace the open buckets by their tokens, whose sorted keys are given.

    `contained` is left to fill at the new tokens.
    """
    count = keys.size
    for g in range(groups.keys.size):
        bucket = groups.buckets[g]
        count += bucket < 0 or not is_open[bucket]
    result = _room(count)
    n = 0
    k = 0
    for g in range(groups.keys.size):
        bucket = groups.buckets[g]
        if bucket >= 0 and is_open[bucket]:
            last = bucket + 1 == NEVER_DRAFTED
            while k < keys.size and (last or keys[k] < least_key(bucket + 1)):
                token = keys[k] & TOKEN_MASK
                _put(result, n, keys[k], ~bucket, p[token], q[token])
                n += 1
                k += 1
        else:
            p_inside = groups.sums_p[g + 1] - groups.sums_p[g]
            q_inside = groups.sums_q[g + 1] - groups.sums_q[g]
            _put(result, n, groups.keys[g], bucket, p_inside, q_inside)
            result.contained[n + 1] = groups.contained[g + 1]
            n += 1
    return result


@kernel(reassociate=True)
def _excess_mass(p: Vector, q: Vector, buckets: Buckets, ratio: Vector) -> float:
    mass = 0.0
    for i in range(p.size):
        excess = p[i] - ratio[buckets[i]] * q[i]
        mass += excess if excess > 0.0 else 0.0
    return mass


@kernel
def excess_token(p: Vector, q: Vector, buckets: Buckets, ratio: Vector, uniform: float) -> int:
    """Draw from the positive part of p - ratio q, `ratio` given by bucket; -1 if it has no mass."""
    masses = np.empty((p.size + _BLOCK - 1) // _BLOCK)
    for block in range(masses.size):
        here = slice(block * _BLOCK, (block + 1) * _BLOCK)
        masses[block] = _excess_mass(p[here], q[here], buckets[here], ratio)
    total = masses.sum()
    if total <= 0.0:
        return -1
    point = uniform * total
    block = 0
    while block + 1 < masses.size and point >= masses[block]:
        point -= masses[block]
        block += 1
    last = -1
    for i in range(block * _BLOCK, p.size):
        excess = p[i] - ratio[buckets[i]] * q[i]
        if excess > 0.0:
            last = i
            if point < excess:
                return last
            point -= excess
        if last >= 0 and i + 1 == (block + 1) * _BLOCK:
            return last  # rounding has led past the last token of the block
    if last < 0:  # and here past the last of all
        for i in range(p.size):
            if p[i] > ratio[buckets[i]] * q[i]:
                last = i
    return last
