"""Probability of each token to be among the drafts."""

from __future__ import annotations

import numpy as np

from mdsd_opt.base.array_types import Floats
from mdsd_opt.drafts.base import DraftScheme
from mdsd_opt.drafts.inclusion_masses import light_laws, sum_of_others
from mdsd_opt.prefix_search.random_draws import RandomDraws

#: Expected rings by the last node below which a token is added by a series in its rate.
_LIGHT = 1e-3

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
        found = np.zeros(drafts.vocab_size)
        if beside is not None:
            found = inclusion_probabilities(beside)
        found[drafts.always_drafted] = 1.0
        return found
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


def _without_replacement(draws: RandomDraws) -> Floats:
    q, most = draws.q, draws.num_drafts
    if draws.are_certain:
        return (q > 0).astype(np.float64)
    if most == 1:
        return q.copy()
    if most == 2:  # first, or second after any other token
        rest = sum_of_others(q)
        odds = np.divide(q, rest, out=np.zeros_like(q), where=rest > 0)
        return np.minimum(q * (1.0 + sum_of_others(odds)), 1.0)
    found = np.zeros(q.size)
    support = np.flatnonzero(q > 0)
    found[support] = np.minimum(_by_race(q[support], most), 1.0)
    return found


def _by_race(q: Floats, most: int) -> Floats:
    r"""Integral :math:`\int q_i e^{-q_i t} \Pr(N_{-i}(t) < K)\,dt`, N counts the other clocks.

    All terms are positive: the law of the others is a product over all tokens but one, along a
    tree of partial products, and never divided by a factor.
    """
    from mdsd_opt.drafts.plackett_luce_kernels import rates_left
    from mdsd_opt.prefix_search import race_kernels as race
    from mdsd_opt.prefix_search.random_draws import require_race

    slowest = rates_left(q, most)
    require_race(q.size, most, slowest)
    t, w = race.race_nodes(slowest, most, race.FROM_CONSTANT, False)
    light = q * t[-1] < _LIGHT
    if light.any() and float(q[light].sum()) * t[-1] > 600.0:  # their law has no numbers in float64
        light[:] = False
    rang = np.zeros((most, t.size))
    rang[0] = 1.0
    if light.any():
        rang = light_laws(np.zeros(int(light.sum())), q[light], t, most)[0]
    found = np.zeros(q.size)
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
            found[heavy] += (density * others.sum(axis=1) * w[part]).sum(axis=1)
            wholes.append(together)
        whole = np.concatenate(wholes, axis=1)
    found[light] = _series(q[light], whole, t, w)
    return found


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
    found = np.zeros(np.broadcast_shapes(one.shape, other.shape))
    for n in range(most):
        found[:, n:] += one[:, n : n + 1] * other[:, : most - n]
    return found


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
