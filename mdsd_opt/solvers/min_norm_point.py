r"""The minimum-norm point of a base polytope, by Wolfe's algorithm (Fujishige; Wolfe 1976).

For a submodular F with F(empty) = 0, the level set {x <= 0} of the minimum-norm point x of
:math:`B(F) = \{x : x(H) \le F(H),\; x(V) = F(V)\}` minimises F, and :math:`\sum_i \min(x_i, 0)` is
its minimum (Fujishige). A linear function is minimised over B(F) by the greedy rule, in n
evaluations of F along one order, so a point is kept as a mixture of orders. Every iterate gives
both bounds: the best level set above, :math:`\sum \min(x, 0)` below, which is what a level-set
integral of the Lovasz extension comes to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

#: Weights below this leave the mixture.
_NEGLIGIBLE = 1e-13


@dataclass(frozen=True, slots=True, eq=False)
class MinNormPoint:
    """Best level set with its value, the lower bound, and the mixture of orders that proves it.

    Attributes
    ----------
    value, lower : float
        Bounds on min F.
    prefix : ndarray of int64
        Members of the best set.
    orders : ndarray of int64, shape (m, n)
    weights : ndarray, shape (m,)
    evaluations : int
        Orders along which F was evaluated.
    """

    value: float
    lower: float
    prefix: NDArray[np.int64]
    orders: NDArray[np.int64]
    weights: Vector
    evaluations: int


def min_norm_point(
    along: Callable[[NDArray[np.int64]], Vector],
    size: int,
    tolerance: float,
    max_evaluations: int,
    time_limit: float | None,
) -> MinNormPoint:
    """Minimise a submodular F.

    Parameters
    ----------
    along : callable
        Order of all n elements -> F of its prefixes, the empty one included, shape (n + 1,).
    size : int
        n.
    tolerance : float
        Stop when the bounds are this close.
    """
    deadline = np.inf if time_limit is None else time.perf_counter() + time_limit
    best, prefix = 0.0, np.empty(0, dtype=np.int64)
    lower, kept = -np.inf, (np.empty((0, size), np.int64), np.empty(0))
    orders: list[NDArray[np.int64]] = []
    points = np.empty((0, size))
    weights = np.empty(0)
    x = np.zeros(size)
    evaluations = 0
    while True:
        order = np.argsort(x, kind="stable")
        curve = along(order)
        evaluations += 1
        j = int(np.argmin(curve))
        if curve[j] < best:
            best, prefix = float(curve[j]), order[:j].copy()
        vertex = np.empty(size)
        vertex[order] = np.diff(curve)
        if not orders:
            orders, points, weights = [order], vertex[None], np.ones(1)
            x = vertex
        else:
            known = (np.abs(points - vertex).max(axis=1) <= 1e-15).any()
            step = x - vertex  # its own length counts: near the end both may be tiny
            improves = x @ step > 1e-15 * np.sqrt(float(x @ x) * float(step @ step))
            if known or not improves:
                break
            orders.append(order)
            points = np.vstack([points, vertex])
            weights = np.append(weights, 0.0)
            orders, points, weights = _to_corral(orders, points, weights)
            x = weights @ points
        reached = float(np.minimum(x, 0.0).sum())
        if reached > lower:
            lower, kept = reached, (np.array(orders), weights.copy())
        if best - lower <= tolerance or evaluations >= max_evaluations:
            break
        if time.perf_counter() > deadline:
            break
    return MinNormPoint(best, min(lower, best), prefix, *kept, evaluations)


def _to_corral(
    orders: list[NDArray[np.int64]], points: Vector, weights: Vector
) -> tuple[list[NDArray[np.int64]], Vector, Vector]:
    """Wolfe's minor cycle: drop points until the nearest point of their span is inside them."""
    while True:
        target = _affine_weights(points)
        if (target > _NEGLIGIBLE).all():
            return orders, points, target
        falling = target <= _NEGLIGIBLE
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(falling, weights / (weights - target), np.inf)
        step = min(float(np.nanmin(steps)), 1.0)
        weights = (1.0 - step) * weights + step * target
        stay = weights > _NEGLIGIBLE
        if stay.all():  # rounding: drop the one that was to fall
            stay[int(np.nanargmin(steps))] = False
        orders = [order for order, keep in zip(orders, stay, strict=True) if keep]
        points, weights = points[stay], weights[stay]
        weights = weights / weights.sum()
        if len(orders) == 1:
            return orders, points, np.ones(1)


def _affine_weights(points: Vector) -> Vector:
    """Weights, summing to one, of the point nearest to the origin in the span of the points.

    From the points themselves: their products would square the distance of two that are close. The
    shortest point has what the others leave of one, so that the least weights are not rounded.
    """
    base = int(np.argmin((points * points).sum(axis=1)))
    rest = np.arange(len(points)) != base
    affine = np.empty(len(points))
    affine[rest] = np.linalg.lstsq((points[rest] - points[base]).T, -points[base], rcond=None)[0]
    affine[base] = 1.0 - affine[rest].sum()
    return affine
