r"""Choice of the draft of a block that goes on, if drafts at different places differ in value.

Given that the topmost draft lies in block B, let S be the places of the drafts in B.

With replacement, the tokens at S are i.i.d. :math:`q|_B` whatever S is, so the draft may be chosen
by S in any way: the most valuable place of S is taken.

Without replacement, let x' be the draws x with the tokens of places j and k in S exchanged, and w
the probability of draws. From the shares s of the scheme's own rule,

.. math:: \delta_k(x) = \min\bigl(s_k(x), \tfrac{w(x')}{w(x)} s_k(x')\bigr)

moves from k to the most valuable place j of S. Since :math:`w(x) \delta_k(x) = w(x') \delta_k(x')`,
the token at k in x loses what it gains in x', and no law changes.

The values must be known before these drafts are drawn.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.verifiers import BlockRule, Drawn, block_rule, masses_left

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
