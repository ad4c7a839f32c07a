"""Table of sums of both laws over bins of p/q, which are never opened, and groups of them.

Bins are even in :math:`t = n / (n + 2 m)`, n and m the masses of target and draft: where p/q is
near 1 they are narrow on both sides. One more holds the tokens that are never drafted. A group is a
bin, or a run of them, that the rule treats as one. Of drafts without replacement a `race` needs to
know more.

This is the one table of bins. Devices fill it in ways of their own, which are held against this
one: `trees.device_laws.tables` and `serving.selection` in PyTorch, `serving.triton_selection` in
Triton, gpu/kernels/ratio_tables.cuh in CUDA, with units and a middle that suit its integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Vector
from mdsd_opt.prefix_search.race import RaceSums

#: Number of bins of one position, including the one of tokens that are never drafted.
NUM_BINS = 2048

#: Ratio n/m in the middle of the bins.
HALF = 2.0

# A race takes time for every group: runs of bins hold at most this mass and so many bins.
_RUN_MASS = 2e-3
_RUN_BINS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """Both laws of a position by bins; arrays have shape (B,).

    p and q are masses of target and draft, the last of what is never drafted, `lowest` and
    `highest` bounds of p/q in each bin, and `weights` those of the draft, in units of their own.
    `race` makes the `RaceSums` of these weights, of drafts without replacement that leave
    something.
    """

    p: Vector
    q: Vector
    lowest: Vector
    highest: Vector
    weights: Vector
    race: Callable[[], RaceSums] | None


def steps_of(num_bins: int, dtype: Any) -> NDArray[Any]:
    """Steps by which `bucket_kernels.even_keys` uses all of these bins but the last."""
    return np.array([HALF, num_bins - 1, num_bins - 2, 0], dtype)


def ratios_at(t: Vector) -> Vector:
    """Ratio n/m where t is 0 to 1."""
    with np.errstate(divide="ignore"):
        return HALF * t / (1.0 - t)


@dataclass(frozen=True, slots=True, eq=False)
class BinGroups:
    """Groups of drafted tokens, in ascending order of p/q.

    `lowest` and `highest` are bounds of it, shape (n,) as p and q; `contained`, shape (n + 1,), is
    the probability that all drafts lie in the first 0, 1, ... groups, `above`, shape (n + 1,), the
    integer weight of the draft from each group on, and `place`, shape (B,), the group of each bin,
    -1 for what is never drafted.
    """

    p: Vector
    q: Vector
    lowest: Vector
    highest: Vector
    contained: Vector
    above: Vector
    place: Integers


def groups_of(bins: Bins, num_drafts: int, replaced: bool) -> BinGroups:
    """Groups for K draws with replacement or without; a single draw is the same either way."""
    make = replaced_groups if replaced or num_drafts == 1 else raced_groups
    return make(bins, num_drafts)


def replaced_groups(bins: Bins, num_drafts: int) -> BinGroups:
    """Groups of one bin each, for draws with replacement."""
    drafted = np.flatnonzero(bins.q > 0.0)
    below = np.append(0.0, np.cumsum(bins.q[drafted]))
    contained = np.minimum(below / below[-1], 1.0) ** num_drafts
    return _grouped(bins, drafted, bins.p, bins.q, contained)


def raced_groups(bins: Bins, num_drafts: int) -> BinGroups:
    """Groups of runs of small bins, for draws without replacement that leave something."""
    from mdsd_opt.prefix_search.race_group_kernels import merge_small
    from mdsd_opt.prefix_search.random_draws import require_race

    assert bins.race is not None
    race, total = bins.race(), float(bins.weights.sum())
    first_heavy, next_heavy, heavy = race.chains
    require_race(bins.q.size + heavy.size, num_drafts, race.slowest / total)
    sums = np.stack([bins.p, bins.q], axis=1)
    merge_small(sums, race.moments, first_heavy, next_heavy, _RUN_MASS, _RUN_BINS)
    curve = race.curve(sums, np.array([num_drafts]), total).contained[:, 0]
    drafted = np.flatnonzero(sums[:-1, 1] > 0.0)
    contained = np.append(0.0, curve[1 + drafted])
    contained[-1] = 1.0
    return _grouped(bins, drafted, sums[:, 0], sums[:, 1], np.maximum.accumulate(contained))


def _grouped(bins: Bins, firsts: Integers, p: Vector, q: Vector, contained: Vector) -> BinGroups:
    """Groups from one first bin up to the next, with sums that are stored at the first."""
    never = bins.q.size - 1
    place = np.repeat(np.arange(-1, firsts.size), np.diff(firsts, prepend=0, append=never + 1))
    place[never] = -1
    lowest = np.minimum.reduceat(bins.lowest[:never], firsts)
    highest = np.maximum.reduceat(bins.highest[:never], firsts)
    above = np.add.reduceat(bins.weights[:never], firsts)[::-1].cumsum()[::-1]
    return BinGroups(p[firsts], q[firsts], lowest, highest, contained, np.append(above, 0.0), place)
