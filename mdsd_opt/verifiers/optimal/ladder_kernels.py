"""Kernels for the tokens of one side of a ladder; `ladder` explains what they compute.

Everything off H is mirrored by sign = -1, so that a token wins more often the higher it is climbed.
"""

from __future__ import annotations

import numpy as np

from mdsd_opt.base.arrays import Flags, Floats, Integers, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search import power


@kernel
def level_weights(
    weights: Vector, powers: Integers, masses: Matrix, base: Vector, sign: float, nodes: Vector,
    shares: Vector, wins: Matrix, below: Floats, here: Floats,
) -> None:  # fmt: skip
    """Compute the signed chance that each model's draft wins from each level, and derivatives.

    masses (T, R) play on the levels. wins (T, R) is sign times the integral of the gradient of f
    over the tie-break u; below and here (T, R, R) are its derivatives by the masses on a level
    below and on the level itself.
    """
    num_rows = base.size
    lost = np.zeros(num_rows)
    point = np.empty(num_rows)
    for c in range(masses.shape[0]):
        for r in range(num_rows):
            wins[c, r] = 0.0
            for s in range(num_rows):
                below[c, r, s] = 0.0
                here[c, r, s] = 0.0
        for g in range(nodes.size):
            for r in range(num_rows):
                point[r] = max(base[r] + sign * (lost[r] + masses[c, r] * nodes[g]), 0.0)
            for part in range(weights.size):
                for r in range(num_rows):
                    count = powers[part, r]
                    if count > 0:
                        share = weights[part] * count * shares[g]
                        wins[c, r] += sign * share * _without(point, powers[part], r, r, 1)
                        for s in range(num_rows):
                            others = powers[part, s] - (r == s)
                            if others > 0:
                                value = share * others * _without(point, powers[part], r, s, 2)
                                below[c, r, s] += value
                                here[c, r, s] += value * nodes[g]
        for r in range(num_rows):
            lost[r] += masses[c, r]


@kernel(inner=True)
def _without(point: Vector, powers: Integers, first: int, second: int, taken: int) -> float:
    """Product of point^powers with one draw of a model taken out, or of two."""
    product = 1.0
    for r in range(point.size):
        count = powers[r] - (r == first)
        if taken == 2:
            count -= r == second
        if count == 1:
            product *= point[r]
        elif count > 0:
            product *= power(point[r], count)
    return product


@kernel
def respond(
    wanted: Vector, q: Matrix, wins: Matrix, levels: Vector, masses: Matrix, lower: Floats,
    upper: Floats,
) -> tuple[float, int]:  # fmt: skip
    """Raise each token to the least level where it wins as often as wanted.

    wanted (n,) is signed, q of shape (n, R). Adds the masses that play on each level to `masses`,
    and what the derivatives of these take to lower and upper, (T, R, R). Returns what tokens on the
    top level still want, and the highest level that is played on.
    """
    num_rows = q.shape[1]
    last = wins.shape[0] - 1
    lack = 0.0
    top = 0
    for i in range(wanted.size):
        goal = wanted[i]
        after = 0.0
        for r in range(num_rows):
            after += q[i, r] * wins[0, r]
        level = 0
        before = after
        while after < goal and level < last:
            level += 1
            before = after
            after = 0.0
            for r in range(num_rows):
                after += q[i, r] * wins[level, r]
        top = max(top, level)
        if level == 0 or after < goal:
            levels[i] = level
            lack += max(goal - after, 0.0)
            for r in range(num_rows):
                masses[level, r] += q[i, r]
            continue
        level -= 1
        slope = 1.0 / (after - before)
        share = (goal - before) * slope
        levels[i] = level + share
        for r in range(num_rows):
            up = q[i, r] * share
            masses[level + 1, r] += up
            masses[level, r] += q[i, r] - up
            up *= slope
            down = q[i, r] * slope - up
            for s in range(r + 1):
                lower[level, r, s] += down * q[i, s]
                upper[level, r, s] += up * q[i, s]
    return lack, top


@kernel
def selection_law(
    p: Vector, q: Matrix, heights: Vector, subset: Flags, inside: Matrix,
    outside: Matrix, law: Vector,
) -> float:  # fmt: skip
    """Write p_Z of all tokens, q of shape (R, V); returns the sum of min(p, p_Z).

    inside and outside, (T + 1, R), are the unsigned chances from the levels of each side.
    """
    accepted = 0.0
    for i in range(p.size):
        wins = inside if subset[i] else outside
        height = abs(heights[i])
        level = int(height)
        share = height - level
        value = 0.0
        for r in range(q.shape[0]):
            low = wins[level, r]
            value += q[r, i] * (low + share * (wins[level + 1, r] - low))
        law[i] = value
        accepted += min(p[i], value)
    return accepted
