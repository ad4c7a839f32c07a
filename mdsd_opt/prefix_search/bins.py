"""Table of sums of both laws over bins of p/q, which are never opened, and groups of them.

Bins are even in :math:`t = n / (n + 2 m)`, n and m the masses of target and draft: where p/q is
near 1 they are narrow on both sides. One more holds the tokens that are never drafted. A group is a
bin, or a run of them, that the rule treats as one. Of drafts without replacement a race needs to
know more: many light tokens are added to it at once by the power sums of their weights, heavy ones
one by one (`race_kernels`).

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

from mdsd_opt.base.array_types import Integers, Vector

#: Number of bins of one position, including the one of tokens that are never drafted.
NUM_BINS = 2048

#: Ratio n/m in the middle of the bins.
HALF = 2.0

# A race takes time for every group: runs of bins hold at most this mass and so many bins.
_RUN_MASS = 2e-3
_RUN_BINS = 16


@dataclass(frozen=True, slots=True, eq=False)
class RaceSums:
    """Sums of the draft's weights at one position, by bins.

    `slowest` is the weight of all tokens but the K - 1 heaviest, `others` of all but the heaviest.
    Up to the weight `unit` tokens are light: `moments`, shape (B, COLUMNS), has from column MOMENT
    on the sums of (weight / unit)^r over them, r = 1, 2, ... `chains` are the first heavy token of
    every bin and the one after every heavy token, -1 ending a chain, and their weights.
    """

    slowest: float
    others: float
    unit: float
    moments: Vector
    chains: tuple[Integers, Integers, Vector]


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


def race_sums_of_row(
    weights: Vector, bins: NDArray[Any], num_drafts: int, num_bins: int
) -> RaceSums:
    """Sums of a row for the race, by a pass for the heaviest tokens, and one for the sums.

    Weights and bins have shape (V,); K is below the number of tokens with a weight.
    """
    from mdsd_opt.prefix_search import race_group_kernels as kernels
    from mdsd_opt.prefix_search.race_group_kernels import COLUMNS
    from mdsd_opt.prefix_search.race_kernels import most_heavy, race_terms

    slowest, others = kernels.race_rates(weights, num_drafts, np.empty(num_drafts, np.int64))
    unit = race_terms(slowest, num_drafts, False)[0]
    room = most_heavy(weights.size, num_drafts)
    run, moments = np.empty((2, num_bins, COLUMNS))
    chains = np.empty(num_bins, np.int64), np.empty(room, np.int64), np.zeros(room)
    kernels.race_sums(weights, weights, bins, unit, run, moments, *chains)
    return RaceSums(slowest, others, unit, moments, chains)


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
    made = replaced_groups if replaced or num_drafts == 1 else raced_groups
    return made(bins, num_drafts)


def replaced_groups(bins: Bins, num_drafts: int) -> BinGroups:
    """Groups of one bin each, for draws with replacement."""
    drafted = np.flatnonzero(bins.q > 0.0)
    below = np.append(0.0, np.cumsum(bins.q[drafted]))
    contained = np.minimum(below / below[-1], 1.0) ** num_drafts
    return _grouped(bins, drafted, bins.p, bins.q, contained)


def raced_groups(bins: Bins, num_drafts: int) -> BinGroups:
    """Groups of runs of small bins, for draws without replacement that leave something."""
    from mdsd_opt.prefix_search import race_group_kernels as kernels
    from mdsd_opt.prefix_search.race_kernels import RACE_ROWS, race_terms
    from mdsd_opt.prefix_search.random_draws import require_race

    assert bins.race is not None
    race, size, total = bins.race(), bins.q.size, float(bins.weights.sum())
    first_heavy, next_heavy, heavy = race.chains
    slowest = race.slowest / total
    require_race(size + heavy.size, num_drafts, slowest)
    sums = np.stack([bins.p, bins.q], axis=1)
    kernels.merge_small(sums, race.moments, first_heavy, next_heavy, _RUN_MASS, _RUN_BINS)
    _, step, first, nodes = race_terms(slowest, num_drafts, False)
    escapes = np.empty((size, 1))
    kernels.race_curve(
        sums, race.moments, first_heavy, next_heavy, heavy / total, np.array([num_drafts]),
        race.unit / total, step, first, race.others / total,
        np.empty((RACE_ROWS + num_drafts, nodes)), np.empty((num_drafts, nodes)),
        np.empty((0, nodes)), np.empty(size), np.empty(size), escapes,
    )  # fmt: skip
    drafted = np.flatnonzero(sums[:-1, 1] > 0.0)
    contained = np.append(0.0, (1.0 - escapes[1 + drafted, 0]).clip(0.0))
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
