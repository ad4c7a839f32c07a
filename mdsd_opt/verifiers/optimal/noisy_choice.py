r"""Which of several drafts wins by potential plus noise: probabilities without any sampling.

Draft j has the potential theta_j and an independent noise eps_j, uniform on [0, 1]; the draft of
the largest theta + eps is chosen. Draft c wins with probability

.. math:: \int_{\theta_c}^{\theta_c + 1} \prod_{j \ne c} \min(\max(t - \theta_j, 0), 1) \, dt,

a piecewise polynomial, integrated exactly here, on floats and on Fractions. So one uniform decides
where the definition has K of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any


def win_probabilities(theta: Sequence[Any]) -> list[Any]:
    """Probability that each draft is chosen; they sum to one."""
    top = max(theta)
    zero, one = top * 0, top * 0 + 1
    kinks = sorted({top, top + 1, *(x + 1 for x in theta if x + 1 > top)})
    wins = [zero for _ in theta]
    for start, stop in pairwise(kinks):
        # Below `start` the noise of some drafts is exhausted: they lose, their factor is one.
        rivals = [j for j, x in enumerate(theta) if x + 1 >= stop]
        for c in rivals:
            factors = [start - theta[j] for j in rivals if j != c]
            wins[c] += _integral(factors, stop - start, one)
    total = sum(wins, zero)  # one, but for rounding
    return [x / total for x in wins]


def _integral(shifts: Sequence[Any], length: Any, one: Any) -> Any:
    """Integral of prod_j (u + shift_j) over u in [0, length]; all shifts are non-negative."""
    coefficients = [one]
    for shift in shifts:
        raised = [one * 0, *coefficients]
        for power, x in enumerate(coefficients):
            raised[power] = raised[power] + shift * x
        coefficients = raised
    result, power_of_length = one * 0, one
    for power, x in enumerate(coefficients, start=1):
        power_of_length = power_of_length * length
        result += x * power_of_length / power
    return result
