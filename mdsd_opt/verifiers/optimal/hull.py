r"""The hull rule: which drafts may be returned at which level, on floats and Fractions alike.

Let the drafted tokens 1..n be in prefix order with weights w, selection masses x (prefix sums R)
and :math:`F_j = Q([j])`. For a level s in [0, 1], the vertices of the lower convex hull of
:math:`(A_j, R_j - s F_j)` cut the tokens into blocks (A = prefix sums of w). Take the topmost block
that holds a draft, and return one of its drafts such that token i of block (a, b] comes out with
probability :math:`w_i (F_b - F_a)/(A_b - A_a)`. With s uniform, the returned token has law x: the
derivative in s of the hull at A_i is minus the chord of F over the block of i; the hull is R at 0
(R is convex in A) and zero at 1 (as R >= F, with equality at both ends).

As F is convex in A, vertices only disappear as s grows, so blocks only merge. Boundary j (after
token j) dies at level s_j; the blocks around one token form a path in a binary merge tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Levels = NDArray[Any]


def death_levels(x: NDArray[Any], w: NDArray[Any], gains: NDArray[Any]) -> Levels:
    """Level at which each boundary between tokens disappears, shape (n + 1,).

    Parameters
    ----------
    x, w, gains : ndarray, shape (n,)
        Selection masses, weights, and what each token or group of tokens adds to Q, in prefix
        order; float64 or Fractions.

    Returns
    -------
    ndarray, shape (n + 1,)
        In [0, 1]; the outer boundaries 0 and n live to level 1.
    """
    if x.dtype == object:
        return _exact_death_levels(x, w, gains)
    from mdsd_opt.verifiers.optimal import hull_kernels

    n = x.size
    levels = np.ones(n + 1)
    links, entries = np.empty((3, n), np.int64), np.empty((2, 3 * n), np.int64)
    hull_kernels.death_levels(np.stack([x, w, gains]), links, np.empty(3 * n), entries, levels)
    return levels


def _exact_death_levels(x: NDArray[Any], w: NDArray[Any], gains: NDArray[Any]) -> Levels:
    """Merge the pair of neighbouring blocks that meets first, until level 1; O(n^2)."""
    n = x.size
    levels = np.array([Fraction(1)] * (n + 1), dtype=object)
    starts = list(range(n))
    blocks = [(x[j], w[j], gains[j]) for j in range(n)]
    while len(blocks) > 1:
        meets = [_meeting_level(a, b) for a, b in pairwise(blocks)]
        level = min(meets)
        if level >= 1:
            break
        k = meets.index(level)
        levels[starts[k + 1]] = level
        blocks[k : k + 2] = [tuple(a + b for a, b in zip(*blocks[k : k + 2], strict=True))]
        del starts[k + 1]
    return levels


def _meeting_level(low: tuple[Any, ...], high: tuple[Any, ...]) -> Fraction:
    """Level at which the slopes of two neighbouring blocks become equal, capped at 1."""
    (x_low, w_low, g_low), (x_high, w_high, g_high) = low, high
    rise = x_high / w_high - x_low / w_low
    fall = g_high / w_high - g_low / w_low
    if fall <= 0:  # F is straight here: equal ratios merge at once, others never
        return Fraction(0) if rise <= 0 else Fraction(1)
    return min(max(rise / fall, Fraction(0)), Fraction(1))


def blocks_around(top: int, levels: Levels) -> Iterator[tuple[Any, int, int]]:
    """The blocks that hold token `top`, as (length of the level interval, start, stop).

    The interval lengths sum to one: they are the probabilities of the blocks under a uniform level.
    """
    start, stop = top, top + 1
    last = len(levels) - 1
    zero = levels[0] - levels[0]
    since = zero
    while True:
        # Everything that has died by `since` belongs to the block.
        while start > 0 and levels[start] <= since:
            start -= 1
        while stop < last and levels[stop] <= since:
            stop += 1
        left = levels[start] if start > 0 else levels[0]
        right = levels[stop] if stop < last else levels[last]
        until = min(left, right)
        if until > since:
            yield until - since, start, stop
            since = until
        if until >= levels[0]:
            return


def spans_of_blocks(levels: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ends of the block that is born where each boundary dies, (2, n + 1), and how long it lives.

    Blocks that live for no time belong to boundaries that die at the same level.
    """
    from mdsd_opt.verifiers.optimal import hull_kernels

    spans, life = np.empty((3, levels.size), np.int64), np.empty(levels.size)
    hull_kernels.spans_of_blocks(levels, spans, life)
    return spans[:2], life


def mean_over_levels(
    rule: Callable[[int, int], NDArray[Any]], top: int, levels: Levels
) -> NDArray[Any]:
    """What a rule gives for the blocks around token `top`, on average over a uniform level.

    Parameters
    ----------
    rule : callable
        Start and stop of a block -> an array of numbers like the levels.
    """
    return sum(length * rule(start, stop) for length, start, stop in blocks_around(top, levels))


def mean_over_joins(
    rule: Callable[[int, int], NDArray[Any]], places: NDArray[np.int64], levels: Levels
) -> NDArray[Any]:
    """`mean_over_levels` of a rule that asks only which drafts the block of the topmost one holds.

    A draft joins that block where the last boundary between them disappears.
    """
    top, one, stop = int(places.max()), levels[0], len(levels) - 1
    joins = {place: levels[place + 1 : top + 1].max(initial=one - one) for place in places.tolist()}

    def shares(since: Any, until: Any) -> Any:
        held = min(place for place, level in joins.items() if level <= since)
        return (until - since) * rule(held, stop)

    return sum(shares(*ends) for ends in pairwise(sorted({*joins.values(), one})))


def block_around(
    x: NDArray[np.float64],
    w: NDArray[np.float64],
    gains: NDArray[np.float64],
    level: float,
    split: int,
    tied: tuple[int, int],
    top: int,
) -> tuple[int, int]:
    """The block [start, stop) of token `top` at one level.

    Parameters
    ----------
    x, w, gains : ndarray, shape (n,)
        Selection masses, weights, and the part of Q that each token or group of tokens adds.
    level : float
        s.
    split : int
        How many are in H.
    tied : (int, int)
        Those before the first and from the second on stand on a water level.
    top : int
    """
    from mdsd_opt.verifiers.optimal import hull_kernels

    starts, (mass, weight) = np.empty(x.size + 1, np.int64), np.empty((2, x.size))
    raised, capped = tied
    return hull_kernels.block_around(
        x, w, gains, level, split, raised, capped, top, starts, mass, weight
    )
