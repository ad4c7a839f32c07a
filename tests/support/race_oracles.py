"""Q without replacement at many drafts, for weights that need no sum over draft sets."""

from __future__ import annotations

from fractions import Fraction
from math import comb

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
