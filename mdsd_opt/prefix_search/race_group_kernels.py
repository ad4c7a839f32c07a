"""Groups of tokens in the race: what a prefix needs to know of each to have it added at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.race_kernels import (
    add_light_tokens,
    add_token,
    light_once_gain,
)

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]
Keys = NDArray[np.uint16]

#: Tokens after which the running sums are put aside and begun anew: adding equal numbers always
#: rounds the same way, and long runs of them are common (ties, bfloat16).
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
