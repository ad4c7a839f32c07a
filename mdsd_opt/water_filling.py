r"""The optimal law of the selected draft, by two water levels.

For a subset H with F = Q(H), raise the target inside H and cap it outside:

.. math:: p_I = \max(p, c\,w) \text{ on } H, \qquad p_I = \min(p, c' w) \text{ off } H,

with c and c' such that p_I(H) = F and p_I sums to one. If H is optimal and Q is w-convex, p_I is
the law of a selection rule that always returns a draft, and :math:`\sum_i \min(p_i, p_I(i))`
is the optimal acceptance rate: select by that rule, then run single-draft speculative sampling.

Where tokens D are always drafted, the raise inside H falls on them alone: for any G in H that holds
D, :math:`p_I(G) = P(G) + Q(H) - P(H) \ge Q(G)` because P - Q is smallest at H, and a set that lacks
a token of D contains no draft tuple. (Raising the others would not do: drafts that hit D again may
need more mass on D than it has.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import PrefixDraftScheme

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class SelectionMarginal:
    """p_I with its water levels.

    Attributes
    ----------
    values : ndarray, shape (V,)
    raise_level, cap_level : float
        c and c'.
    """

    values: Vector
    raise_level: float
    cap_level: float


def water_fill(
    p: Vector,
    drafts: PrefixDraftScheme,
    subset: NDArray[np.bool_],
    inside: float,
) -> SelectionMarginal:
    """The marginal for a subset H with ``inside`` = Q(H); p may be sub-normalised.

    Parameters
    ----------
    p : ndarray, shape (V,)
        Target.
    drafts : PrefixDraftScheme
        Gives the weights w and the tokens that are always drafted.
    subset : ndarray of bool, shape (V,)
    inside : float
        The mass p_I is to have on H; the rest of one lies off H.
    """
    values = p.copy()
    w = drafts.weights
    values[_never_drafted(drafts)] = 0.0
    raise_level = raise_to_mass(values, w, np.flatnonzero(subset), inside, drafts.always_drafted)
    cap_level = cap_to_mass(values, w, np.flatnonzero(~subset), 1.0 - inside)
    return SelectionMarginal(values, raise_level, cap_level)


def _never_drafted(drafts: PrefixDraftScheme) -> NDArray[np.bool_]:
    never = drafts.weights <= 0
    never[drafts.always_drafted] = False
    return never


def raise_to_mass(
    values: Vector,
    w: Vector,
    members: NDArray[np.int64],
    mass: float,
    always: NDArray[np.int64],
) -> float:
    """Raise values[members] to at least c w, so that they sum to `mass`; return c."""
    deficit = mass - values[members].sum()
    if deficit <= 0:
        return 0.0
    if always.size:  # any split among them is as good
        values[always] += deficit / always.size
        return 0.0
    free = members[w[members] > 0]
    if free.size == 0:  # rounding only: a set without weight contains no draft tuple
        return 0.0
    with np.errstate(over="ignore"):
        ratio = values[free] / w[free]
    order = np.argsort(ratio, kind="stable")
    free, ratio = free[order], ratio[order]
    # Level if exactly the m+1 lowest ratios are raised; the true one is the first below the next.
    levels = (deficit + np.cumsum(values[free])) / np.cumsum(w[free])
    raised = int(np.argmax(np.append(levels[:-1] <= ratio[1:], True)))
    level = float(levels[raised])
    values[free[: raised + 1]] = level * w[free[: raised + 1]]
    return level


def cap_to_mass(values: Vector, w: Vector, members: NDArray[np.int64], mass: float) -> float:
    """Cap values[members] to at most c' w, so that they sum to `mass`; return c'."""
    free = members[w[members] > 0]
    excess = values[members].sum() - mass
    if free.size == 0 or excess <= 0:
        return np.inf
    with np.errstate(over="ignore"):
        ratio = values[free] / w[free]
    order = np.argsort(-ratio, kind="stable")
    free, ratio = free[order], ratio[order]
    levels = (np.cumsum(values[free]) - excess) / np.cumsum(w[free])
    capped = int(np.argmax(np.append(levels[:-1] >= ratio[1:], True)))
    level = max(float(levels[capped]), 0.0)
    values[free[: capped + 1]] = level * w[free[: capped + 1]]
    return level


def exact_water_fill(
    p: Sequence[Fraction],
    drafts: PrefixDraftScheme,
    subset: NDArray[np.bool_],
    inside: Fraction,
) -> list[Fraction]:
    """`water_fill` in exact arithmetic; returns p_I."""
    w = drafts.exact_weights
    never = _never_drafted(drafts).tolist()
    values = [Fraction(0) if out else x for x, out in zip(p, never, strict=True)]
    members = np.flatnonzero(subset).tolist()
    others = np.flatnonzero(~subset).tolist()

    deficit = inside - sum((values[i] for i in members), Fraction(0))
    if deficit > 0:
        always = drafts.always_drafted.tolist()
        if always:
            for i in always:
                values[i] += deficit / len(always)
        else:
            free = sorted((i for i in members if w[i] > 0), key=lambda i: values[i] / w[i])
            level, raised = _exact_level(values, w, free, deficit, rising=True)
            for i in free[:raised]:
                values[i] = level * w[i]

    free = sorted((i for i in others if w[i] > 0), key=lambda i: values[i] / w[i], reverse=True)
    excess = sum((values[i] for i in others), Fraction(0)) - (1 - inside)
    if free and excess > 0:
        level, capped = _exact_level(values, w, free, -excess, rising=False)
        for i in free[:capped]:
            values[i] = level * w[i]
    return values


def _exact_level(
    values: Sequence[Fraction],
    w: Sequence[Fraction],
    free: Sequence[int],
    change: Fraction,
    rising: bool,
) -> tuple[Fraction, int]:
    """Common level of the first tokens of `free`, and how many of them lie on it."""
    mass, weight = change, Fraction(0)
    level = Fraction(0)
    for count, i in enumerate(free, start=1):
        mass += values[i]
        weight += w[i]
        level = mass / weight
        if count < len(free):
            ratio = values[free[count]] / w[free[count]]
            if (level <= ratio) if rising else (level >= ratio):
                return level, count
    return level, len(free)
