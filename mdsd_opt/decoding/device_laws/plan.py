r"""The plan on bins of p/q, read from their masses alone: what goes on is linear in every bin.

Of a target r p and the ratio :math:`\rho` of the marginal to q, :math:`I_t = u_b p_t + v_b q_t`
goes on, with

.. math:: (u, v) = (r, 0),\ (0, \rho),\ (\lambda r, (1 - \lambda) r \ell)

for :math:`\rho \ge r h`, :math:`\rho \le r \ell` and in between, where :math:`\ell` and h bound p/q
in the bin and :math:`\lambda = (\rho - r \ell) / (r (h - \ell))`. Then
:math:`I_t \le \min(r p_t, \rho q_t)` for every token, so that the output follows the target exactly
while all masses come from the table.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.decoding.device_laws.tables import BinTable
from mdsd_opt.verifiers.optimal.acceptance_rule import Drawn, acceptance_probabilities
from mdsd_opt.verifiers.optimal.bin_plan import BinPlan

Vector = NDArray[np.float64]
Tokens = NDArray[np.int64]


class LinearPlan(BinPlan):
    """Selection and acceptance at a position of demand r.

    Attributes
    ----------
    u, v : ndarray, shape (B,)
        Coefficients of p and q in what goes on.

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
        super().__init__(table, num_drafts, replaced, demand)
        self._table, groups, ratio = table, self.groups, self.x / self.w
        lowest, highest = demand * groups.lowest, demand * groups.highest
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (ratio - lowest) / (highest - lowest)
        share = np.where(highest < np.inf, np.nan_to_num(share).clip(0.0, 1.0), 0.0)
        share[ratio >= highest] = 1.0
        rest = np.where(share < 1.0, (1.0 - share) * np.minimum(lowest, ratio), 0.0)
        self.u, self.v = self.by_bin(demand * share), self.by_bin(rest)

    @property
    def passed(self) -> float:
        return float(self.u @ self._table.p + self.v @ self._table.q)

    def places(self, tokens: Tokens) -> Tokens:
        at = self._table.at
        return self.groups.place[[at[token].bin for token in tokens.tolist()]]

    def drawn(self, tokens: Tokens) -> Drawn:
        ids, table = tokens.tolist(), self._table
        # all other tokens are one; in integers, no difference loses a small one
        weights = np.array([*(table.at[token].weight for token in ids), table.left(ids)])
        return Drawn(np.arange(tokens.size), self.places(tokens), weights, self.above)

    def acceptance(self, token: int) -> float:
        p, q, place, _ = self._table.at[token]
        ratio = float(self.ratio[place])
        return min(float(self.u[place] * p / q + self.v[place]) / ratio, 1.0) if ratio > 0 else 0.0

    def masses(self, draws: Tokens, values: Vector) -> Vector:
        """Probability that each draft is passed, given the draws; shape (K,)."""
        from mdsd_opt.decoding.valued_rules import valued_rule

        return acceptance_probabilities(self, draws, partial(valued_rule, values=values))
