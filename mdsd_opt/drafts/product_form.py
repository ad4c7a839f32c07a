r"""Schemes made of independent draws: Q is a polynomial in the masses q_r(H).

With the different models q_1 .. q_R,

.. math:: Q(H) = f(x), \qquad f(x) = \sum_c m_c \prod_r x_r^{n_{cr}}, \qquad x_r = q_r(H),

where c runs over the components of a mixture and :math:`n_{cr}` counts the draws of component c
from model r. No derivative of f is negative for x >= 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.distributions import Distribution
from mdsd_opt.drafts.base import DraftScheme
from mdsd_opt.drafts.counting import require_short_powers
from mdsd_opt.drafts.independent import IndependentDrafts
from mdsd_opt.drafts.with_replacement import WithReplacement

#: Weight of a component, and its models with the number of draws from each.
Component = tuple[Any, list[tuple[Distribution, int]]]


@dataclass(frozen=True, slots=True, eq=False)
class ProductForm:
    """f and the models it is evaluated on; float64, or Fractions in object arrays.

    Attributes
    ----------
    q : ndarray, shape (R, V)
    weights : ndarray, shape (C,)
        m_c.
    powers : ndarray of int64, shape (C, R)
        How often component c draws from model r.
    """

    q: NDArray[Any]
    weights: NDArray[Any]
    powers: NDArray[np.int64]

    def value(self, x: NDArray[Any]) -> Any:
        """f(x), x of shape (R,)."""
        return (self.weights * self._powers(x).prod(axis=1)).sum()

    def gradient(self, x: NDArray[Any]) -> NDArray[Any]:
        """Partial derivatives of f, shape (R,); no division, so zeros in x do no harm."""
        return np.array([self.slope(x, r, x[r]) for r in range(x.size)], dtype=x.dtype)

    def slope(self, x: NDArray[Any], r: int, end: Any) -> Any:
        """Slope of f between x and the point with `end` >= x_r for x_r; at x itself if equal."""
        factors = self._powers(x)
        slopes = {n: _power_slope(x[r], end, n) for n in set(self.powers[:, r].tolist())}
        factors[:, r] = [slopes[n] for n in self.powers[:, r].tolist()]
        return (self.weights * factors.prod(axis=1)).sum()

    def _powers(self, x: NDArray[Any]) -> NDArray[Any]:
        if x.dtype == object:
            require_short_powers([Fraction(mass) for mass in x], int(self.powers.max()))
        return x**self.powers


def _power_slope(low: Any, high: Any, n: int) -> Any:
    """(high^n - low^n) / (high - low), without cancellation in floating point."""
    if n <= 1 or high <= low:
        return n * low ** max(n - 1, 0)
    if not isinstance(low, float):
        return (high**n - low**n) / (high - low)
    step = (high - low) / high
    rise = -np.expm1(n * np.log1p(-step)) if step < 1 else 1.0
    return high ** (n - 1) * rise / step


def product_form(drafts: DraftScheme, exact: bool = False) -> ProductForm | None:
    """The polynomial of a scheme, or None if it is not made of independent draws.

    Models that were given as the same numbers are one, so float64 and Fractions have equal rows.
    """
    found = components(drafts, exact)
    if found is None:
        return None
    models: list[Distribution] = []
    rows: list[dict[int, int]] = []
    for _, factors in found:
        row: dict[int, int] = {}
        for model, count in factors:
            r = next((r for r, known in enumerate(models) if known.is_same(model)), len(models))
            if r == len(models):
                models.append(model)
            row[r] = row.get(r, 0) + count
        rows.append(row)
    powers = np.array([[row.get(r, 0) for r in range(len(models))] for row in rows], dtype=np.int64)
    kind = object if exact else np.float64
    q = [model.exact() if exact else model.values for model in models]
    return ProductForm(np.array(q, dtype=kind), np.array([w for w, _ in found], dtype=kind), powers)


@singledispatch
def components(drafts: DraftScheme, exact: bool) -> list[Component] | None:
    """The terms of the polynomial, or None if there is none."""
    return None


@components.register
def _independent(drafts: IndependentDrafts, exact: bool) -> list[Component]:
    return [(1, [(model, 1) for model in drafts._models])]


@components.register
def _with_replacement(drafts: WithReplacement, exact: bool) -> list[Component]:
    return [(1, [(drafts._draft, drafts.num_drafts)])]
