"""Are outcomes independent of those that came long before them?

A generator whose seeds come back, in turn or by chance, gives outcomes that follow their law one by
one and beside their neighbours. Here each is held against all earlier ones, by signs of points that
are uniform on [0, 1] if all is well: three of them, which tell quarters apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing import statistics

Vector = NDArray[np.float64]

#: Outcomes that are held against earlier ones, at most.
MAX_OUTCOMES = 1 << 17

#: Signs of the four quarters, each of them even.
_SIGNS = np.array([[-1.0, -1.0, 1.0, 1.0], [1.0, -1.0, -1.0, 1.0], [1.0, -1.0, 1.0, -1.0]])

#: Outcomes in the smallest windows.
_LEAST_SIZE = 8


def recurrence(points: Vector, rng: np.random.Generator) -> float:
    """p-value for independence of uniform points from all earlier ones, or a bound on it.

    Parameters
    ----------
    points : ndarray, shape (N,)
        In the order of the trials.
    rng : numpy.random.Generator
        For the randomisation of counts.
    """
    quarters = np.minimum((points[:MAX_OUTCOMES] * 4).astype(np.int64), 3)
    p_values = [
        p_value
        for signs in _SIGNS[:, quarters]
        for p_value in (_of_lags(signs), _of_windows(signs, rng))
    ]
    return min(1.0, len(p_values) * min(p_values))


def _of_lags(signs: Vector) -> float:
    """Do outcomes agree with the one so many trials before? For every lag.

    Products of even, independent signs at one distance are such signs themselves, and Hoeffding's
    bound holds for their sum. Lags get shares in proportion to 1 / L.
    """
    if signs.size < 2:
        return 1.0
    lags = np.arange(1, signs.size)
    sums = np.fft.irfft(np.abs(np.fft.rfft(signs, 2 * signs.size)) ** 2, 2 * signs.size)[lags]
    bounds = 2.0 * np.exp(-(sums**2) / (2.0 * (signs.size - lags)))
    return min(1.0, float((1.0 / lags).sum() * (lags * bounds).min()))


def _of_windows(signs: Vector, rng: np.random.Generator) -> float:
    """Do windows of trials differ more than by chance, or less? Of sizes 8, 16, 32, ..."""
    p_values, size = [], _LEAST_SIZE
    while 2 * size <= signs.size:
        windows = signs[: signs.size // size * size].reshape(-1, size)
        hits = (windows > 0).sum(axis=1)
        trials, share = np.full(hits.size, size), np.full(hits.size, 0.5)
        above = statistics.chi_square(statistics.binomial_scores(hits, trials, share, rng))
        p_values.append(2.0 * min(above, 1.0 - above))
        size *= 2
    return min([1.0, *(len(p_values) * x for x in p_values)])
