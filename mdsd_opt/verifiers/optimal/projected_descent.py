"""Minimise a smooth convex function over the non-negative orthant: projected L-BFGS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_MEMORY = 12
_SUFFICIENT_DECREASE = 1e-4
_MAX_HALVINGS = 30


def descend(evaluate: Callable[[Vector], tuple[float, Vector]], size: int) -> None:
    """Start at zero and go downhill until `evaluate` raises, or no step leads down any more.

    Quasi-Newton steps on the coordinates that are positive or would become so, projected back onto
    the orthant, halved until the function falls.

    Parameters
    ----------
    evaluate : callable
        Point (n,) -> value and gradient. It keeps what it needs of the points it sees.
    size : int
        n.
    """
    from mdsd_opt.verifiers.optimal.descent_kernels import dot, quasi_newton_direction

    x = np.zeros(size)
    value, gradient = evaluate(x)
    steps, changes = np.zeros((_MEMORY, size)), np.zeros((_MEMORY, size))
    count = 0
    while True:
        free = (x > 0) | (gradient < 0)
        direction = np.empty(size)
        quasi_newton_direction(gradient, free, steps, changes, count, np.empty(_MEMORY), direction)
        if not dot(direction, gradient) < 0:
            count = 0
            direction = np.where(free, -gradient, 0.0)
        length = 1.0
        for _ in range(_MAX_HALVINGS):
            new = np.maximum(x + length * direction, 0.0)
            new_value, new_gradient = evaluate(new)
            step = new - x
            if new_value <= value + _SUFFICIENT_DECREASE * dot(gradient, step):
                break
            length /= 2
        else:
            if count == 0:
                return
            count = 0  # once more, along the gradient
            continue
        change = new_gradient - gradient
        curvature = dot(step, change)
        if not step.any():
            return
        if curvature > 1e-16 * dot(change, change):
            steps[count % _MEMORY], changes[count % _MEMORY] = step, change
            count += 1
        x, value, gradient = new, new_value, new_gradient
