"""Sums for water levels and for what a marginal shares with the target, little error in each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.sum_kernels import BLOCK, add_carrying

Vector = NDArray[np.float64]


@kernel(reassociate=True, inner=True)
def _split(p: Vector, q: Vector, level: float, above: bool) -> tuple[float, float]:
    p_mass = 0.0
    q_mass = 0.0
    for i in range(p.size):
        stays = (p[i] >= level * q[i]) == above
        p_mass += p[i] if stays else 0.0
        q_mass += 0.0 if stays else q[i]
    return p_mass, q_mass


@kernel
def split_at(p: Vector, q: Vector, level: float, above: bool) -> tuple[float, float]:
    """Sum of p where p >= level q is `above`, and sum of q elsewhere."""
    p_mass = 0.0
    q_mass = 0.0
    p_lost = 0.0
    q_lost = 0.0
    for start in range(0, p.size, BLOCK):
        here = _split(p[start : start + BLOCK], q[start : start + BLOCK], level, above)
        p_mass, p_lost = add_carrying(p_mass, here[0], p_lost)
        q_mass, q_lost = add_carrying(q_mass, here[1], q_lost)
    return p_mass + p_lost, q_mass + q_lost
