"""Laws of a chosen draft and the work of the projected descent, in float64.

`potentials` and `ratio_hull` explain what they compute. Plain loops: no threads that wait for a
busy core.
"""

from __future__ import annotations

from mdsd_opt.base.arrays import Flags, Integers, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel


@kernel
def listed_law(
    theta: Vector, tokens: Integers, offsets: Integers, mass: Vector,
    nodes: Vector, weights: Vector, room: Matrix, law: Vector,
) -> float:  # fmt: skip
    """Add the law of the choice among the tokens of each listed set to `law`; return E max.

    Set s is tokens[offsets[s]:offsets[s + 1]], drawn with mass[s]. nodes and weights integrate
    polynomials of the degree of the largest set on [0, 1]; `room` has 3 rows, and one column more
    than that.
    """
    kinks, here, before = room[0], room[1], room[2]
    value = 0.0
    for s in range(mass.size):
        start = offsets[s]
        size = offsets[s + 1] - start
        if size == 0:
            continue
        if size == 1:
            law[tokens[start]] += mass[s]
            value += mass[s] * (theta[tokens[start]] + 0.5)
            continue
        top = theta[tokens[start]]
        for j in range(1, size):
            top = max(top, theta[tokens[start + j]])
        count = 0  # kinks in [top, top + 1]: below it no product is positive
        for j in range(size):
            low = theta[tokens[start + j]]
            if low + 1.0 > top:
                kinks[count] = low + 1.0
                count += 1
        kinks[count] = top
        count += 1
        for a in range(1, count):
            x = kinks[a]
            b = a - 1
            while b >= 0 and kinks[b] > x:
                kinks[b + 1] = kinks[b]
                b -= 1
            kinks[b + 1] = x
        integral = 0.0
        for a in range(count - 1):
            width = kinks[a + 1] - kinks[a]
            if width <= 0.0:
                continue
            middle = kinks[a] + 0.5 * width
            for g in range(nodes.size):
                x = kinks[a] + width * nodes[g]
                before[0] = 1.0
                for j in range(size):
                    here[j] = min(x - theta[tokens[start + j]], 1.0)
                    before[j + 1] = before[j] * here[j]
                share = width * weights[g]
                integral += share * before[size]
                after = 1.0
                for j in range(size - 1, -1, -1):
                    if middle < theta[tokens[start + j]] + 1.0:
                        law[tokens[start + j]] += mass[s] * share * before[j] * after
                    after *= here[j]
        value += mass[s] * (top + 1.0 - integral)
    return value


@kernel(inner=True)
def _add_shares(
    low: Vector, high: Vector, length: float, nodes: Vector, weights: Vector, shares: Vector
) -> None:
    """Add length x the probability that draft k is returned, given that it is in the block.

    Give every draft of the block a uniform rank and return the first: at rank u, another draft must
    lie below the block (mass `low`) or rank later, so its factor is low u + high (1 - u).
    """
    for g in range(nodes.size):
        for k in range(low.size):
            product = 1.0
            for other in range(low.size):
                if other != k:
                    product *= low[other] * nodes[g] + high[other] * (1.0 - nodes[g])
            shares[k] += length * weights[g] * product


@kernel
def chosen_law(
    q: Matrix, levels: Vector, spans: Integers, life: Vector, nodes: Vector,
    weights: Vector, below: Matrix, change: Matrix, shares: Matrix, law: Vector,
) -> None:  # fmt: skip
    """Compute the law over the n tokens in order, integrated over the level; O(K^2 n).

    q has shape (n, K); `levels` are death levels, `spans` and `life` what `spans_of_blocks` makes
    of them; nodes and weights integrate polynomials of degree K on [0, 1]. Zeros are `below` and
    `change`, shape (n + 1, K), and `shares`, shape (2, K), for the work, and `law`, shape (n,), the
    result.
    """
    n, num_rows = q.shape
    for i in range(n):
        for k in range(num_rows):
            below[i + 1, k] = below[i, k] + q[i, k]
    here, from_blocks = shares[0], shares[1]
    for j in range(1, n):
        if life[j] > 0.0:
            left, right = spans[0, j], spans[1, j]
            for k in range(num_rows):
                here[k] = 0.0
            _add_shares(below[left], below[right], life[j], nodes, weights, here)
            for k in range(num_rows):
                change[left, k] += here[k]
                change[right, k] -= here[k]
    for i in range(n):
        alone = 1.0
        if i > 0:
            alone = min(alone, levels[i])
        if i + 1 < n:
            alone = min(alone, levels[i + 1])
        for k in range(num_rows):
            from_blocks[k] += change[i, k]
            here[k] = from_blocks[k]
        _add_shares(below[i], below[i + 1], alone, nodes, weights, here)
        for k in range(num_rows):
            law[i] += q[i, k] * here[k]


@kernel
def dot(a: Vector, b: Vector) -> float:
    """Sum of the products, in any order."""
    return _dot(a, b)


@kernel(reassociate=True, inner=True)
def _dot(a: Vector, b: Vector) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@kernel(reassociate=True, inner=True)
def _add(scale: float, a: Vector, free: Flags, result: Vector) -> None:
    for i in range(a.size):
        result[i] += scale * a[i] * free[i]


@kernel
def quasi_newton_direction(
    gradient: Vector, free: Flags, steps: Matrix, changes: Matrix, count: int,
    alphas: Vector, direction: Vector,
) -> None:  # fmt: skip
    """Compute minus the L-BFGS inverse Hessian times the gradient, on the free coordinates.

    steps and changes (m, n) are rings of past steps and changes of the gradient, `count` in all;
    alphas (m,) is room, direction (n,) the result.
    """
    memory = steps.shape[0]
    num_pairs = min(count, memory)
    for i in range(direction.size):
        direction[i] = -gradient[i] if free[i] else 0.0
    for back in range(1, num_pairs + 1):
        j = (count - back) % memory
        alphas[j] = _dot(steps[j], direction) / _dot(steps[j], changes[j])
        _add(-alphas[j], changes[j], free, direction)
    if num_pairs > 0:
        j = (count - 1) % memory
        scale = _dot(steps[j], changes[j]) / _dot(changes[j], changes[j])
        for i in range(direction.size):
            direction[i] *= scale
    for back in range(num_pairs, 0, -1):
        j = (count - back) % memory
        beta = _dot(changes[j], direction) / _dot(steps[j], changes[j])
        _add(alphas[j] - beta, steps[j], free, direction)
