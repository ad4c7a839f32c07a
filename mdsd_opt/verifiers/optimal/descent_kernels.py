"""Vector work of the projected descent, in plain loops: no threads that wait for a busy core."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.numba_cache import kernel

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@kernel
def dot(a: Vector, b: Vector) -> float:
    return _dot(a, b)


@kernel(reassociate=True, inner=True)
def _dot(a: Vector, b: Vector) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@kernel(reassociate=True, inner=True)
def _add(scale: float, a: Vector, free: NDArray[np.bool_], result: Vector) -> None:
    for i in range(a.size):
        result[i] += scale * a[i] * free[i]


@kernel
def quasi_newton_direction(
    gradient: Vector, free: NDArray[np.bool_], steps: Matrix, changes: Matrix, count: int,
    alphas: Vector, direction: Vector,
) -> None:  # fmt: skip
    """Minus the L-BFGS inverse Hessian times the gradient, on the free coordinates.

    steps and changes (m, n) are rings of past steps and changes of the gradient, `count` in all;
    alphas (m,) is room, direction (n,) the result.
    """
    memory = steps.shape[0]
    kept = min(count, memory)
    for i in range(direction.size):
        direction[i] = -gradient[i] if free[i] else 0.0
    for back in range(1, kept + 1):
        j = (count - back) % memory
        alphas[j] = _dot(steps[j], direction) / _dot(steps[j], changes[j])
        _add(-alphas[j], changes[j], free, direction)
    if kept > 0:
        j = (count - 1) % memory
        scale = _dot(steps[j], changes[j]) / _dot(changes[j], changes[j])
        for i in range(direction.size):
            direction[i] *= scale
    for back in range(kept, 0, -1):
        j = (count - back) % memory
        beta = _dot(changes[j], direction) / _dot(steps[j], changes[j])
        _add(alphas[j] - beta, steps[j], free, direction)
