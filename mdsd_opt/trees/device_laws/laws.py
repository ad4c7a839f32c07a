r"""Laws and drafts whose numbers stay on the device, as the rules for trees use them.

The optimal rule decides by the plan on bins of p/q, read from their masses alone: of a target r p
and the ratio :math:`\rho` of the marginal to q, :math:`I_t = u_b p_t + v_b q_t` goes on, with

.. math:: (u, v) = (r, 0),\ (0, \rho),\ (\lambda r, (1 - \lambda) r \ell)

for :math:`\rho \ge r h`, :math:`\rho \le r \ell` and in between, where :math:`\ell` and h bound p/q
in the bin and :math:`\lambda = (\rho - r \ell) / (r (h - \ell))`. Then
:math:`I_t \le \min(r p_t, \rho q_t)` for every token, so that the output follows the target exactly
while all masses come from the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Integers, Tokens, Vector
from mdsd_opt.trees.device_laws import transfers
from mdsd_opt.trees.device_laws.tables import BinTable
from mdsd_opt.trees.device_laws.transfers import PromisedToken, on_device, on_host
from mdsd_opt.trees.device_laws.weights import draw, draw_distinct
from mdsd_opt.trees.recursive_rejection import whole_support_masses
from mdsd_opt.trees.valued_rules import valued_rule
from mdsd_opt.verifiers import BinPlan, Drawn, acceptance_probabilities


class BinnedLaw:
    """Masses a p + c q with coefficients that are one number in every bin, shape (B,).

    They are scaled, added and summed by the table of the position alone; a token is drawn on the
    device.
    """

    __array_ufunc__ = None  # numbers of NumPy leave products to this class

    def __init__(self, table: BinTable, a: Vector, c: Vector) -> None:
        self.table, self.a, self.c = table, a, c

    @classmethod
    def target_of(cls, table: BinTable) -> BinnedLaw:
        """The law p itself."""
        return cls(table, np.ones_like(table.p), np.zeros_like(table.p))

    def __mul__(self, factor: float) -> BinnedLaw:
        return BinnedLaw(self.table, factor * self.a, factor * self.c)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> BinnedLaw:
        return self * (1.0 / divisor)

    def __sub__(self, other: BinnedLaw) -> BinnedLaw:
        return BinnedLaw(self.table, self.a - other.a, self.c - other.c)

    def sum(self) -> float:
        return float(self.a @ self.table.p + self.c @ self.table.q)

    def any(self) -> bool:
        return bool(self.a.any() or self.c.any())

    def normalised(self) -> Any:
        """Law in proportion to the masses; None without any mass."""
        total = self.sum()
        return self / total if total > 0.0 else None

    def draw(self, uniform: float) -> int:
        """One token drawn in proportion to the masses."""
        masses = self.masses()
        uniforms = on_device(np.array([[uniform]]), masses.device)
        return int(on_host(draw(masses[None], uniforms))[0].item())

    def masses(self) -> Any:
        """Masses of all tokens on the device, shape (V,)."""
        import torch

        target = self.table.target().double()
        if self.table.bins is None:
            return target * float(self.a[0])
        bins = self.table.bins.long()
        totals = target.sum(), self.table.draft.sum(dtype=torch.float64)
        a, c = (on_device(x, target.device)[bins] for x in (self.a, self.c))
        return (a * (target / totals[0]) + c * (self.table.draft / totals[1])).clamp_(min=0.0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        masses: NDArray[Any] = self.masses().cpu().numpy()
        if self.table.bins is None:
            masses = masses / masses.sum() * float(self.a[0])
        return masses if dtype is None else masses.astype(dtype)


class BinnedDrafts:
    """K draws from integer weights on the device, shape (V,), with replacement or without."""

    #: Attributes that schemes on the host have; here no rule of theirs applies.
    random_draws = None
    always_drafted = np.empty(0, np.int64)

    def __init__(self, weights: Any, num_drafts: int, replaced: bool = True) -> None:
        self.weights, self.num_drafts, self.replaced = weights, num_drafts, replaced

    def sample(self, rng: np.random.Generator) -> NDArray[Any]:
        """Token ids in draw order, shape (K,); -1 where none is left."""
        (row,) = on_host(_drawn([self], rng))
        return row[0].astype(np.int64)

    def passed(
        self, target: BinnedLaw, draws: Integers, values: Vector
    ) -> tuple[Vector, BinnedLaw]:
        """Masses of a target r p that go on to these draws, as `hull_masses` gives them."""
        table, demand = target.table, float(target.a[0])
        if not self.replaced and table.left(draws.tolist()) == 0.0:
            return self._all_passed(table, demand, draws)
        plan = LinearPlan(table, demand, self.num_drafts, self.replaced)
        return plan.masses(draws, values), BinnedLaw(table, plan.u, plan.v)

    def _all_passed(
        self, table: BinTable, demand: float, draws: Integers
    ) -> tuple[Vector, BinnedLaw]:
        """Result of `passed` if every token is drawn: all of the target there goes on."""
        known = np.array([table.at.get(token, (0.0, 0.0))[:2] for token in draws.tolist()])
        masses = whole_support_masses(
            demand * known[:, 0], known[:, 1], np.where(draws >= 0, np.arange(draws.size), -1)
        )
        drafted: Vector = np.where(table.q > 0.0, demand, 0.0)
        return masses, BinnedLaw(table, drafted, np.zeros_like(drafted))


def sampled(drafts: Sequence[BinnedDrafts], rng: np.random.Generator) -> list[NDArray[Any]]:
    """Draws of several nodes, promised where the host would have to wait for them.

    Then draws that coincide are only found to do so when the promises are kept.
    """
    if transfers.is_host(drafts[0].weights.device):
        return [one.sample(rng) for one in drafts]
    rows = []
    for one, row in zip(drafts, _drawn(drafts, rng), strict=True):
        draws = np.empty(one.num_drafts, dtype=object)
        draws[:] = [PromisedToken(token) for token in row[: one.num_drafts].unbind()]
        rows.append(draws)
    return rows


def _drawn(drafts: Sequence[BinnedDrafts], rng: np.random.Generator) -> Any:
    """Draws of some nodes on the device, shape (n, K) for the largest K of them."""
    import torch

    widest = max(one.num_drafts for one in drafts)
    rows = torch.stack([one.weights for one in drafts])
    uniforms = on_device(rng.random((len(drafts), widest)), rows.device)
    return (draw if drafts[0].replaced else draw_distinct)(rows, uniforms)


class LinearPlan(BinPlan):
    """Selection and acceptance at a position of positive demand r.

    `u` and `v`, shape (B,), are the coefficients of p and q in what goes on. Drafts that are drawn
    without replacement must leave something.
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
        return acceptance_probabilities(self, draws, partial(valued_rule, values=values))
