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
    plays = [(floor(height), height - floor(height)) for height in heights]
    wins = []
    for d, (level, upper) in enumerate(plays):
        rivals = plays[:d] + plays[d + 1 :]
        lower = 1 - upper
        win = lower * _beats(rivals, level)
        if upper:
            win += upper * _beats(rivals, level + 1)
        wins.append(win)
    return wins


def _beats(rivals: list[tuple[int, Any]], level: int) -> Any:
    """Probability of winning from a level: the integral of prod (below + here u) over u."""
    coefficients: list[Any] = []
    for place, upper in rivals:
        if place > level:
            return 0
        if place == level:
            below, here = upper * 0, 1 - upper
        elif place == level - 1 and upper:
            below, here = 1 - upper, upper
        else:
            continue
        if not coefficients:
            coefficients = [below, here]
            continue
        raised = [here * x for x in coefficients]
        coefficients = [below * x for x in coefficients] + [below * 0]
        for power, x in enumerate(raised, start=1):
            coefficients[power] += x
    return sum(x / power for power, x in enumerate(coefficients, start=1)) if coefficients else 1
