r"""Containment probabilities of successive sampling without replacement, in floating point.

Give every token an independent exponential clock of rate q_i. The first K to ring are K draws
without replacement (the Plackett-Luce law), so with :math:`g_i(t) = e^{q_i t} - 1` and the
elementary symmetric polynomials e_n

.. math:: 1 - Q(H) = (1 - q(H)) \sum_{n<K} S_n(H), \qquad
          S_n(H) = \int_0^\infty e^{-t} e_n(g_i, i \in H)\,dt .

Term n is the probability that exactly n tokens of H ring before the first one outside. Along a
prefix order one token at a time is added to the truncated Poisson-binomial law of the number of
clocks that rang by time t, at every quadrature node t. All terms are positive, so nothing cancels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.numba_cache import kernel

Vector = NDArray[np.float64]


def quadrature_nodes(slowest_rate: float, num_drafts: int) -> tuple[Vector, Vector]:
    r"""Double-exponential nodes and weights for :math:`\int_0^\infty f(t)\,dt`.

    With t = exp(x - exp(-x)) the trapezoid rule in x is exact to rounding for sums of
    exponentials whose rates lie in [slowest_rate, 1].
    """
    step = 0.25 if num_drafts <= 4 else 0.2 if num_drafts <= 8 else 0.15
    first = -2.2 if num_drafts <= 8 else -2.6
    last = np.log(38.0 / slowest_rate)
    size = int(np.ceil((last - first) / step)) + 1
    x = first + step * np.arange(-(-size // 8) * 8)  # whole vectors; more nodes do no harm
    t = np.exp(x - np.exp(-x))
    return t, step * t * (1.0 + np.exp(-x))


def rates_left(q: Vector, num_drafts: int) -> float:
    """1 minus the K-1 largest q, as the sum of the others: the slowest rate that matters."""
    if q.size < num_drafts:
        return 0.0
    if num_drafts == 1:
        return float(q.sum())
    return float(np.partition(q, q.size - num_drafts + 1)[: q.size - num_drafts + 1].sum())


@kernel(reassociate=True)
def prefix_curve(
    q: Vector, outside: float, num_drafts: int, t: Vector, w: Vector
) -> tuple[Vector, Vector]:
    r"""Q of every prefix of q (already in order), and its slopes.

    `outside` is the rate of all tokens not in q. The slope of token x after prefix H is
    :math:`[Q(H + x) - Q(H)] / q_x = \sum_{n<K} S_n(H + x) - (1 - q(H)) \sum_{1 \le n<K} I_n`, with
    :math:`q_x I_n` what x adds to S_n: no difference of neighbouring values of Q is taken but where
    so little is left beside x that these terms are large and cancel. Only the sums over n matter,
    so beside the law of the number of clocks that rang, one row holds
    Pr(1 <= number <= K - 2).
    """
    num_tokens = q.size
    num_nodes = t.size
    k = num_drafts
    # Rates outside each prefix as sums of what is outside, never as 1 - sum.
    silent = np.empty(num_tokens + 1)
    silent[num_tokens] = outside
    for j in range(num_tokens - 1, -1, -1):
        silent[j] = silent[j + 1] + q[j]
    total = silent[0]
    largest = 0
    for j in range(num_tokens):
        if q[j] > q[largest]:
            largest = j
    others_of_largest = outside
    for j in range(num_tokens):
        if j != largest:
            others_of_largest += q[j]

    rang = np.zeros((max(k - 1, 1), num_nodes))  # Pr(exactly n clocks of the prefix rang by t)
    rang[0, :] = 1.0
    some = np.zeros(num_nodes)  # Pr(1 to K - 2 of them rang by t)
    decay = w * np.exp(-total * t)  # quadrature weight times Pr(no clock outside rang by t)
    hit = np.empty(num_nodes)  # Pr(the new clock rang by t)
    contained = np.empty(num_tokens + 1)
    contained[0] = 0.0
    slopes = np.zeros(num_tokens)
    first_outside = 1.0  # sum over n < K of S_n
    since_rebuild = 0
    for j in range(num_tokens):
        rate = q[j]
        added = 0.0
        if rate > 0.0:
            others = others_of_largest if j == largest else total - rate
            if k > 1 and others > 0.0:
                added = rate * total / others
            if k > 2:
                gained = 0.0
                if rate * t[num_nodes - 1] < 1e-3 and since_rebuild < 64:
                    since_rebuild += 1
                    for node in range(num_nodes):
                        y = rate * t[node]  # series of 1 - exp(-y) and of exp(y) - 1
                        h = y * (1 - y * (0.5 - y * (1.0 / 6 - y * (1.0 / 24 - y / 120))))
                        g = y * (1 + y * (0.5 + y * (1.0 / 6 + y * (1.0 / 24 + y / 120))))
                        hit[node] = h
                        decay[node] += decay[node] * g
                        gained += decay[node] * h * some[node]
                        some[node] += h * (rang[0, node] - rang[k - 2, node])
                else:  # a heavy token, or rounding that would accumulate
                    since_rebuild = 0
                    for node in range(num_nodes):
                        h = -np.expm1(-rate * t[node])
                        hit[node] = h
                        decay[node] = w[node] * np.exp(-silent[j + 1] * t[node])
                        gained += decay[node] * h * some[node]
                        some[node] += h * (rang[0, node] - rang[k - 2, node])
                added += gained
                for n in range(k - 2, 0, -1):
                    for node in range(num_nodes):
                        rang[n, node] += hit[node] * (rang[n - 1, node] - rang[n, node])
                for node in range(num_nodes):
                    rang[0, node] -= hit[node] * rang[0, node]
        first_outside += added
        escaped = first_outside * silent[j + 1] / total
        contained[j + 1] = min(max(1.0 - escaped, 0.0), 1.0)
        if rate * first_outside > total:  # little is left: the terms below would cancel
            slopes[j] = max(contained[j + 1] - contained[j], 0.0) / rate
        elif rate > 0.0:
            slopes[j] = max((first_outside - silent[j] * added / rate / total) / total, 0.0)
    return contained, slopes
