"""Relaxed rates of rows of logits: called as a `batch.row_functions.RowFunction`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers.frontier.costs import CostCurve
from mdsd_opt.solvers.frontier.relaxation import frontier_of

if TYPE_CHECKING:
    from mdsd_opt.solvers.frontier.row_groups import RowGroups

Integers = NDArray[np.int64]
Matrix = NDArray[np.float64]

#: By how much a rate may be too large for what groups hide, before tokens are taken one by one.
_ERROR = 1e-6

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
        Write, for each slope, the rate and what it costs.
    """

    lossless: tuple[Callable[..., None], ...]
    schemes: tuple[str, ...]
    name: str
    amounts: tuple[float, ...]
    by_slope: bool = False

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
        shape = len(target), len(self.schemes), num_drafts.size, -1
        found = rates.reshape(shape)
        least = np.empty(found.shape[:3])
        if self.name == "tv" or (0.0 in self.amounts and not self.by_slope):
            for n, function in enumerate(self.lossless):
                room = np.empty((len(target), num_drafts.size))
                function(target, draft, target_scale, draft_scale, num_drafts, room, totals)
                least[:, n] = room
        if self.name == "tv":  # each unit of it buys one of acceptance
            found[...] = np.minimum(least[..., None] + np.array(self.amounts), 1.0)
            return
        from mdsd_opt.solvers.frontier.row_groups import RowGroups

        counts = tuple(num_drafts.tolist())
        groups = RowGroups(target.shape[1], max(counts))
        for row in range(len(target)):
            totals[row] = groups.weigh(target[row], draft[row], target_scale, draft_scale)
            if not np.isfinite(totals[row]).all():
                continue
            for n, scheme in enumerate(self.schemes):
                made = SINGLE_MODEL_SCHEMES[scheme].composition
                chains = None if made is None else groups.chains(made, counts)
                for m, k in enumerate(counts):
                    curve = None if chains is None else chains[m].costs()
                    if curve is None or self._is_doubtful(curve):
                        curve = _token_by_token(groups, scheme, k)
                    found[row, n, m] = self._of_curve(curve)
        if not self.by_slope:
            nothing = np.array(self.amounts) == 0.0
            found[..., nothing] = least[..., None]

    def _of_curve(self, curve: CostCurve) -> list[float]:
        if not self.by_slope:
            return [curve.rate_within(self.name, amount) for amount in self.amounts]
        rates = [curve.rate_at_slope(self.name, amount) for amount in self.amounts]
        return [value for rate in rates for value in (rate, curve.cost(self.name, rate))]

    def _is_doubtful(self, curve: CostCurve) -> bool:
        """Whether what groups hide may matter to some rate, or to the sum of what rates cost."""
        for amount in self.amounts:
            if amount in (0.0, np.inf):
                continue
            if self.by_slope:
                rate = curve.rate_at_slope(self.name, amount)
                if _SAFETY * curve.doubt(self.name, rate) > _ERROR:
                    return True
                continue
            rate = curve.rate_within(self.name, amount)
            hidden = _SAFETY * curve.doubt(self.name, rate)
            surely = curve.rate_within(self.name, amount - hidden) if amount > hidden else 0.0
            if hidden > 0.0 and rate - surely > _ERROR:
                return True
        return False


def _token_by_token(row: RowGroups, scheme: str, k: int) -> CostCurve:
    problem = TransportProblem(row.p, SINGLE_MODEL_SCHEMES[scheme](row.q, k))
    return CostCurve.of(frontier_of(problem))
