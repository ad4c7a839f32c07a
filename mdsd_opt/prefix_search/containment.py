"""Q along the groups of a row, for the schemes that draw at random from one q."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.distributions import mass_of_others
from mdsd_opt.drafts import WithoutReplacement, WithReplacement
from mdsd_opt.prefix_search import containment_kernels as kernels
from mdsd_opt.prefix_search.race_budget import require_race
from mdsd_opt.prefix_search.race_group_kernels import COLUMNS
from mdsd_opt.prefix_search.race_kernels import RACE_ROWS, race_terms
from mdsd_opt.prefix_search.ratio_groups_kernels import NEVER_DRAFTED, NUM_BUCKETS

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]
Buckets = NDArray[np.uint16]
Flags = NDArray[np.bool_]

# Coarse runs hold at most this mass and this many buckets (a quarter of an octave).
_COARSE_MASS = 8e-3
_COARSE_BUCKETS = 16

#: Tokens of which only the largest is looked at first.
_STRETCH = 256


class Containment(ABC):
    """Q of the prefixes of one row.

    Attributes
    ----------
    buckets : ndarray of uint16, shape (V,)
        Bucket of every token.
    sums : ndarray, shape (NUM_BUCKETS, 2)
        Sums of p and of q over every bucket.
    run_ends : ndarray, shape (NUM_BUCKETS,)
        End of the run of buckets that each one stands for.
    contained : ndarray, shape (NUM_BUCKETS,)
        Q at the end of every bucket; of no meaning where Q is a power.
    exponent : int
        K if Q = q^K, else 0.
    slack : float
        What rounding may feign of P - Q.
    """

    buckets: Buckets
    sums: Matrix
    run_ends: Integers
    contained: Vector
    exponent: int
    slack: float

    def __init__(self, buckets: Buckets, sums: Matrix) -> None:
        self.buckets, self.sums = buckets, sums
        self.run_ends = np.arange(1, NUM_BUCKETS + 1)
        self.contained = np.zeros(NUM_BUCKETS)

    @abstractmethod
    def at(self, tokens: Integers) -> Vector:
        """Q at the tokens of buckets that are opened, given in order; not asked for twice."""


class Power(Containment):
    """Q(H) = q(H)^K: draws with replacement."""

    slack = 1e-15

    def __init__(self, drafts: WithReplacement, buckets: Buckets, sums: Matrix) -> None:
        super().__init__(buckets, sums)
        self.exponent = drafts.num_drafts

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
        drafts: WithoutReplacement,
        buckets: Buckets,
        sums: Matrix,
        coarse: bool,
        checks: bool,
    ) -> None:
        super().__init__(buckets, sums)
        self._q, most = drafts.q, drafts.num_drafts
        require_race(drafts.support.size, most, 1.0)  # before anything takes time
        slowest, others = race_rates(drafts.q, most)
        require_race(drafts.support.size, most, slowest)
        light_rate, step, first, nodes = race_terms(slowest, most, checks)
        run, moments = np.empty((2, NUM_BUCKETS, COLUMNS))
        size = drafts.vocab_size
        chains = np.empty(NUM_BUCKETS, np.int64), np.empty(size, np.int64), np.empty(size)
        kernels.race_sums(drafts.q, buckets, light_rate, run, moments, *chains)
        if coarse:
            kernels.merge_small(
                sums, moments, *chains[:2], _COARSE_MASS, _COARSE_BUCKETS, self.run_ends
            )
        num_drafts, race = np.array([most]), np.empty((RACE_ROWS + most, nodes))
        kept = np.empty((0 if coarse else NUM_BUCKETS, most, nodes))
        self._race = num_drafts, others, race
        self._before = kept, np.empty(NUM_BUCKETS), np.empty(NUM_BUCKETS + 1), np.empty(1)
        kernels.race_curve(
            sums, moments, *chains, num_drafts, light_rate, step, first, others, race,
            np.empty((most, nodes)), *self._before, self.contained,
        )  # fmt: skip

    def at(self, tokens: Integers) -> Vector:
        left, contained = np.empty((2, tokens.size))
        kernels.race_opened(
            tokens, self.buckets, self._q, *self._race, *self._before, left, contained
        )
        return contained


def race_rates(q: Vector, num_drafts: int) -> tuple[float, float]:
    """The slowest rate that matters, and that of all tokens but the likeliest."""
    likeliest = _likeliest(q, num_drafts - 1)
    slowest = float(mass_of_others(q, likeliest))
    return slowest, float(np.sort(q[likeliest])[-2::-1].sum()) + slowest


def _likeliest(q: Vector, count: int) -> Integers:
    """The likeliest tokens, looked for among the stretches with the largest maxima."""
    if count == 0:
        return np.empty(0, np.int64)
    starts = np.arange(0, q.size, _STRETCH)
    candidates = np.arange(q.size)
    if starts.size > count:
        largest = np.maximum.reduceat(q, starts).argpartition(-count)[-count:]
        candidates = (starts[largest, np.newaxis] + np.arange(_STRETCH)).ravel()
        candidates = candidates[candidates < q.size]
    return candidates[q[candidates].argpartition(-count)[-count:]]


def containment_of(
    drafts: WithReplacement | WithoutReplacement,
    buckets: Buckets,
    sums: Matrix,
    coarse: bool = False,
    checks: bool = False,
) -> Containment:
    """The containment of the drafts of one row, by its buckets and their sums of p and q.

    With ``coarse=True`` small buckets may be merged where their number costs time; with
    ``checks=True`` a quadrature is a finer one.
    """
    if isinstance(drafts, WithReplacement):
        return Power(drafts, buckets, sums)
    return Raced(drafts, buckets, sums, coarse, checks)


def contained_in(
    drafts: WithReplacement | WithoutReplacement, subset: Flags, checks: bool = False
) -> float:
    """Q of any subset: its tokens share the first bucket, and the others the last."""
    sums = np.zeros((NUM_BUCKETS, 2))
    sums[0, 1] = np.where(subset, drafts.q, 0.0).sum()
    sums[NEVER_DRAFTED, 1] = np.where(subset, 0.0, drafts.q).sum()
    buckets = np.where(subset, np.uint16(0), np.uint16(NEVER_DRAFTED))
    found = containment_of(drafts, buckets, sums, coarse=True, checks=checks)
    if found.exponent > 0:
        return min(float(sums[0, 1]), 1.0) ** found.exponent
    return float(found.contained[0])
