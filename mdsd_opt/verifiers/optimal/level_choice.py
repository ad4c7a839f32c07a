r"""Which of several drafts wins by its level: probabilities without any sampling.

A draft of height h plays on level floor(h) + 1 with probability h - floor(h), else on floor(h), and
the draft on the highest level wins; several on one level have equal chances. With L_j(c) the
probability that draft j plays below level c, and M_j(c) that it plays on it, draft d wins with
probability

.. math:: \sum_c M_d(c) \int_0^1 \prod_{j \ne d} (L_j(c) + M_j(c)\, u) \, du,

as equal chances are those of independent uniforms, the largest of which wins. Computed on floats
and on Fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Any


def win_probabilities(heights: Sequence[Any]) -> list[Any]:
    """Probability that each draft wins; they sum to one."""
    plays = [_levels(height) for height in heights]
    return [
        sum(
            mass * _mean_product([_against(rival, level) for rival in plays[:d] + plays[d + 1 :]])
            for level, mass in levels
        )
        for d, levels in enumerate(plays)
    ]


def _levels(height: Any) -> list[tuple[int, Any]]:
    """The levels that a draft plays on, with their probabilities."""
    level = floor(height)
    upper = height - level
    return [(level, 1 - upper), (level + 1, upper)] if upper else [(level, upper + 1)]


def _against(rival: list[tuple[int, Any]], level: int) -> tuple[Any, Any]:
    """Probabilities that a rival plays below a level, and on it."""
    below = sum(mass for place, mass in rival if place < level)
    here = sum(mass for place, mass in rival if place == level)
    return below, here


def _mean_product(factors: list[tuple[Any, Any]]) -> Any:
    """Integral of prod (below + here u) over u in [0, 1]."""
    coefficients: list[Any] = [1]
    for below, here in factors:
        if not (below or here):
            return 0
        raised = [0, *(here * x for x in coefficients)]
        coefficients = [below * x + y for x, y in zip([*coefficients, 0], raised, strict=True)]
    return sum(x / (power + 1) for power, x in enumerate(coefficients))
