"""Relaxed rates of rows of logits: called as a `prefix_search.batch_rates.RowFunction`.

One row after another is put in groups of tokens, which give the chain of sets of each scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Matrix, Vector
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, Composition
from mdsd_opt.prefix_search import (
    BLOCK,
    P,
    fill_buckets,
    race_sums_of_row,
    require_race,
    sum_buckets,
)
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers.frontier import group_kernels as kernels
from mdsd_opt.solvers.frontier.curve import CostCurve, frontier_of

#: Largest loss of a rate through groups, before tokens are taken one by one.
ERROR = 1e-6

#: Most that a curve inside groups costs, as a multiple of the cost of a law inside them.
_SAFETY = 2.0


@dataclass(frozen=True, slots=True)
class RelaxedRows:
    """Rates for each budget of one kind, "tv", "kl" or "chi2", and each scheme and K.

    For each scheme `lossless` holds what computes alpha*, a `RowFunction`. The amounts are budgets;
    or slopes, with ``by_slope=True``, if there are many positions to share a budget: then for each
    slope the rate is written and what it costs at most. Of such a cost groups may hide `doubtful`,
    before tokens are taken one by one.
    """

    lossless: tuple[Callable[..., None], ...]
    schemes: tuple[str, ...]
    name: str
    amounts: tuple[float, ...]
    by_slope: bool = False
    doubtful: float = ERROR

    @property
    def num_columns(self) -> int:
        """Number of columns that are written for each scheme and K."""
        return len(self.amounts) * (2 if self.by_slope else 1)

    def __call__(
        self, target: NDArray[Any], draft: NDArray[Any], target_scale: float, draft_scale: float,
        num_drafts: Integers, rates: Matrix, totals: Matrix,
    ) -> None:  # fmt: skip
        shape = len(target), len(self.schemes), num_drafts.size, len(self.amounts), -1
        table = rates.reshape(shape)
        least = np.empty(table.shape[:3])
        amounts = np.array(self.amounts)
        nothing = amounts == 0.0
        if self.name == "tv" or nothing.any():
            for n, function in enumerate(self.lossless):
                room = np.empty((len(target), num_drafts.size))
                function(target, draft, target_scale, draft_scale, num_drafts, room, totals)
                least[:, n] = room
        if self.name == "tv":  # each unit of it buys one of acceptance
            reached = np.minimum(least[..., None] + amounts, 1.0)
            over = reached - least[..., None] > amounts  # by rounding
            table[..., 0] = np.where(over, np.nextafter(reached, 0.0), reached)
            return
        counts = tuple(num_drafts.tolist())
        groups = RowGroups(target.shape[1], max(counts))
        for row in range(len(target)):
            totals[row] = groups.weigh(target[row], draft[row], target_scale, draft_scale)
            if not np.isfinite(totals[row]).all():
                continue
            for n, scheme in enumerate(self.schemes):
                for m, chain in enumerate(
                    groups.chains(SINGLE_MODEL_SCHEMES[scheme].composition, counts)
                ):
                    bought = None if chain is None else self._bought(chain.costs())
                    if bought is None:
                        bought = self._bought(token_by_token(groups, scheme, counts[m]))
                    table[row, n, m] = bought
        if nothing.any():
            table[..., nothing, :] = 0.0
            table[..., nothing, 0] = least[..., None]

    def _bought(self, curve: CostCurve) -> list[tuple[float, ...]] | None:
        """Rates that are certain; None if groups may hide too much of them."""
        rates: list[tuple[float, ...]] = []
        for amount in self.amounts:
            if self.by_slope:
                rate = curve.rate_at_slope(self.name, amount)
                hidden = _SAFETY * curve.doubt(self.name, rate)
                if hidden > self.doubtful:
                    return None
                rates.append((rate, curve.cost(self.name, rate) + hidden))
                continue
            rate = curve.rate_within(self.name, amount)
            hidden = _SAFETY * curve.doubt(self.name, rate) if 0.0 < amount < np.inf else 0.0
            surely = curve.rate_within(self.name, amount - hidden) if hidden > 0.0 else rate
            if hidden > 0.0 and (hidden >= amount or rate - surely > ERROR):
                return None
            rates.append((surely,))
        return rates


def token_by_token(row: RowGroups, scheme: str, k: int) -> CostCurve:
    """Cost curve of a row whose tokens are taken one by one."""
    problem = TransportProblem(row.p, SINGLE_MODEL_SCHEMES[scheme](row.q, k))
    return CostCurve.of(frontier_of(problem))


class Chain(NamedTuple):
    """Sets of tokens, growing, as `CostCurve.of_chain` takes them.

    Masses and contained have shape (n + 1,), doubts (n,).
    """

    masses: Vector
    contained: Vector
    doubts: Vector

    def costs(self) -> CostCurve:
        """Cost curve along the sets of the chain."""
        differences = self.masses[:-1].cumsum() - self.contained[1:]
        least = 1.0 + min(float(differences.min()), 0.0)
        return CostCurve.of_chain(self.masses, self.contained, least, self.doubts)


class RowGroups:
    """Buffers for rows of one width and up to `most_drafts` drafts, and the current row.

    p and q, shape (V,), are those of the row.
    """

    def __init__(self, vocab_size: int, most_drafts: int) -> None:
        self.p, self.q, self._exponents = np.empty((3, vocab_size))
        self._likeliest = np.empty(min(most_drafts, vocab_size), np.int64)
        self._keys = np.empty(vocab_size, np.uint16)
        self._sums = np.empty((kernels.NUM_BUCKETS, 2))
        self._counts = np.empty(kernels.NUM_BUCKETS, np.int32)
        self._group_of_bucket = np.empty(kernels.NUM_BUCKETS, np.uint16)
        self._table: Matrix | None = None
        self._room = np.empty((3, min(vocab_size, kernels.NUM_BUCKETS)))

    def weigh(
        self, target: NDArray[Any], draft: NDArray[Any], target_scale: float, draft_scale: float
    ) -> tuple[float, float]:
        """Read another row; return the sums of its weights, not finite if it is no distribution."""
        self._table = None
        p_total, q_total, num_likeliest, self._support = kernels.weigh_both(
            target, draft, target_scale, draft_scale, self._exponents, self.p, self.q,
            self._likeliest,
        )  # fmt: skip
        self._fixed = self._likeliest[:num_likeliest]
        return p_total, q_total

    @property
    def table(self) -> Matrix:
        """Table of P, q and the KL that may be hidden, for each group."""
        if self._table is None:
            sums = self._sums
            fill_buckets(self.p, self.q, *kernels.SCALE, np.empty(BLOCK), self._keys)
            sum_buckets(self.p, self.q, self._keys, np.empty((0, 2)), sums)
            self._rest = float(sums[kernels.NEVER_DRAFTED, P])
            extremes = self._extreme(kernels.BELOW, np.min), self._extreme(kernels.ABOVE, np.max)
            count = kernels.merge_buckets(
                self._keys, sums, *extremes, self._counts, self._group_of_bucket, self._room
            )
            self._table = self._room[:, :count]
        return self._table

    def _extreme(self, bucket: int, which: Callable[[Vector], Any]) -> float:
        """End of an open-ended bucket, if it has one."""
        tokens = np.flatnonzero(self._keys == bucket)
        if tokens.size < 2:
            return 1.0  # a single token hides nothing
        return float(which(self.p[tokens] / self.q[tokens]))

    def chains(
        self, composition: Composition | None, counts: tuple[int, ...]
    ) -> Sequence[Chain | None]:
        """Chains of drafts that come from q in this way, for each K; None if groups do not work.

        None are known beside fixed tokens where several others are drawn.
        """
        if composition is None:
            return [None] * len(counts)
        if composition.is_random and composition.is_replaced:
            reached = np.minimum(self.table[1].cumsum(), 1.0)
            return [self._chain(reached**k) for k in counts]
        if composition.is_random:
            return [self._chain(row[1:]) for row in self._race(counts)]
        fixed = [self._fixed[: composition.num_fixed(k)] for k in counts]
        if composition.num_random == 0:
            return [_certain(float(self.p[tokens].sum())) for tokens in fixed]
        if composition.num_random == 1:
            return [self._beside_fixed(tokens) for tokens in fixed]
        return [None] * len(counts)

    def _chain(self, contained: Vector) -> Chain:
        masses = np.append(self.table[0], self._rest)
        return Chain(masses, np.concatenate([[0.0], contained]), self.table[2])

    def _race(self, counts: tuple[int, ...]) -> Matrix:
        """Containment Q of the first 0, 1, .. groups for every K."""
        numbers, places = np.unique(np.minimum(counts, self._support), return_inverse=True)
        most, size = int(numbers[-1]), self.table.shape[1]
        groups = self._group_of_bucket[self._keys]
        race = race_sums_of_row(self.q, groups, most, size + 1)
        require_race(self._support, most, race.slowest)
        contained = race.curve(race.moments, numbers).contained
        return np.maximum.accumulate(contained).T[places]

    def _beside_fixed(self, fixed: Integers) -> Chain:
        """Chain of one draft from q without the fixed tokens, which come first."""
        table = self.table.copy()
        for group in np.unique(self._group_of_bucket[self._keys[fixed]]).tolist():
            others = self._group_of_bucket[self._keys] == group
            others[fixed] = False
            # These are summed anew: a difference would lose a small rest.
            table[:2, group] = self.p[others].sum(), self.q[others].sum()
        masses, weights = table[:2]
        outside = weights.sum()
        if outside > 0:
            reached = np.minimum(weights.cumsum() / outside, 1.0)
        else:
            reached = np.ones(weights.size)
        held = float(self.p[fixed].sum())
        if not fixed.size:
            return self._chain(reached)
        return Chain(
            np.concatenate([[held], masses, [self._rest]]),
            np.concatenate([[0.0, 0.0 if outside > 0 else 1.0], reached]),
            np.concatenate([[0.0], table[2]]),
        )


def _certain(p: float) -> Chain:
    """Chain of drafts that are certain, of mass p."""
    return Chain(np.array([p, max(1.0 - p, 0.0)]), np.array([0.0, 1.0]), np.zeros(1))
