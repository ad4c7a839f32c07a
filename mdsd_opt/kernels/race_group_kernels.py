"""Groups of tokens in the race: what a prefix needs to know of each to have it added at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.kernels.race_kernels import Race, State, add_light_tokens, add_token
from mdsd_opt.kernels.sum_kernels import sum_of_others
from mdsd_opt.numba_cache import kernel

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
_COLUMNS = 8


class RaceGroups(NamedTuple):
    """Sums of the tokens of every group, and chains of its heavy tokens (-1 ends a chain)."""

    sums: Matrix
    first_heavy: Integers
    next_heavy: Integers
    heavy: Vector


@kernel
def rates_left(q: Vector, likeliest: Integers) -> tuple[float, float]:
    """Sums of all q but the given ones, and of all but the first of them."""
    slowest = sum_of_others(q, likeliest)
    return slowest, slowest + q[likeliest[1:]].sum()


@kernel
def collect_groups(p: Vector, q: Vector, keys: Keys, num_groups: int, race: Race) -> RaceGroups:
    """Sum p, q and the moments of light tokens by group."""
    sums = np.zeros((num_groups, _COLUMNS))
    run = np.zeros_like(sums)
    first_heavy = np.full(num_groups, -1, np.int64)
    next_heavy = np.empty(q.size, np.int64)
    heavy = np.empty(q.size)
    num_heavy = 0
    factor = 1.0 / race.light_rate
    for start in range(0, q.size, _RUN):
        # Slices, indexed from 0: no index needs a check for being negative.
        p_here, q_here, keys_here = (
            p[start : start + _RUN],
            q[start : start + _RUN],
            keys[start : start + _RUN],
        )
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
        put_aside = sums.reshape(-1)  # flat, for the sake of vector instructions
        running = run.reshape(-1)
        for b in range(running.size):
            put_aside[b] += running[b]
            running[b] = 0.0
    return RaceGroups(sums, first_heavy, next_heavy, heavy)


@kernel
def add_group(state: State, groups: RaceGroups, g: int, race: Race) -> None:
    if groups.sums[g, MOMENT] > 0.0:
        add_light_tokens(state, groups.sums[g, MOMENT:], race)
    i = groups.first_heavy[g]
    while i >= 0:
        add_token(state, groups.heavy[i], race)
        i = groups.next_heavy[i]
