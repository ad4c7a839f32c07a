r"""The optimal rule for r p on bins of p/q, from their masses alone.

The selection marginal has one ratio :math:`\rho_b` to q in every bin (`bin_marginal`), and what
goes on is linear there, :math:`I_t = u_b p_t + v_b q_t`, with

.. math:: (u, v) = (r, 0),\ (0, \rho),\ (\lambda r, (1 - \lambda) r \ell)

for :math:`\rho \ge r h`, :math:`\rho \le r \ell` and in between, where :math:`\ell` and h bound p/q
in the bin and :math:`\lambda = (\rho - r \ell) / (r (h - \ell))`. Then
:math:`I_t \le \min(r p_t, \rho q_t)` for every token, so that the output follows the target exactly
while all masses come from the table. What coarse bins lose is `gap`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.decoding.device_laws.tables import BinTable
from mdsd_opt.prefix_search.bin_groups import groups_of
from mdsd_opt.verifiers.optimal.bin_marginal import bin_marginal
from mdsd_opt.verifiers.optimal.block_rules import Drawn
from mdsd_opt.verifiers.optimal.hull import death_levels, mean_over_joins, mean_over_levels

Vector = NDArray[np.float64]


class BinPlan:
    """Selection and acceptance at a position of demand r.

    Attributes
    ----------
    u, v : ndarray, shape (B,)
        Coefficients of p and q in what goes on.
    most : float
        No rule passes more on average.
    gap : float
        What this one passes less than `most`, at most.

    Parameters
    ----------
    table : BinTable
    demand : float
        r, positive.
    num_drafts : int
    replaced : bool
        Whether they are drawn with replacement; else they must leave something.
    """

    def __init__(
        self, table: BinTable, demand: float, num_drafts: int, replaced: bool = True
    ) -> None:
        groups = groups_of(table, num_drafts, replaced)
        self._table, self._groups = table, groups
        self._replaced = replaced
        marginal = bin_marginal(groups, demand)
        self.most, ratio = marginal.most, marginal.ratio
        self._levels = death_levels(marginal.x, groups.q, np.diff(groups.contained))
        lowest, highest = demand * groups.lowest, demand * groups.highest
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (ratio - lowest) / (highest - lowest)
        share = np.where(highest < np.inf, np.nan_to_num(share).clip(0.0, 1.0), 0.0)
        share[ratio >= highest] = 1.0
        rest = np.where(share < 1.0, (1.0 - share) * np.minimum(lowest, ratio), 0.0)
        # the last place is that of what is never drafted
        by_group = np.stack([ratio, demand * share, rest])
        self._ratio, self.u, self.v = np.pad(by_group, ((0, 0), (0, 1)))[:, groups.place]

    @property
    def gap(self) -> float:
        return max(self.most - float(self.u @ self._table.p + self.v @ self._table.q), 0.0)

    def masses(self, draws: NDArray[np.int64], values: Vector) -> Vector:
        """Probability that each draft is passed, given the draws; shape (K,)."""
        from mdsd_opt.decoding.valued_rules import valued_rule_of_draws

        p, q, found, weights = np.array([self._table.at[token] for token in draws.tolist()]).T
        bins = found.astype(np.int64)
        places = self._groups.place[bins]
        # all other tokens are one; in integers, no difference loses a small one
        weights = np.append(weights, self._table.left(draws.tolist()))
        drawn = Drawn(np.arange(draws.size), places, weights, self._groups.above)
        rule = valued_rule_of_draws(self._replaced, drawn, values)
        shares: Vector = (
            mean_over_joins(rule, places, self._levels)
            if self._replaced
            else mean_over_levels(rule, int(places.max()), self._levels)
        )
        kept, ratio = self.u[bins] * p / q + self.v[bins], self._ratio[bins]
        accepted = np.divide(kept, ratio, out=np.zeros_like(kept), where=ratio > 0.0)
        return shares * np.minimum(accepted, 1.0)
