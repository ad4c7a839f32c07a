"""Expected mass of the tokens drafted without replacement."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from mdsd_opt.base.array_types import Vector

#: Expected rings by the last node below which tokens are added together, by the series below.
_LIGHT = 1e-3

#: Largest mean number of rings of these tokens: beyond it, the chance of none is 0 in float64.
_MOST_RINGS = 600.0

#: Number of powers of q t that are kept: the next is below 1e-24.
_DEGREE = 8


def inclusion_masses(q: Vector, p: Vector, num_drafts: Sequence[int]) -> list[float]:
    """Sums of p_i Pr(i is drafted) for each of several K; the quadrature is shared."""
    support = int((q > 0).sum())
    most = max((k for k in num_drafts if k < support), default=1)
    by_quadrature = _race_masses(q, p, most) if most > 2 else None
    masses = []
    for k in num_drafts:
        if k >= support:
            masses.append(float(p[q > 0].sum()))
        elif k == 1:
            masses.append(float((p * q).sum()))  # @ would wake the threads of BLAS
        elif k == 2:  # first, or second after any other token
            rest = sum_of_others(q)
            odds = np.divide(q, rest, out=np.zeros_like(q), where=rest > 0)
            masses.append(float((p * q * (1.0 + sum_of_others(odds))).sum()))
        else:
            assert by_quadrature is not None
            masses.append(float(by_quadrature[k - 1]))
    return masses


def _race_masses(q: Vector, p: Vector, most: int) -> Vector:
    from mdsd_opt.drafts import plackett_luce_kernels as plackett_luce
    from mdsd_opt.prefix_search import race_kernels as race
    from mdsd_opt.prefix_search.random_draws import require_race

    slowest = plackett_luce.rates_left(q, most)
    require_race(int((q > 0).sum()), most, slowest)
    # Unlike containment, which starts from zero, drafted mass is densest at t = 0.
    t, w = race.race_nodes(slowest, most, race.FROM_CONSTANT, False)
    is_light = q * t[-1] < _LIGHT
    if float(q[is_light].sum()) * t[-1] > _MOST_RINGS:
        is_light[:] = False
    rang, hits = light_laws(p[is_light], q[is_light], t, most)
    heavy = ~is_light
    return plackett_luce.inclusion_masses(p[heavy], q[heavy], t, w, rang, hits)


def light_laws(p: Vector, q: Vector, t: Vector, most: int) -> tuple[Vector, Vector]:
    r"""Laws that the kernel begins with, of all tokens that hardly ring, (most, nodes) each.

    With :math:`x_i = e^{q_i t} - 1` the number that rang has the generating function
    :math:`G(z) = \prod_i e^{-q_i t} (1 + x_i z)`, of which Newton's identities give the
    coefficients from the sums of :math:`x_i^m`, and the other sum is
    :math:`G(z) \sum_i p_i q_i / (1 + x_i z)`. Powers of x are series in q t.
    """
    sums, weighted = np.empty((2, _DEGREE))
    power, weight = np.ones_like(q), p * q
    for s in range(_DEGREE):
        sums[s], weighted[s] = power.sum(), weight.sum()
        power *= q * t[-1]
        weight *= q * t[-1]
    at_nodes = (t / t[-1]) ** np.arange(_DEGREE)[:, None]
    series = _powers_of_expm1()
    sums, weighted = (series @ (x[:, None] * at_nodes) for x in (sums, weighted))
    weighted[1::2] *= -1.0
    sums[2::2] *= -1.0
    rang, hits = np.zeros((2, most, t.size))
    rang[0] = np.exp(-q.sum() * t)
    for n in range(most):
        last = min(n, _DEGREE - 1)
        before = rang[n - last : n + 1][::-1]  # exactly n, n - 1, ...
        if n > 0:
            rang[n] = (before[1:] * sums[1 : last + 1]).sum(axis=0) / n
        hits[n] = (before * weighted[: last + 1]).sum(axis=0)
    return rang, hits


@functools.cache
def _powers_of_expm1() -> Vector:
    """Coefficients of (e^y - 1)^m at y^0, y^1, ... in row m."""
    first = np.array([0.0, *(1.0 / math.factorial(s) for s in range(1, _DEGREE))])
    rows = [np.eye(_DEGREE)[0]]
    for _ in range(1, _DEGREE):
        rows.append(np.convolve(rows[-1], first)[:_DEGREE])
    return np.array(rows)


def sum_of_others(values: Vector) -> Vector:
    """Sum without each entry; without the largest as a sum, so that no small rest is lost."""
    others: Vector = values.sum() - values
    largest = int(values.argmax())
    others[largest] = values[:largest].sum() + values[largest + 1 :].sum()
    return others
