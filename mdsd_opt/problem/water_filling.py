r"""Optimal law of the selected draft, by two water levels.

For a subset H with F = Q(H), raise the target inside H and cap it outside:

.. math:: p_I = \max(p, c\,w) \text{ on } H, \qquad p_I = \min(p, c' w) \text{ off } H,

with c and c' such that p_I(H) = F and p_I sums to one. If H is optimal and Q is w-convex, p_I is
the law of a selection rule that always returns a draft, and :math:`\sum_i \min(p_i, p_I(i))`
is the optimal acceptance rate: select by that rule, then run single-draft speculative sampling.

Where tokens D are always drafted, the raise inside H falls on them alone: for any G in H that holds
D, :math:`p_I(G) = P(G) + Q(H) - P(H) \ge Q(G)` because P - Q is smallest at H, and a set that lacks
a token of D contains no draft tuple. (Raising the others would not do: drafts that hit D again may
need more mass on D than it has.)

The levels are found in two ways. Of places in order of p/w by bisection (`water_level`): in
Fractions, in float64, and compiled into what fills groups of tokens. Of tokens in any order by
Newton's method (`level_without_order`), which saves the sort where there are many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Flags, Numbers
from mdsd_opt.drafts import PrefixDraftScheme

#: Vocabulary size below which a sort is as fast, and nothing is compiled for it.
_MANY_TOKENS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class SelectionMarginal:
    """Marginal p_I with its water levels c and c'; `values` are of shape (V,)."""

    values: Numbers
    raise_level: Any
    cap_level: Any


def water_level(sums: Numbers, ratios: Numbers, mass: Any, rising: bool) -> tuple[int, Any]:
    """Number of places that share one water level, so that all hold `mass`, and the level.

    `sums`, shape (2, n + 1), are those of p and of w over the first 0..n places, or the last for a
    level that falls, and `ratios`, shape (n,), p/w of each place, ascending. A level rises where
    the places hold too little, and the first are raised; else they hold too much, and the last are
    capped. If the places hold the mass as they are, the count is 0, and the level 0, or infinity
    for one that falls. Also compiled, for float64.
    """
    p_sums, w_sums = sums[0], sums[1]
    change = mass - p_sums[-1]
    if ratios.size == 0 or (change <= 0 if rising else change >= 0):
        return 0, change * 0 if rising else np.inf
    low, high = 1, ratios.size
    while low < high:  # the first m stand on it: right as soon as it is not beyond the next ratio
        m = (low + high) // 2
        following = ratios[m] if rising else ratios[ratios.size - 1 - m]
        held, next_ratio = p_sums[m] + change, following * w_sums[m]
        if held <= next_ratio if rising else held >= next_ratio:
            high = m
        else:
            low = m + 1
    if w_sums[low] <= 0:  # too little to show in the sums
        return low, change * 0
    return low, max((p_sums[low] + change) / w_sums[low], change * 0)


def level_without_order(p: Numbers, w: Numbers, mass: float, rising: bool) -> float:
    """Level of `water_level` for float64 in any order, shape (n,) both; w > 0.

    Newton's method on a function of the level that is linear in pieces, and convex for one that
    rises: after one step the level goes one way until it has arrived [Michelot86].
    """
    from mdsd_opt.prefix_search import accurate_sum, split_at

    held = accurate_sum(p)
    if p.size == 0 or not (held < mass if rising else held > mass):
        return 0.0 if rising else np.inf
    level = max(mass, 0.0) / accurate_sum(w)
    while True:
        p_mass, w_mass = split_at(p, w, level, rising)
        closer = (mass - p_mass) / w_mass if w_mass > 0.0 else level
        if not (closer < level if rising else closer > level):
            return level
        level = closer


def fill(
    p: Numbers, w: Numbers, split: int, inside: Any, outside: Any
) -> tuple[Numbers, int, Any, int, Any]:
    """Marginal p_I of places in order of p/w of which the first `split` are H.

    p and w, shape (n,), are in ascending order of p/w in H, and off H; `inside` and `outside` are
    the masses p_I is to have there. Returns p_I, shape (n,); how many places are raised to c w, the
    first, and c; where the places begin that are capped to c' w, the last, and c'.
    """
    both, ratios = np.stack([p, w]), p / w
    raised, c = water_level(running_sums(both[:, :split]), ratios[:split], inside, rising=True)
    from_top = running_sums(both[:, : split - p.size - 1 : -1])
    count, cap = water_level(from_top, ratios[split:], outside, rising=False)
    capped = p.size - count
    x = p.copy()
    x[:raised] = c * w[:raised]
    x[capped:] = cap * w[capped:]
    return x, raised, c, capped, cap


def running_sums(values: Numbers) -> Numbers:
    """Sums over the first 0..n columns, of a matrix with n."""
    sums = np.zeros_like(values, shape=(len(values), values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums


def water_fill(
    p: Numbers, drafts: PrefixDraftScheme, subset: Flags, inside: Any
) -> SelectionMarginal:
    """Marginal for a subset H with ``inside`` = Q(H); p may be sub-normalised.

    p is the target, in float64, or in Fractions for exact arithmetic, and the drafts give the
    weights w and the tokens that are always drafted. `inside` is the mass p_I is to have on H, of
    shape (V,) as p; the rest of one lies off H.
    """
    exact, always = p.dtype == object, drafts.always_drafted
    w = drafts.law(exact).weights
    free = (w > 0).astype(np.bool_)
    values = np.where(free, p, p * 0)
    values[always] = p[always]
    low, high = np.flatnonzero(subset & free), np.flatnonzero(~subset & free)
    if always.size:  # they alone are raised: any split among them is as good
        deficit = inside - values[subset].sum()
        values[always] += max(deficit, deficit * 0) / always.size
        low = low[:0]
    outside = 1 - inside - values[~(subset | free)].sum()
    if exact or p.size < _MANY_TOKENS:
        ratios = [np.argsort(p[side] / w[side], kind="stable") for side in (low, high)]
        order = np.concatenate([low[ratios[0]], high[ratios[1]]])
        values[order], _, c, _, cap = fill(values[order], w[order], low.size, inside, outside)
        return SelectionMarginal(values, c, cap)
    c = level_without_order(values[low], w[low], inside, rising=True)
    cap = level_without_order(values[high], w[high], outside, rising=False)
    values[low] = np.maximum(values[low], c * w[low])
    values[high] = np.minimum(values[high], cap * w[high])
    return SelectionMarginal(values, c, cap)
