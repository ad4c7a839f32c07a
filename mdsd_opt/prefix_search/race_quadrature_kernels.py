r"""Quadrature in time for the race of exponential clocks behind K drafts without replacement.

What is integrated is :math:`e^{-\lambda t} \Pr(N_t < K)`, N_t the number of clocks that have rung.
With t = exp(x - exp(-x)) the trapezoid rule in x converges exponentially once its step resolves
the fall of :math:`\Pr(N_t < K)`. The time of the K-th ring is a sum of K exponential times, so
its relative width is at least :math:`1/\sqrt K`, and the step shrinks like that. Until it, the
clocks left ring at the rate `slowest` = 1 - (K - 1 largest q) at least, so it is at most a Gamma(K)
time over `slowest`, which ends the range.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.numba_cache import kernel

Vector = NDArray[np.float64]

#: First x for integrands that begin like t**2 (t = 1e-5), and like a constant (t = 1e-17).
FROM_SQUARE = -2.2
FROM_CONSTANT = -3.6

#: Largest `race_work`: some ten seconds a pass, about a minute with a certificate.
MAX_RACE_WORK = 2.5e10

#: Times and rates of float64 end here: no rate is slower than exp(-_LAST).
_LAST = 700.0


@kernel(inner=True)
def race_grid(slowest: float, num_drafts: int, first: float) -> tuple[float, int]:
    """Step in x and number of nodes; absolute error of Q and of inclusion about 1e-14."""
    k = float(num_drafts)
    step = 0.23 if k <= 4 else min(0.2, 0.57 / np.sqrt(k))
    # A Gamma(K) time is longer than this with a probability of 1e-14.
    return step, _size(step, first, (k + 8.0 * np.sqrt(k) + 22.0) / slowest)


@kernel(inner=True)
def race_work(tokens: int, num_drafts: int, slowest: float) -> float:
    """Tokens x drafts x nodes, of as many tokens added one at a time; 0 where forms are closed."""
    if num_drafts <= 2:
        return 0.0
    return float(tokens) * num_drafts * race_grid(slowest, num_drafts, FROM_SQUARE)[1]


@kernel
def race_nodes(slowest: float, num_drafts: int, first: float) -> tuple[Vector, Vector]:
    """Times and weights, increasing."""
    step, size = race_grid(slowest, num_drafts, first)
    return _nodes(step, first, size)


@kernel
def checking_nodes(slowest: float, num_drafts: int, first: float) -> tuple[Vector, Vector]:
    """Times and weights of `checking_grid`, increasing."""
    step, first, size = checking_grid(slowest, num_drafts, first)
    return _nodes(step, first, size)


@kernel(inner=True)
def checking_grid(slowest: float, num_drafts: int, first: float) -> tuple[float, float, int]:
    """Step, first x and number of nodes to check others: twice as many, numbers of their own."""
    k = float(num_drafts)
    first -= 0.29
    step = 0.31 / np.sqrt(k + 4.0)
    return step, first, _size(step, first, (3.0 * k + 40.0) / slowest)


@kernel(inner=True)
def _size(step: float, first: float, end: float) -> int:
    size = int(np.ceil((min(np.log(end), _LAST) - first) / step)) + 1
    return size + -size % 4  # whole vectors; more nodes do no harm


@kernel
def _nodes(step: float, first: float, size: int) -> tuple[Vector, Vector]:
    times = np.empty(size)
    weights = np.empty(size)
    fill_nodes(times, weights, step, first)
    return times, weights


@kernel(inner=True)
def fill_nodes(times: Vector, weights: Vector, step: float, first: float) -> None:
    """Write the nodes x = first, first + step, ..."""
    for j in range(times.size):
        x = first + step * j
        times[j] = np.exp(x - np.exp(-x))
        weights[j] = step * times[j] * (1.0 + np.exp(-x))
