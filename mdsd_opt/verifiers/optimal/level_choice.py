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
    zero = heights[0] * 0
    plays = [_levels(height) for height in heights]
    return [
        sum(
            (
                mass * _mean_product([_against(x, level, zero) for x in plays[:d] + plays[d + 1 :]])
                for level, mass in levels
            ),
            zero,
        )
        for d, levels in enumerate(plays)
    ]


def _levels(height: Any) -> list[tuple[int, Any]]:
    """The levels that a draft plays on, with their probabilities."""
    level = floor(height)
    upper = height - level
    return [(level, 1 - upper), (level + 1, upper)]


def _against(rival: list[tuple[int, Any]], level: int, zero: Any) -> tuple[Any, Any]:
    """Probabilities that a rival plays below a level, and on it."""
    below = sum((mass for place, mass in rival if place < level), zero)
    here = sum((mass for place, mass in rival if place == level), zero)
    return below, here


def _mean_product(factors: list[tuple[Any, Any]]) -> Any:
    """Integral of prod (below + here u) over u in [0, 1]."""
    if not factors:
        return 1
    coefficients = list(factors[0])
    for below, here in factors[1:]:
        raised = [here * x for x in coefficients]
        coefficients = [below * x for x in coefficients] + [below * 0]
        for power, x in enumerate(raised, start=1):
            coefficients[power] += x
    return sum(x / (power + 1) for power, x in enumerate(coefficients))
