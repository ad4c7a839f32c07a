r"""Acceptance rates of recursive rejection sampling.

Without replacement, with q\\x for q without x, renormalised, and p' for the residual,

.. math:: \alpha_K(p, q) = \sum \min(p, q) + \sum_x (q - p)_+(x)\, \alpha_{K-1}(p', q \setminus x) .

Rejected tokens have no mass in p', and p' is the same for all of them; only q\\x differs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.verifiers.inclusion import sum_of_others

Vector = NDArray[np.float64]

#: Limits of the exact recursion: sequences of rejected tokens, and tokens visited for them.
_MAX_SEQUENCES = 10_000
_MAX_VISITS = 4_000_000


def independent_rate(p: Vector, models: list[Vector]) -> float:
    r"""1 - prod_j sum (p_j - q_j)_+ for drafts that do not depend on each other, O(K V)."""
    undecided = 1.0
    left = p
    for q in models:
        rest = np.maximum(left - q, 0.0)
        rejected = min(float(rest.sum()), 1.0)
        undecided *= rejected
        if undecided <= 0:
            break
        left = rest / rejected
    return 1.0 - undecided


def without_replacement_rate(
    p: Vector, q: Vector, num_drafts: int, num_samples: int, seed: int
) -> tuple[float, float | None]:
    """The rate, and its standard error if it had to be estimated."""
    num_drafts = min(num_drafts, int((q > 0).sum()))
    sequences = float(p.size) ** max(num_drafts - 2, 0)
    if num_drafts <= 2 or (sequences <= _MAX_SEQUENCES and sequences * p.size <= _MAX_VISITS):
        return _exact_rate(p, q, num_drafts), None
    rng = np.random.default_rng(seed)
    samples = np.array([_sampled_rate(p, q, num_drafts, rng) for _ in range(num_samples)])
    error = float(samples.std(ddof=1) / np.sqrt(num_samples))
    return min(float(samples.mean()), 1.0), error


def _exact_rate(p: Vector, q: Vector, num_drafts: int) -> float:
    overlap = float(np.minimum(p, q).sum())
    rest = np.maximum(p - q, 0.0)
    total = rest.sum()
    if num_drafts == 1 or total <= 0:
        return min(overlap, 1.0)
    left = rest / total
    rejected = np.maximum(q - p, 0.0)
    if num_drafts == 2:
        return min(overlap + float(rejected @ _second_overlaps(left, q)), 1.0)
    rate = overlap
    for x in np.flatnonzero(rejected > 0).tolist():
        rate += rejected[x] * _exact_rate(left, _without(q, x), num_drafts - 1)
    return min(rate, 1.0)


def _second_overlaps(left: Vector, q: Vector) -> Vector:
    r"""sum_i min(p'_i, q_i / (1 - q_x)) for every x, all by one sort; meant for rejected x.

    Of x itself the sum takes min(p'_x, q_x / (1 - q_x)), which is zero as it should be, because a
    rejected token has p'_x = 0.
    """
    drafted = q > 0
    ratio = left[drafted] / q[drafted]
    order = np.argsort(ratio, kind="stable")
    below = np.concatenate([[0.0], np.cumsum(left[drafted][order])])
    above = np.append(np.cumsum(q[drafted][order][::-1])[::-1], 0.0)
    rest = sum_of_others(q)
    scale = np.divide(1.0, rest, out=np.zeros_like(rest), where=rest > 0)
    place = np.searchsorted(ratio[order], scale, side="right")
    result: Vector = np.minimum(below[place] + scale * above[place], 1.0)
    return result


def _sampled_rate(p: Vector, q: Vector, num_drafts: int, rng: np.random.Generator) -> float:
    """One sequence of rejections; accepting is averaged out, and so are the last two drafts."""
    rate, undecided = 0.0, 1.0
    while num_drafts > 2:
        rest = np.maximum(p - q, 0.0)
        total = min(float(rest.sum()), 1.0)
        rejected = np.maximum(q - p, 0.0)
        rate += undecided * (1.0 - total)
        undecided *= total
        if undecided <= 0 or rejected.sum() <= 0:
            return rate + undecided
        cumulative = np.cumsum(rejected)
        x = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
        p, q = rest / rest.sum(), _without(q, min(x, q.size - 1))
        num_drafts -= 1
    return rate + undecided * _exact_rate(p, q, num_drafts)


def _without(q: Vector, x: int) -> Vector:
    rest = q.copy()
    rest[x] = 0.0
    total = rest.sum()
    return rest / total if total > 0 else rest
