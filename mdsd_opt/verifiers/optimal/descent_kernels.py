"""Vector work of the projected descent, in plain loops: no threads that wait for a busy core."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.numba_cache import kernel

Vector = NDArray[np.float64]


@kernel(reassociate=True)
def dot(a: Vector, b: Vector) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@kernel(reassociate=True)
def _add(scale: float, a: Vector, free: NDArray[np.bool_], result: Vector) -> None:
    for i in range(a.size):
        result[i] += scale * a[i] * free[i]


@kernel
def quasi_newton_direction(
    gradient: Vector,
    free: NDArray[np.bool_],
    steps: NDArray[np.float64],
    changes: NDArray[np.float64],
    count: int,
) -> Vector:
    """Minus the L-BFGS inverse Hessian times the gradient, on the free coordinates; shape (n,).

    steps and changes (m, n) are rings of past steps and changes of the gradient, `count` in all.
    """
    memory = steps.shape[0]
    kept = min(count, memory)
    alphas = np.empty(memory)
    rest = np.zeros(gradient.size)
    _add(1.0, gradient, free, rest)
    for back in range(1, kept + 1):
        j = (count - back) % memory
        alphas[j] = dot(steps[j], rest) / dot(steps[j], changes[j])
        _add(-alphas[j], changes[j], free, rest)
    if kept > 0:
        j = (count - 1) % memory
        rest *= dot(steps[j], changes[j]) / dot(changes[j], changes[j])
    for back in range(kept, 0, -1):
        j = (count - back) % memory
        beta = dot(changes[j], rest) / dot(steps[j], changes[j])
        _add(alphas[j] - beta, steps[j], free, rest)
    return -rest
