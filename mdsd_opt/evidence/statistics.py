r"""Tests whose p-values are exact or upper bounds, so that a false-alarm rate of 1e-6 means it.

The usual chi-square approximation cannot be trusted that far out in the tail. Here the counts of a
multinomial are split along a binary tree of cells: given the count of a node, the count of its left
half is binomial, independently over the nodes. Its randomised probability integral transform is
exactly uniform, and the sum of squares of the corresponding normal scores exactly chi-square.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Vector
from mdsd_opt.evidence.report import Interval
from mdsd_opt.evidence.sentences import LARGEST_Z

#: Number of levels of the tree that the coarse checks use: eight groups.
COARSE_LEVELS = 3

#: Most outcomes that are compared with earlier ones.
MAX_OUTCOMES = 1 << 17

#: Sign patterns over the four quarters, each balanced.
_SIGNS = np.array([[-1.0, -1.0, 1.0, 1.0], [1.0, -1.0, -1.0, 1.0], [1.0, -1.0, 1.0, -1.0]])

#: Number of outcomes in the smallest windows.
_LEAST_SIZE = 8


def split_scores(
    counts: Integers, probabilities: Vector, rng: np.random.Generator
) -> tuple[Vector, Integers]:
    """Independent standard normal scores of multinomial counts, and the depth of each in the tree.

    Scores and depths have shape (k - 1,). Counts and probabilities, which are positive, are those
    of k cells in the order in which they are to be grouped; counts are randomised.
    """
    reached = np.concatenate([[0], np.cumsum(counts)])
    mass = np.concatenate([[0.0], np.cumsum(probabilities)])
    nodes = []
    waiting = [(0, counts.size, 0)]
    while waiting:
        start, stop, depth = waiting.pop()
        if stop - start < 2:
            continue
        half = (mass[start] + mass[stop]) / 2
        middle = int(np.searchsorted(mass, half))
        if half - mass[middle - 1] < mass[middle] - half:
            middle -= 1
        middle = min(max(middle, start + 1), stop - 1)
        nodes.append((start, middle, stop, depth))
        waiting += [(start, middle, depth + 1), (middle, stop, depth + 1)]
    if not nodes:
        return np.empty(0), np.empty(0, np.int64)
    start, middle, stop, depths = np.array(nodes, dtype=np.int64).T
    share = (mass[middle] - mass[start]) / (mass[stop] - mass[start])
    trials, hits = reached[stop] - reached[start], reached[middle] - reached[start]
    return binomial_scores(hits, trials, np.clip(share, 0.0, 1.0), rng), depths


def binomial_scores(
    hits: Integers, trials: Integers | int, share: Vector | float, rng: np.random.Generator
) -> Vector:
    """Standard normal scores of binomial counts (N,), exact by randomisation.

    Trials and share are those of each count, or numbers where they are the same for all.
    """
    from scipy import special

    uniform = rng.random(hits.shape)
    met, place = hits, np.arange(hits.size)
    if np.ndim(trials) == 0 and np.ndim(share) == 0:  # then few counts differ
        met, place = np.unique(hits, return_inverse=True)
    below, above = (
        (1.0 - uniform) * tail(met - 1, trials, share)[place]
        + uniform * tail(met, trials, share)[place]
        for tail in (binomial_at_most, binomial_above)
    )
    scores = np.where(below < 0.5, special.ndtri(below), -special.ndtri(above))
    return np.clip(scores, -LARGEST_Z, LARGEST_Z)


def binomial_at_most(hits: Any, trials: Any, share: Any) -> Vector:
    """Probability of at most `hits` hits, with all digits however small it is."""
    from scipy import special

    hits = np.asarray(hits)
    inside = (hits >= 0) & (hits < trials)
    tail = special.betaincc(
        np.where(inside, hits + 1, 1), np.where(inside, trials - hits, 1), share
    )
    return np.where(inside, tail, np.where(hits < 0, 0.0, 1.0))


def binomial_above(hits: Any, trials: Any, share: Any) -> Vector:
    """Probability of more than `hits` hits, with all digits however small it is."""
    from scipy import special

    hits = np.asarray(hits)
    inside = (hits >= 0) & (hits < trials)
    tail = special.betainc(np.where(inside, hits + 1, 1), np.where(inside, trials - hits, 1), share)
    return np.where(inside, tail, np.where(hits < 0, 1.0, 0.0))


def chi_square(scores: Vector) -> float:
    """p-value of a sum of squares of standard normal scores."""
    from scipy import special

    return float(special.chdtrc(scores.size, np.square(scores).sum())) if scores.size else 1.0


def two_sided(hits: Any, trials: Any, share: Any) -> Vector:
    """Exact two-sided p-values of binomial counts."""
    lower = binomial_at_most(hits, trials, share)
    upper = binomial_above(np.asarray(hits) - 1, trials, share)
    return np.asarray(np.minimum(1.0, 2.0 * np.minimum(lower, upper)))


def least_scores(hits: Any, trials: int, share: Vector) -> Vector:
    r"""Lower bounds of the normal scores of binomial counts whose tails underflow.

    The tail is at most :math:`e^{-D}`, :math:`D = n \mathrm{KL}(h/n \,\|\, p)`, and the normal tail
    beyond :math:`z = \sqrt{2 D - \log(4 \pi D)}` at least that, for z > 1.
    """
    from scipy import special

    seen = np.asarray(hits) / trials
    exponent = trials * (special.rel_entr(seen, share) + special.rel_entr(1 - seen, 1 - share))
    exponent = np.clip(exponent, 1.0, 1e300)  # finite where nothing should have come
    return np.asarray(np.sqrt(np.maximum(2 * exponent - np.log(4 * np.pi * exponent), 0.0)))


def at_most(hits: int, trials: int, share: float) -> float:
    """p-value of a number of hits if the probability of a hit is at most `share`."""
    return float(binomial_above(hits - 1, trials, min(share, 1.0)))


def single_tokens(counts: Integers, probabilities: Vector) -> float:
    """Smallest p-value over single possible tokens, corrected for their number.

    Half of the correction is shared out evenly and half in proportion to the probabilities, so that
    likely tokens do not pay for a long tail.
    """
    possible = probabilities > 0
    counts, probabilities = counts[possible], probabilities[possible]
    each = two_sided(counts, counts.sum(), probabilities)
    share = (probabilities + 1.0 / probabilities.size) / 2.0
    return float(min(1.0, (each / share).min()))


def bins_of(points: Vector, number: int) -> Integers:
    """Bins of equal width in which points of [0, 1] lie."""
    return np.minimum((points * number).astype(np.int64), number - 1)


def consecutive(groups: Integers, probabilities: Vector, rng: np.random.Generator) -> float:
    """p-value for independence of each second outcome from the one before it.

    `groups`, shape (N,), are those of the outcomes in the order of the trials, `probabilities`,
    shape (g,), their law.
    """
    pairs = groups[: groups.size // 2 * 2].reshape(-1, 2)
    size = probabilities.size
    table = np.bincount(pairs[:, 0] * size + pairs[:, 1], minlength=size * size)
    rows = [split_scores(row, probabilities, rng)[0] for row in table.reshape(size, size)]
    return chi_square(np.concatenate(rows))


def recurrence(points: Vector, rng: np.random.Generator) -> float:
    """p-value for independence of uniform points (N,) from all earlier ones, or a bound on it.

    A generator whose seeds come back, in turn or by chance, gives outcomes that follow their law
    one by one and beside their neighbours. Here each is held against all earlier ones, by signs of
    points that are uniform on [0, 1] if all is well: three of them, which tell quarters apart.
    """
    quarters = bins_of(points[:MAX_OUTCOMES], 4)
    p_values = [
        p_value
        for signs in _SIGNS[:, quarters]
        for p_value in (_of_lags(signs), _of_windows(signs, rng))
    ]
    return min(1.0, len(p_values) * min(p_values))


def _of_lags(signs: Vector) -> float:
    """p-value for independence from the outcome any number of trials before.

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
    """p-value that windows of trials (8, 16, 32, ...) differ neither too much nor too little."""
    p_values, size = [], _LEAST_SIZE
    while 2 * size <= signs.size:
        windows = signs[: signs.size // size * size].reshape(-1, size)
        hits = (windows > 0).sum(axis=1)
        above = chi_square(binomial_scores(hits, size, 0.5, rng))
        p_values.append(2.0 * min(above, 1.0 - above))
        size *= 2
    return min([1.0, *(len(p_values) * x for x in p_values)])


def one_sided_bound(hits: int, probabilities: Vector) -> float:
    r"""Chernoff bound of a sum of Bernoulli variables, on the side of the mean where `hits` lies.

    :math:`\Pr(S \ge s) \le \min_{\theta \ge 0} e^{-\theta s} \prod_n (1 - p_n + p_n e^\theta)`, and
    the same for the lower tail.
    """
    certain = int((probabilities >= 1).sum())
    p = probabilities[(probabilities > 0) & (probabilities < 1)]
    hits -= certain
    if not 0 <= hits <= p.size:
        return 0.0
    miss, hit = np.log1p(-p), np.log(p)
    if hits in (0, p.size):  # the supremum over theta, at infinity
        return float(np.exp((hit if hits else miss).sum()))
    low, high = (0.0, 60.0) if hits > p.sum() else (-60.0, 0.0)
    for _ in range(60):  # the derivative of the exponent grows with theta
        theta = (low + high) / 2
        tilted = np.exp(hit + theta - np.logaddexp(miss, hit + theta)).sum()
        low, high = (theta, high) if tilted < hits else (low, theta)
    theta = (low + high) / 2
    exponent = float(np.logaddexp(miss, hit + theta).sum()) - theta * hits
    return float(np.exp(min(exponent, 0.0)))


def poisson_bound(hits: NDArray[Any], means: Vector) -> Vector:
    r"""Two-sided Chernoff bounds :math:`2 e^{-\mu} (e \mu / s)^s` for Bernoulli sums."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.where(hits > 0, hits - means + hits * np.log(means / hits), -means)
    exponent = np.where((means == 0) & (hits > 0), -np.inf, exponent)
    return np.minimum(1.0, 2.0 * np.exp(np.minimum(exponent, 0.0)))


def rate_interval(hits: int, trials: int, confidence: float) -> Interval:
    """Clopper-Pearson interval of a probability."""
    from scipy import special

    if trials == 0:
        return Interval(0.0, 1.0)
    each = (1.0 - confidence) / 2
    low = special.betaincinv(hits, trials - hits + 1, each) if hits else 0.0
    high = special.betainccinv(hits + 1, trials - hits, each) if hits < trials else 1.0
    return Interval(float(low), float(high))


def distance(
    outcomes: Integers,
    probabilities: Vector,
    confidence: float,
    groups: Integers | None = None,
) -> tuple[float, Interval]:
    """Total variation between the law of the outcomes and `probabilities`, and an interval.

    The event that holds the deviation is chosen on every second outcome and measured on the others,
    and the other way round. It is made of whole `groups`, shape (V,) with -1 for none, as single
    unlikely outcomes would only add noise. The upper end is the distance of the observed
    frequencies, whose mean is not below the true one, plus the bounded-differences deviation.
    """
    n = outcomes.size
    if n < 2:
        return 0.0, Interval(0.0, 1.0)
    of_outcome = np.arange(probabilities.size) if groups is None else groups
    grouped = of_outcome[outcomes] + 1  # those without a group come first: they are impossible
    mass = np.bincount(of_outcome + 1, weights=probabilities, minlength=1)
    halves = [grouped[0::2], grouped[1::2]]
    frequencies = [np.bincount(half, minlength=mass.size) / half.size for half in halves]
    error = 1.0 - confidence
    excess, lower = [], 0.0
    for chosen_on, half in ((0, 1), (1, 0)):
        event = frequencies[chosen_on] > mass
        inside = min(float(mass[event].sum()), 1.0)
        hits = int(event[halves[half]].sum())
        excess.append(hits / halves[half].size - inside)
        # two one-sided bounds share half of the error
        bound = rate_interval(hits, halves[half].size, 1.0 - error / 2).low
        lower = max(lower, bound - inside)
    estimate = max(float(np.mean(excess)), 0.0)
    observed = np.bincount(outcomes, minlength=probabilities.size) / n
    plain = 0.5 * float(np.abs(observed - probabilities).sum())
    upper = min(1.0, plain + float(np.sqrt(np.log(2.0 / error) / (2 * n))))
    return estimate, Interval(min(lower, estimate), max(upper, estimate))


def oddest(shares: Vector, law: Vector, calls: float = np.inf) -> int:
    """Outcome that deviates most, by Anscombe's roots of counts: chance moves all of them alike."""
    few = 0.375 / calls
    return int(np.argmax(np.abs(np.sqrt(shares + few) - np.sqrt(law + few))))
