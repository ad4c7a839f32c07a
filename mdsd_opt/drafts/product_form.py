r"""Schemes made of independent draws: Q is a polynomial in the masses q_r(H).

With rows q_1 .. q_R, the same model once for each draw from it,

.. math:: Q(H) = f(x), \qquad f(x) = \sum_c m_c \prod_{r \in c} x_r, \qquad x_r = q_r(H),

where c runs over the components of a mixture. All mixed differences of f are non-negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.distributions import Distribution
from mdsd_opt.drafts.base import DraftScheme
from mdsd_opt.drafts.independent import IndependentDrafts
from mdsd_opt.drafts.with_replacement import WithReplacement


@dataclass(frozen=True, slots=True, eq=False)
class ProductForm:
    """f and the rows it is evaluated on; float64, or Fractions in object arrays.

    Attributes
    ----------
    q : ndarray, shape (R, V)
    models : tuple of Distribution, length R
        What the rows were made from: of it floats and Fractions make the same rows.
    weights : ndarray, shape (C,)
        m_c.
    uses : ndarray of bool, shape (C, R)
        Which rows component c draws from.
    """

    q: NDArray[Any]
    models: tuple[Distribution, ...]
    weights: NDArray[Any]
    uses: NDArray[np.bool_]

    def value(self, x: NDArray[Any]) -> Any:
        """f(x), x of shape (R,)."""
        return (self.weights * self._factors(x).prod(axis=1)).sum()

    def gradient(self, x: NDArray[Any]) -> NDArray[Any]:
        """Partial derivatives of f, shape (R,); no division, so zeros in x do no harm."""
        return np.array([self.partial(x, r) for r in range(x.size)], dtype=x.dtype)

    def partial(self, x: NDArray[Any], r: int) -> Any:
        """Partial derivative of f with respect to x_r."""
        others = self._factors(x)
        others[:, r] = self.uses[:, r]
        return (self.weights * others.prod(axis=1)).sum()

    def _factors(self, x: NDArray[Any]) -> NDArray[Any]:
        return np.where(self.uses, x, x.dtype.type(1) if x.dtype != object else 1)


@singledispatch
def product_form(drafts: DraftScheme, exact: bool = False) -> ProductForm | None:
    """The polynomial of a scheme, or None if it is not made of independent draws."""
    return None


@product_form.register
def _independent(drafts: IndependentDrafts, exact: bool = False) -> ProductForm:
    q = np.array(drafts.exact_q, dtype=object) if exact else drafts.q
    return _one_component(q, drafts.models)


@product_form.register
def _with_replacement(drafts: WithReplacement, exact: bool = False) -> ProductForm:
    q = np.array(drafts.exact_q, dtype=object) if exact else drafts.q
    rows = np.tile(q, (drafts.num_drafts, 1))
    return _one_component(rows, (drafts.model,) * drafts.num_drafts)


def _one_component(q: NDArray[Any], models: tuple[Distribution, ...]) -> ProductForm:
    return ProductForm(q, models, np.ones(1, dtype=q.dtype), np.ones((1, len(q)), dtype=np.bool_))


def joined(forms: list[ProductForm], weights: NDArray[Any]) -> ProductForm:
    """The form of a mixture; rows that several components share are kept once."""
    rows: list[NDArray[Any]] = []
    models: list[Distribution] = []
    places = []
    for form in forms:
        taken: list[int] = []
        for q, model in zip(form.q, form.models, strict=True):
            free = (r for r, known in enumerate(models) if r not in taken and known.same_as(model))
            place = next(free, len(rows))
            if place == len(rows):
                rows.append(q)
                models.append(model)
            taken.append(place)
        places.append(taken)
    uses = []
    for form, taken in zip(forms, places, strict=True):
        wide = np.zeros((len(form.uses), len(rows)), dtype=np.bool_)
        wide[:, taken] = form.uses
        uses.append(wide)
    masses = [w * form.weights for w, form in zip(weights, forms, strict=True)]
    return ProductForm(np.array(rows), tuple(models), np.concatenate(masses), np.concatenate(uses))
