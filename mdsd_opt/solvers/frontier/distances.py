"""Distances of a law from the target, in the usual measures."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Floats, Numbers

#: Relative difference below which the logarithm is computed by its series.
_SMALL = 1e-3


@dataclass(frozen=True, slots=True)
class Distances:
    r"""Distances of a law x from the target p; logarithms are natural.

    Attributes
    ----------
    tv : float or Fraction
        :math:`\frac12 \sum_i |x_i - p_i|`.
    kl : float
        :math:`\mathrm{KL}(x \| p) = \sum_i x_i \log (x_i / p_i)`, in nats.
    reverse_kl : float
        :math:`\mathrm{KL}(p \| x)`.
    chi2 : float or Fraction
        :math:`\sum_i (x_i - p_i)^2 / p_i`.
    """

    tv: float | Fraction
    kl: float
    reverse_kl: float
    chi2: float | Fraction


def distances(x: Numbers, p: Numbers) -> Distances:
    """Distances of x from p; infinite if x has mass outside p's support (or the other way round).

    The laws sum to one; float64, or Fractions, of which only the logarithms are rounded.
    """
    exact = p.dtype == object
    difference = x - p
    # the positive and the negative parts are equal; their mean halves what rounding does
    tv = abs(difference).sum() / 2
    held = p > 0
    chi2: Any = np.inf
    kl = np.inf
    change = difference[held] / p[held]
    if not (x[~held] > 0).any():
        chi2 = (change * difference[held]).sum()
        kl = float(_weighted_sum(p[held], _forward(change.astype(np.float64))))
    reverse_kl = float(_weighted_sum(p[held], _backward(change.astype(np.float64)))) + float(
        x[~held].sum()
    )
    return Distances(tv if exact else float(tv), kl, reverse_kl, chi2 if exact else float(chi2))


def _weighted_sum(p: Numbers, values: Floats) -> float:
    return float((p.astype(np.float64) * values).sum())


def _forward(d: Floats) -> Floats:
    """Terms r log r - r + 1 at r = 1 + d: none is negative, so nothing cancels in the sum."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = (1 + d) * np.log1p(d) - d
    exact[d <= -1] = 1.0
    t = np.clip(d, -_SMALL, _SMALL)
    return np.where(np.abs(d) < _SMALL, t * t * (0.5 - t * (1 / 6 - t * (1 / 12 - t / 20))), exact)


def _backward(d: Floats) -> Floats:
    """Terms r - 1 - log r at r = 1 + d."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = d - np.log1p(d)
    exact[d <= -1] = np.inf
    t = np.clip(d, -_SMALL, _SMALL)
    return np.where(np.abs(d) < _SMALL, t * t * (0.5 - t * (1 / 3 - t * (1 / 4 - t / 5))), exact)
