r"""Rules for drafts whose places differ in value: which draft of a block goes on, and rejection.

*Within a block.* Given that the topmost draft lies in block B, let S be the places of the drafts in
B. With replacement, the tokens at S are i.i.d. :math:`q|_B` whatever S is, so the draft may be
chosen by S in any way: the most valuable place of S is taken. Without replacement, let x' be the
draws x with the tokens of places j and k in S exchanged, and w the probability of draws. From the
shares s of the scheme's own rule,

.. math:: \delta_k(x) = \min\bigl(s_k(x), \tfrac{w(x')}{w(x)} s_k(x')\bigr)

moves from k to the most valuable place j of S. Since :math:`w(x) \delta_k(x) = w(x') \delta_k(x')`,
the token at k in x loses what it gains in x', and no law changes. The values must be known before
these drafts are drawn.

*Recursive rejection*: drafts are tried one after another, each against what the others left. A
draft x of law q is passed with :math:`\min(1, t_x / q_x)`; if it is not, the target becomes
:math:`(t - q)_+ / (1 - \sum \min(t, q))`. The numbers are float64 or Fractions, as the target is
given. The optimal token rule passes most to some draft, but its random levels favour the topmost
token, not the most valuable place. Where one place is worth far more than the others, trying that
one first brings more: `tried_one_by_one`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Numbers
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.verifiers import BlockRule, Drawn, accepted, block_rule, masses_left, without

Values = NDArray[np.float64]

#: Share of the largest value from which a value counts as equal to it: values are forecasts.
_AS_GOOD = 0.9


def as_good(values: Values) -> NDArray[np.bool_]:
    """Whether each place is worth as much as the most valuable one, up to a tenth."""
    return values >= _AS_GOOD * values.max()


def valued_rule(is_replaced: bool, drawn: Drawn, values: Values) -> BlockRule:
    """Rule within blocks that favours valuable places, with the law of `block_rule`.

    `is_replaced`: whether the drafts are drawn with replacement; `values`, shape (K,), are of the
    places, and positive.
    """
    if is_replaced:
        return _best_place(drawn, values)
    rule = block_rule(False, drawn)
    return rule if as_good(values).all() else _with_swaps(drawn, values, rule)


def _best_place(drawn: Drawn, values: Values) -> BlockRule:
    one = drawn.q[:1].sum() * 0 + 1  # a float or a Fraction
    lowest_first = sorted(drawn.places.tolist())

    @cache
    def evenly(lowest: int) -> NDArray[Any]:
        """Equal shares of the most valuable places whose tokens lie at `lowest` or above."""
        best = as_good(np.where(drawn.places >= lowest, values, 0.0))
        return best * (one / int(np.count_nonzero(best)))

    def shares(start: int, stop: int) -> NDArray[Any]:
        return evenly(lowest_first[bisect_left(lowest_first, start)])

    return shares


def _with_swaps(drawn: Drawn, values: Values, rule: BlockRule) -> BlockRule:
    mass, lowest_first = masses_left(drawn), sorted(drawn.places.tolist())

    @cache
    def exchanged(j: int, k: int) -> tuple[Any, BlockRule]:
        """Ratio w(x') / w(x), and the rule for x'."""
        order = np.arange(drawn.tokens.size)
        order[[j, k]] = k, j
        other = replace(drawn, tokens=drawn.tokens[order], places=drawn.places[order])
        between = slice(min(j, k), max(j, k))
        ratio = mass[0] / mass[0]
        for mine, theirs in zip(mass[between], masses_left(other, mass[-1])[between], strict=True):
            ratio = ratio * mine / theirs
        return ratio, block_rule(False, other)

    @cache
    def ranked(lowest: int) -> tuple[int, list[int]]:
        """Best place whose token lies at `lowest` or above, and those not as good."""
        worth = np.where(drawn.places >= lowest, values, 0.0)
        return int(worth.argmax()), np.flatnonzero((worth > 0.0) & ~as_good(worth)).tolist()

    def shares(start: int, stop: int) -> NDArray[Any]:
        result = rule(start, stop)
        best, others = ranked(lowest_first[bisect_left(lowest_first, start)])
        for k in others:
            if result[k] > 0:
                ratio, other = exchanged(best, k)
                moved = min(result[k], ratio * other(start, stop)[k])
                result[k] -= moved
                result[best] += moved
        return result

    return shares


#: Vocabulary size from which one-pass forms are used, which take milliseconds instead of tens.
MANY_TOKENS = 4096

#: Number of buckets of p/q that are merged here: 16 to an octave are left.
_TOGETHER = 4

#: Differences of forecasts up to this are rounding.
_NOTHING = 1e-9


def draft_law(drafts: Any, target: Numbers) -> Numbers:
    """Law q of drafts from one model, in the numbers of the target."""
    return np.asarray(drafts.law(target.dtype == object).q)


def after_refusal(target: Numbers, demand: float, q: Numbers) -> tuple[Numbers, float, float]:
    r"""Rest of a target of mass at most one after a draft of law q was refused.

    Returns the target, its mass, of which 1 stays 1, and the probability that a draft is refused,
    :math:`1 - \sum \min(t, q)`.
    """
    rest = np.maximum(target - q, 0)
    mass = rest.sum()
    refused = mass + max(1 - demand, 0)
    if mass <= 0:
        return rest, 0, refused
    rest /= refused
    return rest, mass / refused, refused


def whole_support_masses(target: Numbers, q: Numbers, draws: Integers) -> Numbers:
    """Probability that each draft is passed if every token of q is drawn once; shape (K,).

    A refused token has no target left, and the last one is passed with all that is left: each is
    passed with its target on average over the draws, whatever their order, the first ones first.
    """
    masses = np.zeros_like(target, shape=draws.size)
    drawn = draws[draws >= 0]
    target, q = target[drawn], q[drawn] / q[drawn].sum()
    undecided, demand = 1, min(target.sum(), 1)
    for k in range(drawn.size):
        chance = accepted(target[k], q[k])
        masses[k] = undecided * chance
        undecided *= 1 - chance
        target, demand, _ = after_refusal(target, demand, q)
        q = without(q, k)
    return masses


def tried_one_by_one(
    target: Numbers, demand: float, drafts: DraftScheme, values: Values
) -> list[int]:
    r"""Indices of the draws to be tried one by one, in this order; empty for other schemes.

    With replacement the most valuable places come first, without replacement those drawn first. As
    many are tried as make

    .. math:: \sum_{k<j} v_k S_k a_k + S_j \sum_k v_{(k)} c_k

    grow, with S the probability that all tries so far were refused, a the probability that a try
    passes, v_(k) the k-th largest value of the rest and c_k the chance of its place
    (`rank_chances`), all with replacement. That is a forecast: any number that does not depend on
    the draws is lossless. The target t, shape (V,), has mass `demand` <= 1; `values` are those of
    the places.
    """
    draws = drafts.random_draws
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
    return order[: best_number(target, float(demand), draws.q, values[order])].tolist()


def best_number(target: Numbers, demand: float, q: Numbers, values: Values) -> int:
    """Number of tries with the largest forecast; `values` in the order of the tries."""
    target, q = by_ratio(target, q)
    most, tried, undecided = 0.0, 0.0, 1.0
    for j in range(values.size):
        rest = np.sort(values[j:])[::-1]
        expected = tried + undecided * float(rest @ rank_chances(target, q, rest.size))
        if expected <= most + _NOTHING and j > 0:
            return j - 1
        most = expected
        target, demand, refused = after_refusal(target, demand, q)
        tried += undecided * (1.0 - refused) * values[j]
        undecided *= refused
        if demand <= 0.0:
            return j
    return values.size - 1  # to try the last one and to decide about it is the same


def ratio_order(target: Numbers, q: Numbers) -> Integers:
    """Drafted tokens in ascending order of t/q."""
    drafted = np.flatnonzero(q > 0)
    return drafted[np.argsort(target[drafted] / q[drafted], kind="stable")]


def by_ratio(target: Numbers, q: Numbers) -> tuple[Numbers, Numbers]:
    """Masses of t and q over the drafted tokens, or over groups of similar t/q, in that order."""
    if q.size >= MANY_TOKENS:
        from mdsd_opt.prefix_search import NEVER_DRAFTED, Q, bucket_sums, ratio_buckets

        sums = bucket_sums(target, q, ratio_buckets(target, q))
        groups = sums[:NEVER_DRAFTED].reshape(-1, _TOGETHER, 2).sum(axis=1)
        target, q = groups[groups[:, Q] > 0.0].T.copy()
        return target, q
    order = ratio_order(target, q)
    return target[order], q[order]


def rank_chances(target: Numbers, q: Numbers, num_drafts: int) -> Numbers:
    r"""Probability that the best, second best, ... place is passed, shape (K,), with replacement.

    A block [a, b) is the topmost one with a draft, and the k-th best place is the best in it, with
    :math:`w(B) A_a^k A_b^{K-1-k}`, k = 0..K-1, A the prefix sums of the weights w. Tokens, or
    groups, come in ascending order of target/q.
    """
    if num_drafts == 1:
        return np.minimum(target, q).sum(keepdims=True)
    from mdsd_opt.trees import tree_kernels

    n, chances = q.size, np.zeros(num_drafts)
    tree_kernels.rank_chances(
        target, q, num_drafts, np.empty((5, n + 1)), np.empty((3, n)), np.empty((3, n), np.int64),
        np.empty(3 * n), np.empty((2, 3 * n), np.int64), np.ones(n + 1),
        np.empty((3, n + 1), np.int64), np.empty(n + 1), chances,
    )  # fmt: skip
    return chances
