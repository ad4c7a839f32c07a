"""Law of a draft chosen at random from the topmost block that different draft models hit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.numba_cache import kernel
from mdsd_opt.verifiers.optimal.hull_kernels import spans_of_blocks

Vector = NDArray[np.float64]


@kernel
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
    q: NDArray[np.float64], levels: Vector, nodes: Vector, weights: Vector
) -> Vector:  # fmt: skip
    """Law over the n tokens in order, integrated over the level; q (n, K), O(K^2 n)."""
    n, num_rows = q.shape
    below = np.zeros((n + 1, num_rows))
    for i in range(n):
        for k in range(num_rows):
            below[i + 1, k] = below[i, k] + q[i, k]
    left, right, life = spans_of_blocks(levels)
    change = np.zeros((n + 1, num_rows))
    shares = np.empty(num_rows)
    for j in range(1, n):
        if life[j] > 0.0:
            shares[:] = 0.0
            _add_shares(below[left[j]], below[right[j]], life[j], nodes, weights, shares)
            for k in range(num_rows):
                change[left[j], k] += shares[k]
                change[right[j], k] -= shares[k]
    law = np.zeros(n)
    from_blocks = np.zeros(num_rows)
    for i in range(n):
        alone = 1.0
        if i > 0:
            alone = min(alone, levels[i])
        if i + 1 < n:
            alone = min(alone, levels[i + 1])
        for k in range(num_rows):
            from_blocks[k] += change[i, k]
            shares[k] = from_blocks[k]
        _add_shares(below[i], below[i + 1], alone, nodes, weights, shares)
        for k in range(num_rows):
            law[i] += q[i, k] * shares[k]
    return law
