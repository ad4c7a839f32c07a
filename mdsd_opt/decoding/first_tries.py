"""Which drafts to try one by one before the optimal rule decides among the others.

The optimal token rule passes most to some draft, but its random levels favour the topmost token,
not the most valuable place. Where one place is worth far more than the others, trying that one
first, as recursive rejection does, brings more.
"""

from __future__ import annotations

import numpy as np

from mdsd_opt.decoding.hull_plan import MANY_TOKENS, Law, rank_chances
from mdsd_opt.decoding.recursive_rejection import after_refusal
from mdsd_opt.decoding.valued_rules import Values, as_good
from mdsd_opt.drafts import DraftScheme

#: Buckets of p/q that are as one here: that leaves 16 to an octave.
_TOGETHER = 4

#: Differences of forecasts that rounding makes.
_NOTHING = 1e-9


def first_tries(
    target: Law, demand: float, drafts: DraftScheme | None, values: Values
) -> list[int]:
    r"""Indices of the draws to be tried one by one, in this order; none for other schemes.

    With replacement the most valuable places come first, without replacement those drawn first. As
    many are tried as make

    .. math:: \sum_{k<j} v_k S_k a_k + S_j \sum_k v_{(k)} c_k

    grow, with S the probability that all tries so far were refused, a the probability that a try
    passes, v_(k) the k-th largest value of the rest and c_k the chance of its place
    (`rank_chances`), all with replacement. That is a forecast: any number that does not depend on
    the draws is lossless.

    Parameters
    ----------
    target : ndarray, shape (V,)
        t, of mass `demand` <= 1.
    demand : float
    drafts : DraftScheme or None
    values : ndarray, shape (K,)
        Of the places.
    """
    draws = None if drafts is None else drafts.random_draws
    if draws is None:
        return []
    if draws.is_replaced:
        order = np.argsort(-values, kind="stable")
    elif draws.are_certain:  # recursive rejection accepts everything
        return list(range(draws.support_size - 1))
    else:
        order = np.arange(values.size)
    if as_good(values).all():
        return []
    target = target.astype(np.float64, copy=False)  # a forecast needs no Fractions
    return order[: _best_number(target, float(demand), draws.q, values[order])].tolist()


def _best_number(target: Law, demand: float, q: Law, values: Values) -> int:
    target, q = _by_ratio(target, q)
    most, tried, left = 0.0, 0.0, 1.0
    for j in range(values.size):
        rest = np.sort(values[j:])[::-1]
        expected = tried + left * float(rest @ rank_chances(target, q, rest.size))
        if expected <= most + _NOTHING and j > 0:
            return j - 1
        most = expected
        target, demand, refused = after_refusal(target, demand, q)
        tried += left * (1.0 - refused) * values[j]
        left *= refused
        if demand <= 0.0:
            return j
    return values.size - 1  # to try the last one and to decide about it is the same


def _by_ratio(target: Law, q: Law) -> tuple[Law, Law]:
    """Masses of t and q over the drafted tokens, or over groups of similar t/q; in order of it."""
    if q.size >= MANY_TOKENS:
        from mdsd_opt.prefix_search import ratio_groups_kernels as kernels
        from mdsd_opt.prefix_search.sum_kernels import BLOCK

        sums = np.empty((kernels.NUM_BUCKETS, 2))
        buckets, nothing = np.empty(q.size, np.uint16), np.empty((0, 2))
        kernels.fill_buckets(target, q, np.empty(BLOCK), buckets)
        kernels.sum_buckets(target, q, buckets, nothing, sums)
        groups = sums[: kernels.NEVER_DRAFTED].reshape(-1, _TOGETHER, 2).sum(axis=1)
        target, q = groups[groups[:, kernels.Q] > 0.0].T.copy()
        return target, q
    drafted = np.flatnonzero(q > 0.0)
    order = drafted[np.argsort(target[drafted] / q[drafted], kind="stable")]
    return target[order], q[order]
