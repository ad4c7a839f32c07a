"""Relaxed rates of rows of logits: called as a `batch.row_functions.RowFunction`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Matrix
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers.frontier.curve import CostCurve
from mdsd_opt.solvers.frontier.relaxation import frontier_of

if TYPE_CHECKING:
    from mdsd_opt.solvers.frontier.row_groups import RowGroups


#: By how much a rate may be too small for what groups hide, before tokens are taken one by one.
ERROR = 1e-6

#: A curve inside groups costs at most so many times what a law inside them would.
_SAFETY = 2.0


@dataclass(frozen=True, slots=True)
class RelaxedRows:
    """What each budget buys, for each scheme and K.

    Attributes
    ----------
    lossless : tuple of callable
        For each scheme what computes alpha*, a `RowFunction`.
    schemes : tuple of str
    name : {"tv", "kl", "chi2"}
    amounts : tuple of float
        Budgets; or slopes, if there are many positions to share a budget.
    by_slope : bool
        Write, for each slope, the rate and what it costs at most.
    doubtful : float
        How much of such a cost groups may hide, before tokens are taken one by one.
    """

    lossless: tuple[Callable[..., None], ...]
    schemes: tuple[str, ...]
    name: str
    amounts: tuple[float, ...]
    by_slope: bool = False
    doubtful: float = ERROR

    @property
    def num_columns(self) -> int:
        """Of each scheme and K."""
        return len(self.amounts) * (2 if self.by_slope else 1)

    def __call__(
        self,
        target: NDArray[Any],
        draft: NDArray[Any],
        target_scale: float,
        draft_scale: float,
        num_drafts: Integers,
        rates: Matrix,
        totals: Matrix,
    ) -> None:
        shape = len(target), len(self.schemes), num_drafts.size, len(self.amounts), -1
        found = rates.reshape(shape)
        least = np.empty(found.shape[:3])
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
            found[..., 0] = np.where(over, np.nextafter(reached, 0.0), reached)
            return
        from mdsd_opt.solvers.frontier.row_groups import RowGroups

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
                        bought = self._bought(_token_by_token(groups, scheme, counts[m]))
                    found[row, n, m] = bought
        if nothing.any():
            found[..., nothing, :] = 0.0
            found[..., nothing, 0] = least[..., None]

    def _bought(self, curve: CostCurve) -> list[tuple[float, ...]] | None:
        """What is bought for certain; None if what groups hide may take too much of it."""
        found: list[tuple[float, ...]] = []
        for amount in self.amounts:
            if self.by_slope:
                rate = curve.rate_at_slope(self.name, amount)
                hidden = _SAFETY * curve.doubt(self.name, rate)
                if hidden > self.doubtful:
                    return None
                found.append((rate, curve.cost(self.name, rate) + hidden))
                continue
            rate = curve.rate_within(self.name, amount)
            hidden = _SAFETY * curve.doubt(self.name, rate) if 0.0 < amount < np.inf else 0.0
            surely = curve.rate_within(self.name, amount - hidden) if hidden > 0.0 else rate
            if hidden > 0.0 and (hidden >= amount or rate - surely > ERROR):
                return None
            found.append((surely,))
        return found


def _token_by_token(row: RowGroups, scheme: str, k: int) -> CostCurve:
    problem = TransportProblem(row.p, SINGLE_MODEL_SCHEMES[scheme](row.q, k))
    return CostCurve.of(frontier_of(problem))
