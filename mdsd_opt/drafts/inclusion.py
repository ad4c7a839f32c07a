"""Probability of each token to be among the drafts, and the expected mass of those that are."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from mdsd_opt.base.arrays import Flags, Floats, Vector
from mdsd_opt.drafts.scheme import DraftScheme
from mdsd_opt.prefix_search import RandomDraws

#: Expected rings by the last node below which a token is added by a series in its rate.
_LIGHT = 1e-3

#: Largest mean number of rings of these tokens: beyond it, the chance of none is 0 in float64.
_MOST_RINGS = 600.0

#: Number of powers of q t that are kept: the next is below 1e-24.
_DEGREE = 8

#: Most numbers that are held at once.
_CHUNK = 1 << 21


def inclusion_probabilities(drafts: DraftScheme) -> Floats:
    r"""Probabilities :math:`\pi_i = \Pr(i \in \{X_1, \dots, X_K\})`, shape (V,).

    They are in closed form for independent drafts, tokens that are always drafted and mixtures;
    without replacement a quadrature gives them to about 1e-12. For other laws the draft sets are
    listed.

    Raises
    ------
    ProblemTooLarge
        There are too many draft sets to list.
    """
    parts = drafts.mixture_parts()
    if parts:
        mixed = np.zeros(drafts.vocab_size)
        for weight, part in parts:
            mixed += float(weight) * inclusion_probabilities(part)
        return mixed
    beside = drafts.beside_fixed
    if beside is not drafts:
        inclusion = np.zeros(drafts.vocab_size)
        if beside is not None:
            inclusion = inclusion_probabilities(beside)
        inclusion[drafts.always_drafted] = 1.0
        return inclusion
    models = drafts.independent_models
    if models is not None:
        with np.errstate(divide="ignore"):  # of a token that is certain
            missed = sum(count * np.log1p(-np.minimum(q.values, 1.0)) for q, count in models)
        return np.asarray(-np.expm1(missed))
    draws = drafts.random_draws
    if draws is not None and not draws.is_replaced:
        return _without_replacement(draws)
    law = drafts.support_law()
    mass = np.bincount(law.tokens, weights=law.mass[law.arc_support], minlength=law.vocab_size)
    return np.asarray(np.minimum(mass, 1.0), dtype=np.float64)


def inclusion_masses(q: Vector, p: Vector, num_drafts: Sequence[int]) -> list[float]:
    """Sums of p_i Pr(i is drafted) without replacement, for several K; the quadrature is shared."""
    closed = [_closed_form(q, k) for k in num_drafts]
    raced = [k for k, pi in zip(num_drafts, closed, strict=True) if pi is None]
    masses = _race_masses(q, p, max(raced)) if raced else q
    return [
        float(masses[k - 1] if pi is None else (p * pi).sum())  # @ would wake BLAS' threads
        for k, pi in zip(num_drafts, closed, strict=True)
    ]


def _without_replacement(draws: RandomDraws) -> Floats:
    q, most = draws.q, draws.num_drafts
    inclusion = _closed_form(q, most)
    if inclusion is None:
        inclusion = np.zeros(q.size)
        support = np.flatnonzero(q > 0)
        inclusion[support] = _by_race(q[support], most)
    return np.minimum(inclusion, 1.0)


def _closed_form(q: Vector, num_drafts: int) -> Vector | None:
    """Probabilities of up to two draws without replacement, or of all tokens; None for others."""
    if num_drafts >= np.count_nonzero(q > 0):
        return (q > 0).astype(np.float64)
    if num_drafts == 1:
        return q
    if num_drafts > 2:
        return None
    rest = sum_of_others(q)  # first, or second after any other token
    odds = np.divide(q, rest, out=np.zeros_like(q), where=rest > 0)
    return q * (1.0 + sum_of_others(odds))


def _race_of(q: Vector, most: int) -> tuple[Vector, Vector, Flags]:
    """Nodes and weights of the race for K, and the tokens that hardly ring, which are light."""
    from mdsd_opt.drafts.plackett_luce_kernels import rates_left
    from mdsd_opt.prefix_search import race_kernels as race
    from mdsd_opt.prefix_search import require_race

    slowest = rates_left(q, most)
    require_race(int((q > 0).sum()), most, slowest)
    # Unlike containment, which starts from zero, drafted mass is densest at t = 0.
    t, w = race.race_nodes(slowest, most, race.FROM_CONSTANT, False)
    light = q * t[-1] < _LIGHT
    if float(q[light].sum()) * t[-1] > _MOST_RINGS:
        light[:] = False
    return t, w, light


def _race_masses(q: Vector, p: Vector, most: int) -> Vector:
    from mdsd_opt.drafts import plackett_luce_kernels as plackett_luce

    t, w, light = _race_of(q, most)
    rang, hits = light_laws(p[light], q[light], t, most)
    return plackett_luce.inclusion_masses(p[~light], q[~light], t, w, rang, hits)


def _by_race(q: Floats, most: int) -> Floats:
    r"""Integral :math:`\int q_i e^{-q_i t} \Pr(N_{-i}(t) < K)\,dt`, N counts the other clocks.

    All terms are positive: the law of the others is a product over all tokens but one, along a
    tree of partial products, and never divided by a factor.
    """
    t, w, light = _race_of(q, most)
    rang = light_laws(np.zeros(int(light.sum())), q[light], t, most)[0]
    inclusion = np.zeros(q.size)
    heavy = np.flatnonzero(~light)
    whole = rang
    if heavy.size:
        rows = max(1, _CHUNK // (heavy.size * most))
        wholes = []
        for start in range(0, t.size, rows):
            part = slice(start, start + rows)
            rings = -np.expm1(-q[heavy, None] * t[part])
            others, together = _all_but_one(rings, rang[:, part])
            density = q[heavy, None] * (1.0 - rings)
            inclusion[heavy] += (density * others.sum(axis=1) * w[part]).sum(axis=1)
            wholes.append(together)
        whole = np.concatenate(wholes, axis=1)
    inclusion[light] = _series(q[light], whole, t, w)
    return inclusion


def _all_but_one(rings: Floats, first: Floats) -> tuple[Floats, Floats]:
    """Laws of the number that rang, up to K: without each token (n, K, T), and of all (K, T).

    `rings`, shape (n, T), are the chances of the tokens, `first`, shape (K, T), the law of others.
    """
    most, nodes = first.shape
    level = np.zeros((len(rings), most, nodes))
    level[:, 0] = 1.0 - rings
    level[:, 1] = rings
    levels = [level]
    while len(levels[-1]) > 1:
        below = levels[-1]
        if len(below) % 2:
            none = np.zeros((1, most, nodes))
            none[:, 0] = 1.0
            below = levels[-1] = np.concatenate([below, none])
        levels.append(_product(below[::2], below[1::2]))
    together = _product(levels[-1], first[None])[0]
    outside = first[None]
    for below in levels[-2::-1]:
        siblings = below.reshape(-1, 2, most, nodes)[:, ::-1].reshape(below.shape)
        outside = _product(np.repeat(outside, 2, axis=0)[: len(below)], siblings)
    return outside[: len(rings)], together


def _product(one: Floats, other: Floats) -> Floats:
    """Laws of sums, up to K - 1: shape (n, K, T)."""
    most = one.shape[1]
    product = np.zeros(np.broadcast_shapes(one.shape, other.shape))
    for n in range(most):
        product[:, n:] += one[:, n : n + 1] * other[:, : most - n]
    return product


def _series(q: Floats, whole: Floats, t: Floats, w: Floats) -> Floats:
    r"""Integral for tokens of small :math:`x = e^{q t} - 1`, by the law of all tokens.

    The law of the others is :math:`e^{q t} \sum_m (-x)^m f_{n-m}`, so that no exponential is left:
    :math:`\pi = q \int \sum_m (-x)^m F_{K-1-m}`, F the sums of f. Powers of x to the third.
    """
    sums = np.cumsum(whole, axis=0)[::-1][:4]
    total = np.zeros_like(q)
    # x = y + y^2/2 + y^3/6 with y = q t, so that the powers of x are sums of powers of y.
    of_powers = ((1.0, 0.0, 0.0, 0.0), (0.0, -1.0, -0.5, -1 / 6), (0.0, 0.0, 1.0, 1.0),
                 (0.0, 0.0, 0.0, -1.0))  # fmt: skip
    for row, series in zip(sums, of_powers, strict=False):
        for power, factor in enumerate(series):
            if factor:
                total += factor * q**power * float((w * row * t**power).sum())
    return np.asarray(q * total)


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
