"""Tokens of one row of logits in groups of nearly equal p/q.

A bucket holds ratios between two neighbouring values of their leading bits, 2048 to an octave;
neighbouring buckets that matter little are merged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Keys, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search import drop_impossible, likeliest_tokens, weigh_row

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

#: Scale of these buckets, as `ratio_groups_kernels.fill_buckets` takes it.
SCALE = _SHIFT, 0, _LOWEST - 2, (BELOW, ABOVE, MASSLESS, NEVER_DRAFTED)

#: Least ratio of each bucket but the first, the last and the one after the first.
_EDGES = ((np.arange(NUM_BUCKETS) + (_LOWEST - 2)) << _SHIFT).view(np.float64)

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
    num_likeliest = likeliest_tokens(exponents, q, likeliest.size, likeliest)
    p_factor, q_factor = 1.0 / p_total, 1.0 / q_total
    for i in range(p.size):
        p[i] *= p_factor
        q[i] *= q_factor
    return p_total, q_total, num_likeliest, support


@kernel(inner=True)
def _doubt(spread: float) -> float:
    """Half of the KL that a group may hide, whose ratios are within this factor."""
    width = spread - 1.0  # no less than the logarithm
    return spread * spread * spread * width * width / 8.0


@kernel
def merge_buckets(
    keys: Keys, sums: Matrix, lowest: float, highest: float, counts: NDArray[np.int32],
    group_of_bucket: Keys, groups: Matrix,
) -> int:  # fmt: skip
    """Merge the buckets that can be drafted into groups, in order; return their number.

    Rows of `groups` are P, q and what a group may hide of KL for each unit of acceptance. A law may
    spread the ratios x/p within a group no further than p/q, and a spread by a factor 1 + w is
    worth about w^2/8, at most (1 + w)^3 w^2/4. `lowest` and `highest` are extreme ratios p/q in the
    open-ended buckets, which are not merged; of no meaning for one token alone. `counts` is room
    for the numbers of tokens.
    """
    for bucket in range(counts.size):
        counts[bucket] = 0
    for i in range(keys.size):
        counts[keys[i]] += 1
    count = 0
    factor = 0.0  # one over the least ratio of the group at hand
    for bucket in range(NEVER_DRAFTED):
        if counts[bucket] == 0:
            continue
        p, q = sums[bucket, 0], sums[bucket, 1]
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
            hides = bucket > MASSLESS and counts[bucket] > 1
            groups[2, count] = _doubt(stop / start) if hides else 0.0
            count += 1
        group_of_bucket[bucket] = count - 1
    group_of_bucket[NEVER_DRAFTED] = count
    return count
