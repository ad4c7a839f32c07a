r"""Target mass of the drafted tokens, for successive sampling without replacement.

In the race of exponential clocks behind the draws, token i is drafted if fewer than K others ring
before it:

.. math:: \sum_i p_i \Pr(i \in \{X_1..X_K\})
          = \int_0^\infty \sum_i p_i\, q_i e^{-q_i t} \Pr(N_{-i}(t) < K)\,dt ,

with N_{-i}(t) the number of other clocks that rang by time t. At every quadrature node one token at
a time is added to the law of that number and to the sum over i. All terms are positive.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.numba_cache import kernel

Vector = NDArray[np.float64]
Law = NDArray[np.float64]


@kernel(reassociate=True)
def drafted_masses(p: Vector, q: Vector, t: Vector, w: Vector, rang: Law, hits: Law) -> Vector:
    """The integral for 1 .. K drafts, shape (K,); t and w are nodes and weights for K.

    In place, shape (K, nodes), before and after the tokens of p and q are added: `rang` is the
    probability that exactly n of all tokens rang by t, `hits` the sum over i in which exactly n of
    the others rang.
    """
    num_drafts, num_nodes = rang.shape
    rings = np.empty(num_nodes)
    gain = np.empty(num_nodes)
    for j in range(q.size):
        rate = q[j]
        if rate <= 0.0:
            continue
        if rate * t[num_nodes - 1] < 1e-3:
            for node in range(num_nodes):
                y = rate * t[node]  # series of 1 - exp(-y)
                rings[node] = y * (1 - y * (0.5 - y * (1.0 / 6 - y * (1.0 / 24 - y / 120))))
        else:
            for node in range(num_nodes):
                rings[node] = -np.expm1(-rate * t[node])
        for node in range(num_nodes):
            gain[node] = p[j] * rate * (1.0 - rings[node])
        for n in range(num_drafts - 1, 0, -1):
            for node in range(num_nodes):
                hits[n, node] += rings[node] * (hits[n - 1, node] - hits[n, node])
                hits[n, node] += gain[node] * rang[n, node]
            for node in range(num_nodes):
                rang[n, node] += rings[node] * (rang[n - 1, node] - rang[n, node])
        for node in range(num_nodes):
            hits[0, node] += gain[node] * rang[0, node] - rings[node] * hits[0, node]
            rang[0, node] -= rings[node] * rang[0, node]
    masses = np.empty(num_drafts)
    total = 0.0
    for n in range(num_drafts):
        for node in range(num_nodes):
            total += w[node] * hits[n, node]
        masses[n] = total
    return masses
