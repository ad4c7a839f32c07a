"""Law of a draft chosen at random from the topmost block that different draft models hit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.numba_cache import kernel

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@kernel(inner=True)
def _add_shares(
    low: Vector, high: Vector, length: float, nodes: Vector, weights: Vector, shares: Vector
) -> None:
    """length x the probability that draft k is the one returned, given that it is in the block.

    Give every draft of the block a uniform rank and return the first: at rank u, another draft must
    lie below the block (mass `low`) or rank later, so its factor is low u + high (1 - u).
    """
    for g in range(nodes.size):
        for k in range(low.size):
            product = 1.0
            for other in range(low.size):
                if other != k:
                    product *= low[other] * nodes[g] + high[other] * (1.0 - nodes[g])
            shares[k] += length * weights[g] * product


@kernel
def chosen_law(
    q: Matrix, levels: Vector, spans: NDArray[np.int64], life: Vector, nodes: Vector,
    weights: Vector, below: Matrix, change: Matrix, shares: Matrix, law: Vector,
) -> None:  # fmt: skip
    """Law over the n tokens in order, integrated over the level; O(K^2 n).

    Parameters
    ----------
    q : ndarray, shape (n, K)
    levels, spans, life : ndarray
        Death levels, and what `spans_of_blocks` makes of them.
    nodes, weights : ndarray
        To integrate polynomials of degree K on [0, 1].
    below, change, shares : ndarray, shapes (n + 1, K) twice and (2, K)
        Zeros, room for the work.
    law : ndarray, shape (n,)
        Zeros; the result.
    """
    n, num_rows = q.shape
    for i in range(n):
        for k in range(num_rows):
            below[i + 1, k] = below[i, k] + q[i, k]
    here, from_blocks = shares[0], shares[1]
    for j in range(1, n):
        if life[j] > 0.0:
            left, right = spans[0, j], spans[1, j]
            for k in range(num_rows):
                here[k] = 0.0
            _add_shares(below[left], below[right], life[j], nodes, weights, here)
            for k in range(num_rows):
                change[left, k] += here[k]
                change[right, k] -= here[k]
    for i in range(n):
        alone = 1.0
        if i > 0:
            alone = min(alone, levels[i])
        if i + 1 < n:
            alone = min(alone, levels[i + 1])
        for k in range(num_rows):
            from_blocks[k] += change[i, k]
            here[k] = from_blocks[k]
        _add_shares(below[i], below[i + 1], alone, nodes, weights, here)
        for k in range(num_rows):
            law[i] += q[i, k] * here[k]
