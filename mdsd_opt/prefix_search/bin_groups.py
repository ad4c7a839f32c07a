"""Groups of tokens that the rule treats alike: bins of p/q, or runs of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.prefix_search.bins import Bins

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

# A race takes time for every group: runs of bins hold at most this mass and so many bins.
_RUN_MASS = 2e-3
_RUN_BINS = 16


@dataclass(frozen=True, slots=True, eq=False)
class BinGroups:
    """What is drafted, in ascending order of p/q.

    Attributes
    ----------
    p, q : ndarray, shape (n,)
    lowest, highest : ndarray, shape (n,)
        Bounds of p/q.
    contained : ndarray, shape (n + 1,)
        Probability that all drafts lie in the first 0, 1, ... groups.
    above : ndarray, shape (n + 1,)
        Integer weight of the draft from each group on.
    place : ndarray of int64, shape (B,)
        Group of each bin, -1 for what is never drafted.
    """

    p: Vector
    q: Vector
    lowest: Vector
    highest: Vector
    contained: Vector
    above: Vector
    place: Integers


def groups_of(bins: Bins, num_drafts: int, replaced: bool) -> BinGroups:
    """The groups for K draws with replacement or without; a single draw is the same either way."""
    made = replaced_groups if replaced or num_drafts == 1 else raced_groups
    return made(bins, num_drafts)


def replaced_groups(bins: Bins, num_drafts: int) -> BinGroups:
    """Every bin for itself; draws with replacement."""
    drafted = np.flatnonzero(bins.q > 0.0)
    below = np.append(0.0, np.cumsum(bins.q[drafted]))
    contained = np.minimum(below / below[-1], 1.0) ** num_drafts
    return _grouped(bins, drafted, bins.p, bins.q, contained)


def raced_groups(bins: Bins, num_drafts: int) -> BinGroups:
    """Runs of small bins; draws without replacement that leave something."""
    from mdsd_opt.prefix_search import containment_kernels as kernels
    from mdsd_opt.prefix_search.race_budget import require_race
    from mdsd_opt.prefix_search.race_kernels import RACE_ROWS, race_terms

    assert bins.race is not None
    race, size, total = bins.race(), bins.q.size, float(bins.weights.sum())
    first_heavy, next_heavy, heavy = race.chains
    slowest = race.slowest / total
    require_race(size + heavy.size, num_drafts, slowest)
    sums = np.stack([bins.p, bins.q], axis=1)
    kernels.merge_small(sums, race.moments, first_heavy, next_heavy, _RUN_MASS, _RUN_BINS)
    _, step, first, nodes = race_terms(slowest, num_drafts, False)
    curve = np.zeros(size)
    kernels.race_curve(
        sums, race.moments, first_heavy, next_heavy, heavy / total, np.array([num_drafts]),
        race.unit / total, step, first, race.others / total,
        np.empty((RACE_ROWS + num_drafts, nodes)), np.empty((num_drafts, nodes)),
        np.empty((0, num_drafts, nodes)), np.empty(size), np.empty(size + 1), np.empty(1), curve,
    )  # fmt: skip
    drafted = np.flatnonzero(sums[:-1, 1] > 0.0)
    contained = np.append(0.0, curve[drafted])
    contained[-1] = 1.0
    return _grouped(bins, drafted, sums[:, 0], sums[:, 1], np.maximum.accumulate(contained))


def _grouped(bins: Bins, firsts: Integers, p: Vector, q: Vector, contained: Vector) -> BinGroups:
    """Groups from one first bin up to the next, with sums that stand at the first."""
    never = bins.q.size - 1
    place = np.repeat(np.arange(-1, firsts.size), np.diff(firsts, prepend=0, append=never + 1))
    place[never] = -1
    lowest = np.minimum.reduceat(bins.lowest[:never], firsts)
    highest = np.maximum.reduceat(bins.highest[:never], firsts)
    above = np.add.reduceat(bins.weights[:never], firsts)[::-1].cumsum()[::-1]
    return BinGroups(p[firsts], q[firsts], lowest, highest, contained, np.append(above, 0.0), place)
