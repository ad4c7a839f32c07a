r"""Containment and drafted mass of successive sampling without replacement, in floating point.

Give every token an independent exponential clock of rate q_i. The first K to ring are K draws
without replacement (the Plackett-Luce law), so with :math:`g_i(t) = e^{q_i t} - 1` and the
elementary symmetric polynomials e_n

.. math:: 1 - Q(H) = (1 - q(H)) \sum_{n<K} S_n(H), \qquad
          S_n(H) = \int_0^\infty e^{-t} e_n(g_i, i \in H)\,dt .

Term n is the probability that exactly n tokens of H ring before the first one outside. Along a
prefix order one token at a time is added to the truncated Poisson-binomial law of the number of
clocks that rang by time t, at every quadrature node t. All terms are positive, so nothing cancels.

Token i is drafted if fewer than K others ring before it:

.. math:: \sum_i p_i \Pr(i \in \{X_1..X_K\})
          = \int_0^\infty \sum_i p_i\, q_i e^{-q_i t} \Pr(N_{-i}(t) < K)\,dt ,

with N_{-i}(t) the number of other clocks that rang by time t. At every node one token at a time is
added to the law of that number and to the sum over i.
"""

from __future__ import annotations

import numpy as np

from mdsd_opt.base.arrays import Integers, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search import add_carrying, suffix_sums

#: Most drafts for which the whole law is updated; beyond, negligible parts of it are left out.
_WHOLE_LAW = 8

#: Probability below which parts count as zero if the law is not updated as a whole.
_NEGLIGIBLE = 1e-40


def rates_left(q: Vector, num_drafts: int) -> float:
    """Slowest rate that matters: 1 minus the K-1 largest q, as the sum of the others."""
    if num_drafts == 1:
        return float(q.sum())
    positive = q[q > 0.0]  # many zeros are many ties, over which selection is slow
    size = positive.size - num_drafts + 1
    return float(np.partition(positive, size)[:size].sum()) if size > 0 else 0.0


@kernel(reassociate=True)
def prefix_curve(
    q: Vector, outside: float, num_drafts: int, t: Vector, w: Vector
) -> tuple[Vector, Vector]:
    r"""Containment Q of every prefix of q (already in order), and its slopes.

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
    silent = suffix_sums(q, outside)
    total = silent[0]
    largest = 0
    for j in range(num_tokens):
        if q[j] > q[largest]:
            largest = j
    others_of_largest = suffix_sums(q[:largest], silent[min(largest + 1, num_tokens)])[0]

    rang = np.zeros((max(k - 1, 1), num_nodes))  # Pr(exactly n clocks of the prefix rang by t)
    rang[0, :] = 1.0
    some = np.zeros(num_nodes)  # Pr(1 to K - 2 of them rang by t)
    decay = w * np.exp(-total * t)  # quadrature weight times Pr(no clock outside rang by t)
    hit = np.empty(num_nodes)  # Pr(the new clock rang by t)
    # Nodes at which Pr(exactly n rang) is not negligible: row n from begin[n] to before end[n].
    begin = np.full(rang.shape[0], num_nodes)
    end = np.full(rang.shape[0], num_nodes)
    begin[0] = 0
    contained = np.empty(num_tokens + 1)
    contained[0] = 0.0
    slopes = np.zeros(num_tokens)
    first_outside = 1.0  # sum over n < K of S_n
    lost = 0.0  # in rounding, of first_outside
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
                if rate * t[num_nodes - 1] < 2e-3 and since_rebuild < 64:
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
                if k <= _WHOLE_LAW:
                    for n in range(k - 2, 0, -1):
                        for node in range(num_nodes):
                            rang[n, node] += hit[node] * (rang[n - 1, node] - rang[n, node])
                    for node in range(num_nodes):
                        rang[0, node] -= hit[node] * rang[0, node]
                else:
                    _add_to_windows(rang, hit, begin, end)
                    if since_rebuild == 0:
                        _narrow_windows(rang, begin, end)
        first_outside, lost = add_carrying(first_outside, added, lost)
        escaped = first_outside * silent[j + 1] / total
        contained[j + 1] = min(max(1.0 - escaped, 0.0), 1.0)
        if rate * first_outside > total:  # little is left: the terms below would cancel
            slopes[j] = max(contained[j + 1] - contained[j], 0.0) / rate
        elif rate > 0.0:
            slopes[j] = max((first_outside - silent[j] * added / rate / total) / total, 0.0)
    return contained, slopes


@kernel(reassociate=True)
def _add_to_windows(rang: Matrix, hit: Vector, begin: Integers, end: Integers) -> None:
    """Add a token to the law of the number of clocks that rang, where it is not negligible.

    The later, the more have rung: row n begins at the first node where row n - 1 has begun to
    count, and ends (see `_narrow_windows`) where more than n have surely rung.
    """
    for n in range(rang.shape[0] - 1, 0, -1):
        while begin[n] > 0 and rang[n - 1, begin[n] - 1] > _NEGLIGIBLE:
            begin[n] -= 1
        fewer = rang[n - 1, begin[n] : end[n]]
        exactly = rang[n, begin[n] : end[n]]
        rings = hit[begin[n] : end[n]]
        for i in range(exactly.size):
            exactly[i] += rings[i] * (fewer[i] - exactly[i])
    none = rang[0, : end[0]]
    for i in range(none.size):
        none[i] -= hit[i] * none[i]


@kernel
def _narrow_windows(rang: Matrix, begin: Integers, end: Integers) -> None:
    """Let each row end where it and all rows before it have become negligible."""
    before = 0
    for n in range(rang.shape[0]):
        while end[n] > max(begin[n], before) and rang[n, end[n] - 1] < _NEGLIGIBLE:
            end[n] -= 1
            rang[n, end[n]] = 0.0
        before = end[n]


@kernel(reassociate=True)
def inclusion_masses(
    p: Vector, q: Vector, t: Vector, w: Vector, rang: Matrix, hits: Matrix
) -> Vector:
    """Compute the integral for 1 .. K drafts, shape (K,); t and w are nodes and weights for K.

    Two arrays, shape (K, nodes), are updated in place as the tokens of p and q are added: `rang` is
    the probability that exactly n of all tokens rang by t, `hits` the sum over i in which exactly n
    of the others rang.
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
