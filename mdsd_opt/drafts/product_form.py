r"""Schemes made of independent draws, for which Q is a polynomial in the masses q_r(H).

With the different models q_1 .. q_R,

.. math:: Q(H) = f(x), \qquad f(x) = \sum_c m_c \prod_r x_r^{n_{cr}}, \qquad x_r = q_r(H),

where c runs over the components of a mixture and :math:`n_{cr}` counts the draws of component c
from model r. No derivative of f is negative for x >= 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Floats, Integers
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts.scheme import DraftScheme
from mdsd_opt.drafts.support_law import require_short_powers


@dataclass(frozen=True, slots=True, eq=False)
class ProductForm:
    """Polynomial f and the models it is evaluated on; float64, or Fractions in object arrays.

    q has shape (R, V); the weights, shape (C,), are m_c; `powers`, shape (C, R), is how often
    component c draws from model r.
    """

    q: NDArray[Any]
    weights: NDArray[Any]
    powers: Integers

    def value(self, x: NDArray[Any]) -> Any:
        """Value f(x), x of shape (R,)."""
        return (self.weights * self._powers(x).prod(axis=1)).sum()

    def values(self, points: Floats) -> Floats:
        """Values of f at many points, (n, R) -> (n,)."""
        values = np.zeros(len(points))
        for weight, powers in zip(self.weights, self.powers, strict=True):
            drawn = powers > 0
            values += weight * (points[:, drawn] ** powers[drawn]).prod(axis=1)
        return values

    def gradient(self, x: NDArray[Any]) -> NDArray[Any]:
        """Partial derivatives of f, shape (R,); no division, so zeros in x do no harm."""
        return self.chain_slopes(x, x, np.arange(x.size)[None])[0]

    def chain_slopes(self, low: NDArray[Any], high: NDArray[Any], orders: Integers) -> NDArray[Any]:
        """Slopes of f along each coordinate, raised from low to high in these orders, (n, R)."""
        raised = self._powers(high)[:, orders]
        not_yet = self._powers(low)[:, orders[:, ::-1]]
        others = _products_before(raised) * _products_before(not_yet)[:, :, ::-1]
        steps = (self.weights[:, None, None] * self._slopes(low, high)[:, orders] * others).sum(0)
        slopes = np.empty_like(steps)
        np.put_along_axis(slopes, orders, steps, axis=1)
        return slopes

    def _slopes(self, low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
        """Slopes of the power of each coordinate alone, shape (C, R)."""
        if self.powers.max() <= 1:
            return self.powers.astype(low.dtype)
        ends = list(zip(low.tolist(), high.tolist(), strict=True))
        rows = [[_power_slope(*x, n) for x, n in zip(ends, row, strict=True)]
                for row in self.powers.tolist()]  # fmt: skip
        return np.array(rows, dtype=low.dtype)

    def _powers(self, x: NDArray[Any]) -> NDArray[Any]:
        if x.dtype == object:
            require_short_powers([Fraction(mass) for mass in x], int(self.powers.max()))
        return x**self.powers


def _products_before(factors: NDArray[Any]) -> NDArray[Any]:
    """Product of the factors before each place of the last axis."""
    products = np.ones_like(factors)
    np.multiply.accumulate(factors[..., :-1], axis=-1, out=products[..., 1:])
    return products


def _power_slope(low: Any, high: Any, n: int) -> Any:
    """Quotient (high^n - low^n) / (high - low), without cancellation in floating point."""
    if n <= 1 or high <= low:
        return n * low ** max(n - 1, 0)
    if not isinstance(low, float):
        return (high**n - low**n) / (high - low)
    step = (high - low) / high
    rise = -np.expm1(n * np.log1p(-step)) if step < 1 else 1.0
    return high ** (n - 1) * rise / step


def product_form(drafts: DraftScheme | None) -> ProductForm | None:
    """Polynomial of a scheme; None if it is not made of independent draws.

    Models that neither float64 nor Fractions tell apart are one, so both have equal rows.
    """
    draws = None if drafts is None else drafts.independent_draws()
    if draws is None:
        return None
    models: list[Distribution] = []
    rows: list[dict[int, int]] = []
    for _, factors in draws:
        row: dict[int, int] = {}
        for model, count in factors:
            r = next((r for r, known in enumerate(models) if known.same_as(model)), len(models))
            if r == len(models):
                models.append(model)
            row[r] = row.get(r, 0) + count
        rows.append(row)
    powers = np.array([[row.get(r, 0) for r in range(len(models))] for row in rows], dtype=np.int64)
    exact = drafts is not None and drafts.exact
    weights = np.array([w for w, _ in draws], dtype=object if exact else np.float64)
    return ProductForm(np.array([model.numbers(exact) for model in models]), weights, powers)
