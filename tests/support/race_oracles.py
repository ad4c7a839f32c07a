"""Q without replacement at many drafts, for weights that need no sum over draft sets."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray


def uniform_containment(vocab_size: int, num_drafts: int) -> NDArray[np.float64]:
    """C(h, K) / C(V, K) of every prefix of V equal tokens, shape (V + 1,)."""
    result = np.zeros(vocab_size + 1)
    inside = Fraction(1)
    for h in range(vocab_size, num_drafts - 1, -1):  # C(h - 1, K) = C(h, K) (h - K) / h
        result[h] = float(inside)
        inside = inside * (h - num_drafts) / h
        if h % 64 == 0:  # 200 bits are plenty
            inside = Fraction(round(inside * 2**1000), 2**1000)
    return result


def two_level_containment(
    heavy: int, light: int, heavy_weight: Fraction, num_drafts: int
) -> dict[tuple[int, int], float]:
    """Q of a heavy and b light tokens of so many in all, light ones of weight one.

    Pr(m of the drafts are heavy) by the draws one after another; given m, tokens of a kind are
    alike, so all drafts lie in the set with C(a, m) C(b, K - m) / (C(heavy, m) C(light, K - m)).
    """
    law = {0: Fraction(1)}
    for draw in range(num_drafts):
        following: dict[int, Fraction] = {}
        for m, mass in law.items():
            weight_heavy = (heavy - m) * heavy_weight
            weight_light = Fraction(light - (draw - m))
            total = weight_heavy + weight_light
            for more, weight in ((m + 1, weight_heavy), (m, weight_light)):
                if weight > 0:
                    following[more] = following.get(more, Fraction(0)) + mass * weight / total
        law = {m: Fraction(round(x * 2**1200), 2**1200) for m, x in following.items()}
    sets = {(a, light) for a in range(heavy + 1)} | {(heavy, b) for b in range(light + 1)}
    return {
        (a, b): float(
            sum(
                mass
                * Fraction(
                    comb(a, m) * comb(b, num_drafts - m),
                    comb(heavy, m) * comb(light, num_drafts - m),
                )
                for m, mass in law.items()
            )
        )
        for a, b in sets
    }


def fine_nodes(slowest: float, num_drafts: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Plain trapezoid rule in log t, with about four times the nodes of the package."""
    step = 0.14 / np.sqrt(num_drafts)
    t = np.exp(np.arange(-14.0, np.log((4 * num_drafts + 45) / slowest), step))
    return t, step * t


def prefix_order(target: NDArray[Any], draft: NDArray[Any]) -> NDArray[np.int64]:
    """Possible drafts in order of p/q, by their logits, which do not underflow."""
    possible = np.flatnonzero(draft > -np.inf)
    return possible[np.argsort(target[possible] - draft[possible], kind="stable")]


def race_rates(
    target: NDArray[np.float64], draft: NDArray[np.float64], num_drafts: Sequence[int]
) -> NDArray[np.float64]:
    """Optimal rates of one row of logits: 1 + min of P - Q over all prefixes.

    1 - Q is the integral over time of the rate outside a prefix, while nothing outside and fewer
    than K inside have rung: the law of how many have is made token by token, of positive terms
    alone, and the integral is a plain trapezoid rule in log t.
    """
    p, q = (np.exp(x - x.max()) / np.exp(x - x.max()).sum() for x in (target, draft))
    order = prefix_order(target, draft)
    order = order[q[order] > 0]
    rates = q[order]
    inside = np.append(0.0, np.cumsum(p[order]))
    outside = np.append(np.cumsum(rates[::-1])[::-1], 0.0)
    times = np.exp(np.arange(np.log(1e-19), np.log(60 / rates.min()), 0.1))
    best = []
    for k in num_drafts:
        if k >= order.size:
            best.append(float(inside[-1]))
            continue
        rung = np.zeros((k, times.size))  # Pr(so many have rung) by each time
        rung[0] = 1.0
        least = 0.0
        for end, rate in enumerate(rates):
            alone = outside[end] * times * np.exp(-outside[end] * times)
            escape = 0.1 * (alone * rung.sum(0)).sum()
            least = min(least, inside[end] - (1.0 - escape))
            silent = np.exp(-rate * times)
            rung[1:] = rung[1:] * silent - rung[:-1] * np.expm1(-rate * times)
            rung[0] *= silent
        best.append(1.0 + min(least, inside[-1] - 1.0))
    return np.array(best)
