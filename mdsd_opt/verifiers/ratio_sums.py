r"""Sums over all tokens that depend on one scale c of the drafts, after a single sort by p/q."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class RatioSums:
    r""":math:`\sum \min(p, c q)` and :math:`\sum (p - c q)_+` for any c, O(log V) each.

    Parameters
    ----------
    p, q : ndarray, shape (V,)
        Non-negative.

    Attributes
    ----------
    ratio : ndarray
        p/q of the tokens with q > 0, ascending.
    order : ndarray of int64
        These tokens, in that order.
    """

    def __init__(self, p: Vector, q: Vector) -> None:
        drafted = np.flatnonzero(q > 0)
        ratio = p[drafted] / q[drafted]
        by_ratio = np.argsort(ratio)
        self.ratio = ratio[by_ratio]
        self.order = drafted[by_ratio]
        p_sorted, q_sorted = p[self.order], q[self.order]
        self._p_below = np.concatenate([[0.0], np.cumsum(p_sorted)])
        self._p_above = np.append(np.cumsum(p_sorted[::-1])[::-1], 0.0)
        self._q_above = np.append(np.cumsum(q_sorted[::-1])[::-1], 0.0)
        self._never_drafted = float(p[q <= 0].sum())

    def overlap(self, scale: Any) -> Any:
        r""":math:`\sum \min(p, c q)` at a scale c or at each of an array of them."""
        place = np.searchsorted(self.ratio, scale, side="right")
        return self._p_below[place] + scale * self._q_above[place]

    def surplus(self, scale: Any) -> Any:
        r""":math:`\sum (p - c q)_+` at a scale c or at each of an array of them."""
        place = np.searchsorted(self.ratio, scale, side="right")
        drafted = np.maximum(self._p_above[place] - scale * self._q_above[place], 0.0)
        return drafted + self._never_drafted
