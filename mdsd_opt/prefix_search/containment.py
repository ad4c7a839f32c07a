"""Q along the groups of a row, for draws at random from one q."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from mdsd_opt.base.arrays import Flags, Integers, Keys, Matrix, Vector
from mdsd_opt.prefix_search import race_group_kernels as kernels
from mdsd_opt.prefix_search.race_group_kernels import COLUMNS
from mdsd_opt.prefix_search.race_kernels import RACE_ROWS, race_terms
from mdsd_opt.prefix_search.random_draws import RandomDraws, require_race
from mdsd_opt.prefix_search.ratio_groups_kernels import (
    NEVER_DRAFTED,
    NUM_BUCKETS,
    P,
    Q,
    sum_buckets,
)

#: Q where it is not kept by bucket.
_NOTHING = np.zeros(NUM_BUCKETS)


class Containment(ABC):
    """Q of the prefixes of one row.

    Attributes
    ----------
    buckets : ndarray of uint16, shape (V,)
        Bucket of every token.
    sums : ndarray, shape (NUM_BUCKETS, 2)
        Sums of p and of q over every bucket.
    contained : ndarray, shape (NUM_BUCKETS,)
        Q at the end of every bucket; of no meaning where Q is a power.
    exponent : int
        K if Q = q^K, else 0.
    slack : float
        What rounding may feign of P - Q.
    """

    buckets: Keys
    sums: Matrix
    contained: Vector
    exponent: int
    slack: float

    def __init__(self, buckets: Keys, sums: Matrix) -> None:
        self.buckets, self.sums = buckets, sums
        self.contained = _NOTHING

    @abstractmethod
    def at(self, tokens: Integers) -> Vector:
        """Q at the tokens of buckets that are opened, given in order; not asked for twice."""


class Power(Containment):
    """Q(H) = q(H)^K: draws with replacement."""

    slack = 1e-15

    def __init__(self, draws: RandomDraws, buckets: Keys, sums: Matrix) -> None:
        super().__init__(buckets, sums)
        self.exponent = draws.num_drafts

    def at(self, tokens: Integers) -> Vector:
        return np.empty(tokens.size)  # known from q


class Raced(Containment):
    """All of the first K clocks to ring lie in H: draws without replacement.

    Raises
    ------
    ProblemTooLarge
        Too many drafts for so many tokens.
    """

    exponent = 0
    slack = 2e-13

    def __init__(
        self,
        draws: RandomDraws,
        p: Vector,
        buckets: Keys,
        sums: Matrix | None,
        opens: bool,
        checks: bool,
    ) -> None:
        self._q, most = draws.q, draws.num_drafts
        require_race(draws.support_size, most, 1.0)  # before anything takes time
        slowest, others = kernels.race_rates(draws.q, most, np.empty(most, np.int64))
        require_race(draws.support_size, most, slowest)
        light_rate, step, first, nodes = race_terms(slowest, most, checks)
        run, moments = np.empty((2, NUM_BUCKETS, COLUMNS))
        size = draws.q.size
        chains = np.empty(NUM_BUCKETS, np.int64), np.empty(size, np.int64), np.empty(size)
        kernels.race_sums(p, draws.q, buckets, light_rate, run, moments, *chains)
        super().__init__(buckets, moments[:, [P, Q]] if sums is None else sums)
        self.contained = np.zeros(NUM_BUCKETS)
        num_drafts, race = np.array([most]), np.empty((RACE_ROWS + most, nodes))
        kept = np.empty((NUM_BUCKETS if opens else 0, most, nodes))
        self._race = num_drafts, others, race
        self._before = kept, np.empty(NUM_BUCKETS), np.empty(NUM_BUCKETS + 1), np.empty(1)
        kernels.race_curve(
            self.sums, moments, *chains, num_drafts, light_rate, step, first, others, race,
            np.empty((most, nodes)), *self._before, self.contained,
        )  # fmt: skip

    def at(self, tokens: Integers) -> Vector:
        left, contained = np.empty((2, tokens.size))
        kernels.race_opened(
            tokens, self.buckets, self._q, *self._race, *self._before, left, contained
        )
        return contained


def containment_of(
    draws: RandomDraws,
    p: Vector,
    buckets: Keys,
    *,
    opens: bool = True,
    carries: bool = False,
    checks: bool = False,
) -> Containment:
    """The containment of the draws of one row, by the buckets of its tokens.

    With ``opens=False`` no bucket is to be opened; with ``carries=True`` the sums over buckets lose
    next to nothing; with ``checks=True`` a quadrature is a finer one.
    """
    if draws.is_replaced:
        return Power(draws, buckets, _bucket_sums(p, draws.q, buckets, carries))
    sums = _bucket_sums(p, draws.q, buckets, carries) if carries else None
    return Raced(draws, p, buckets, sums, opens, checks)


def _bucket_sums(p: Vector, q: Vector, buckets: Keys, carries: bool) -> Matrix:
    sums = np.empty((NUM_BUCKETS, 2))
    sum_buckets(p, q, buckets, np.empty((NUM_BUCKETS if carries else 0, 2)), sums)
    return sums


def contained_in(draws: RandomDraws, subset: Flags, checks: bool = False) -> float:
    """Q of any subset: its tokens share the first bucket, and the others the last."""
    buckets = np.where(subset, np.uint16(0), np.uint16(NEVER_DRAFTED))
    found = containment_of(draws, draws.q, buckets, opens=False, carries=True, checks=checks)
    if found.exponent > 0:
        return min(float(found.sums[0, Q]), 1.0) ** found.exponent
    return float(found.contained[0])
