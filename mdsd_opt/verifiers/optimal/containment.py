"""Q along the groups of a row, for the schemes that draw at random from one q."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import WithoutReplacement, WithReplacement
from mdsd_opt.kernels.race_budget import require_race
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
        self._q, self._num_drafts = drafts.q, drafts.num_drafts
        slowest, others = kernels.race_rates(drafts.q, drafts.num_drafts)
        require_race(p.size, drafts.num_drafts, slowest)
        race, race_groups = kernels.race_sums(
            p, drafts.q, buckets, drafts.num_drafts, slowest, others
        )
        self.sums = race_groups.sums
        limits = (_COARSE_MASS, _COARSE_BUCKETS) if coarse else (0.0, 0)
        self.ends = kernels.merge_small(race_groups, *limits)
        self._groups = closed_groups(self.sums)
        self._curve = kernels.race_curve(
            race, race_groups, drafts.num_drafts, self._groups, not coarse
        )

    def closed(self) -> Groups:
        return self._groups

    def fill(self, groups: Groups, is_open: Flags) -> None:
        kernels.fill_opened_race(groups, is_open, self._q, self._curve)


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
