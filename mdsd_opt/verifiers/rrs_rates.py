r"""Acceptance rates of recursive rejection sampling.

Without replacement, with q\\x for q without x, renormalised, and p' for the residual,

.. math:: \alpha_K(p, q) = \sum \min(p, q) + \sum_x (q - p)_+(x)\, \alpha_{K-1}(p', q \setminus x) .

Rejected tokens have no mass in p', and p' is the same for all of them; only q\\x differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts.counting import count_power
from mdsd_opt.drafts.drafted_masses import sum_of_others
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.verifiers.ratio_sums import RatioSums
from mdsd_opt.verifiers.rrs_chain import estimated_rates

Vector = NDArray[np.float64]

#: Limits of the exact recursion: sequences of rejected tokens, and tokens visited for them.
_MAX_SEQUENCES = 10_000
MAX_VISITS = 4_000_000

#: Drafts without replacement up to which sequences are sampled; each one costs about K^2.
_MAX_SAMPLED_DRAFTS = 1000

#: Steps of the recursion for independent drafts: K V.
_MAX_STEPS = 10**9
_STEPS_OF_A_CALL = 10_000


def independent_rate(p: Vector, models: Sequence[Vector]) -> float:
    r"""1 - prod_j sum (p_j - q_j)_+ for drafts that do not depend on each other, O(K V)."""
    steps = len(models) * (p.size + _STEPS_OF_A_CALL)
    if steps > _MAX_STEPS:
        raise ProblemTooLarge(
            f"the rate of 'rrs' takes K passes over V: K={len(models)}, V={p.size} is too much. "
            "Draft fewer tokens, or ask for 'optimal' or 'kseq', whose rates are in closed form."
        )
    return independent_rates(p, models)[-1]


def independent_rates(p: Vector, models: Iterable[Vector]) -> list[float]:
    """`independent_rate` of the first draft, the first two, and so on."""
    undecided = 1.0
    left = p
    rates = []
    for q in models:
        if undecided > 0:
            rest = np.maximum(left - q, 0.0)
            rejected = min(float(rest.sum()), 1.0)
            undecided *= rejected
            left = rest / rejected if rejected > 0 else rest
        rates.append(1.0 - undecided)
    return rates


def without_replacement_rate(
    p: Vector, q: Vector, num_drafts: int, num_samples: int, seed: int
) -> tuple[float, float | None]:
    """The rate, and its standard error if it had to be estimated."""
    rates, errors = without_replacement_rates(p, q, [num_drafts], num_samples, seed)
    return rates[0], errors[0]


def without_replacement_rates(
    p: Vector,
    q: Vector,
    num_drafts: Sequence[int],
    num_samples: int,
    seed: int | Sequence[int],
    max_visits: int = MAX_VISITS,
) -> tuple[list[float], list[float | None]]:
    """Rates for several K, and their standard errors where they had to be estimated.

    Parameters
    ----------
    p, q : ndarray, shape (V,)
    num_drafts : sequence of int
    num_samples, seed : int
        Of the estimates; all K share the samples.
    max_visits : int
        Tokens that the exact recursion may visit, about V**(K - 1); K = 2 is always exact.
    """
    sums = RatioSums(p, q)
    support = sums.order.size
    rates: dict[int, tuple[float, float | None]] = {}
    estimated = []
    for k in sorted({min(k, support) for k in num_drafts}):
        sequences = count_power(p.size, max(k - 2, 0))
        if k <= 2 or (sequences <= _MAX_SEQUENCES and sequences * p.size <= max_visits):
            rates[k] = _exact_rate(p, q, k, sums), None
        else:
            estimated.append(k)
    if estimated and estimated[-1] > _MAX_SAMPLED_DRAFTS:
        raise ProblemTooLarge(
            f"the rate of 'rrs' without replacement at K={estimated[-1]} cannot be estimated: it "
            f"ends at K={_MAX_SAMPLED_DRAFTS}. Draft fewer tokens, or ask for 'optimal'."
        )
    if estimated:
        means, errors = estimated_rates(sums, p, q, estimated, num_samples, seed)
        rates |= dict(zip(estimated, zip(means, errors, strict=True), strict=True))
    found = [rates[min(k, support)] for k in num_drafts]
    return [rate for rate, _ in found], [error for _, error in found]


def _exact_rate(p: Vector, q: Vector, num_drafts: int, sums: RatioSums | None = None) -> float:
    overlap = float(np.minimum(p, q).sum())
    rest = np.maximum(p - q, 0.0)
    total = rest.sum()
    if num_drafts == 1 or total <= 0:
        return min(overlap, 1.0)
    rejected = np.maximum(q - p, 0.0)
    if num_drafts == 2:
        drawn = np.flatnonzero(rejected > 0)
        second = _second_overlaps(sums or RatioSums(p, q), float(total), sum_of_others(q)[drawn])
        return min(overlap + float((rejected[drawn] * second).sum()), 1.0)
    left = rest / total
    rate = overlap
    for x in np.flatnonzero(rejected > 0).tolist():
        rate += float(rejected[x]) * _exact_rate(left, _without(q, x), num_drafts - 1)
    return min(rate, 1.0)


def _second_overlaps(sums: RatioSums, total: float, rest: Vector) -> Vector:
    r"""sum_i min(p'_i, q_i / (1 - q_x)) for every x, from the sums of p and q and 1 - q_x; for
    rejected x.

    With T the total of (p - q)_+ and s = 1 / (1 - q_x), the residual p' = (p - q)_+ / T is in the
    order of p/q, too: :math:`\sum \min(p', s q) = [\sum \min(p, (1 + s T) q) - \sum \min(p, q)] /
    T`. Of x itself the sum takes min(p'_x, q_x / (1 - q_x)), which is zero as it should be, because
    a rejected token has p'_x = 0.
    """
    scale = np.divide(1.0, rest, out=np.zeros_like(rest), where=rest > 0)
    gained = sums.overlap(1.0 + scale * total) - sums.overlap(1.0)
    result: Vector = np.clip(gained / total, 0.0, 1.0)
    return result


def _without(q: Vector, x: int) -> Vector:
    rest = q.copy()
    rest[x] = 0.0
    total = rest.sum()
    return rest / total if total > 0 else rest
