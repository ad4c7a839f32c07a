"""Q along the groups of a row, for the schemes that draw at random from one q."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import WithoutReplacement, WithReplacement
from mdsd_opt.prefix_search.race_budget import require_race
from mdsd_opt.prefix_search.race_group_kernels import COLUMNS
from mdsd_opt.verifiers.optimal import containment_kernels as kernels
from mdsd_opt.verifiers.optimal.ratio_groups_kernels import NUM_BUCKETS, Groups, closed_groups

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Coarse runs hold at most this mass and this many buckets (a quarter of an octave).
_COARSE_MASS = 8e-3
_COARSE_BUCKETS = 16


class Containment(ABC):
    """Q of the prefixes of one row.

    Attributes
    ----------
    sums : ndarray, shape (NUM_BUCKETS, 2 or more)
        Sums of p and of q over every bucket.
    ends : ndarray, shape (NUM_BUCKETS,)
        End of the run of buckets that each one stands for.
    exponent : int
        K if Q = q^K, else 0.
    """

    sums: NDArray[np.float64]
    ends: NDArray[np.int64]
    exponent: int

    @abstractmethod
    def closed(self) -> Groups:
        """One closed group for every bucket."""

    @abstractmethod
    def fill(self, groups: Groups, is_open: Flags) -> None:
        """Fill in Q at the tokens of the buckets that have just been opened."""


class Power(Containment):
    """Q(H) = q(H)^K: draws with replacement."""

    def __init__(self, p: Vector, drafts: WithReplacement, buckets: NDArray[np.uint16]) -> None:
        self.exponent = drafts.num_drafts
        self.sums = kernels.bucket_sums(p, drafts.q, buckets)
        self.ends = np.arange(1, NUM_BUCKETS + 1)

    def closed(self) -> Groups:
        groups = closed_groups(self.sums)
        kernels.fill_powers(groups, self.exponent)
        return groups

    def fill(self, groups: Groups, is_open: Flags) -> None:
        kernels.fill_powers(groups, self.exponent)


class Raced(Containment):
    """All of the first K clocks to ring lie in H: draws without replacement.

    Raises
    ------
    ProblemTooLarge
        Too many drafts for so many tokens.
    """

    def __init__(
        self, p: Vector, drafts: WithoutReplacement, buckets: NDArray[np.uint16], coarse: bool
    ) -> None:
        self.exponent = 0
        self._q, most = drafts.q, drafts.num_drafts
        self._num_drafts = np.array([most])
        require_race(drafts.support.size, most, 1.0)  # before anything takes time
        slowest, self._others = kernels.race_rates(
            drafts.q, most, np.empty(max(most - 1, 1), np.int64)
        )
        require_race(drafts.support.size, most, slowest)
        self._race = kernels.race_table(most, slowest)
        self.sums, run = np.empty((2, NUM_BUCKETS, COLUMNS))
        heavy = np.empty(p.size), np.empty(p.size, np.int64)
        chains = np.empty(NUM_BUCKETS, np.int64), heavy[1], heavy[0]
        kernels.race_sums(p, drafts.q, buckets, most, slowest, run, self.sums, *chains)
        limits = (_COARSE_MASS, _COARSE_BUCKETS) if coarse else (0.0, 0)
        self.ends = np.empty(NUM_BUCKETS, np.int64)
        kernels.merge_small(self.sums, *chains[:2], *limits, self.ends)
        self._groups = closed_groups(self.sums)
        kept = np.empty((0 if coarse else NUM_BUCKETS, most, self._race.shape[1]))
        self._before = kept, np.empty(NUM_BUCKETS), np.empty(NUM_BUCKETS + 1)
        kernels.race_curve(
            self._race, self.sums, *chains, self._num_drafts, slowest, self._others,
            self._groups.buckets, self._groups.contained, *self._before,
        )  # fmt: skip

    def closed(self) -> Groups:
        return self._groups

    def fill(self, groups: Groups, is_open: Flags) -> None:
        kernels.fill_opened_race(
            self._race, self._num_drafts, self._others, groups.keys, groups.buckets,
            groups.contained, is_open, self._q, *self._before,
        )  # fmt: skip


def containment_of(
    p: Vector,
    drafts: WithReplacement | WithoutReplacement,
    buckets: NDArray[np.uint16],
    coarse: bool = False,
) -> Containment:
    """The containment of the drafts of one row, whose tokens are in these buckets.

    With ``coarse=True`` small buckets may be merged where their number costs time.
    """
    if isinstance(drafts, WithReplacement):
        return Power(p, drafts, buckets)
    return Raced(p, drafts, buckets, coarse)
