"""Draws from what the target has above a marginal with one ratio to q in every bucket."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.numba_cache import kernel

Vector = NDArray[np.float64]
Buckets = NDArray[np.uint16]

#: Tokens whose excess is summed at once.
BLOCK = 1024


@kernel(reassociate=True, inner=True)
def _excess_mass(p: Vector, q: Vector, buckets: Buckets, ratio: Vector) -> float:
    mass = 0.0
    for i in range(p.size):
        excess = p[i] - ratio[buckets[i]] * q[i]
        mass += excess if excess > 0.0 else 0.0
    return mass


@kernel
def excess_token(
    p: Vector, q: Vector, buckets: Buckets, ratio: Vector, uniform: float, masses: Vector
) -> int:
    """Draw from the positive part of p - ratio q, `ratio` given by bucket; -1 if it has no mass.

    `masses` is room for one number for every `BLOCK` tokens.
    """
    total = 0.0
    for block in range(masses.size):
        start, stop = block * BLOCK, (block + 1) * BLOCK
        masses[block] = _excess_mass(p[start:stop], q[start:stop], buckets[start:stop], ratio)
        total += masses[block]
    if total <= 0.0:
        return -1
    point = uniform * total
    block = 0
    while block + 1 < masses.size and point >= masses[block]:
        point -= masses[block]
        block += 1
    while block > 0 and masses[block] <= 0.0:  # rounding has led past the last token
        block -= 1
        point = total
    last = -1
    for i in range(block * BLOCK, min((block + 1) * BLOCK, p.size)):
        excess = p[i] - ratio[buckets[i]] * q[i]
        if excess > 0.0:
            last = i
            if point < excess:
                break
            point -= excess
    return last
