r"""Sight of a sample: which biases its checks find, between classes or in any direction.

Chi-square sees what moves between cells, and over a wide vocabulary nothing within one. A bet sees
every direction: before each part of a sample it is placed on the law

.. math:: b_i \propto p_i \frac{X_i + \tau_i}{n p_i + \tau_i}, \qquad
          \tau_i = \frac{N p_i}{R_i}, \quad R_i = s p_i^{1/3} \Big/ \sqrt{\sum_j p_j^{2/3} / 2},

X the counts of the n outcomes so far, of N. If they follow p, the product of the ratios b/p has
mean one: it exceeds 1/alpha with probability alpha at most, exactly. The bet is the mean of laws
whose ratios to p are gamma variables of parameter tau, given the counts; with these parameters no
direction is favoured (Valiant and Valiant, "An automatic inequality prover and instance optimal
identity testing", 2017, weigh squared differences by the same power of p).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mdsd_opt.base.array_types import Integers, Vector
from mdsd_opt.evidence import ANY, Check, detectable_bias, unseen_bias

#: Number of parts of a sample, in each of which the bet stays as it is.
_PARTS = 64

#: s, the stake, and the share of a bet's mean that pays for its scatter: within 2 % of the best at
#: levels of 1e-6 to 1e-10, for flat laws of four tokens and long tails alike.
_STAKE, _SHARE = 6.5, 0.3


def _strengths(law: Vector) -> Vector:
    """R of the possible tokens."""
    p = law[law > 0]
    strengths: Vector = _STAKE * np.cbrt(p) / math.sqrt(float(np.cbrt(p) @ np.cbrt(p)) / 2)
    return strengths


def direction_check(law: Vector, outcomes: Integers, name: str = "any direction") -> Check:
    """Check of independent outcomes (N,) that sees every direction; its p-value is a bound."""
    possible, log_e, seen = law > 0, 0.0, 0
    p, place = law[possible], np.cumsum(possible) - 1
    trust, counts = outcomes.size * p / _strengths(law), np.zeros(p.size)
    for part in np.array_split(place[outcomes], _PARTS):
        ratio = (counts + trust) / (seen * p + trust) if seen else np.ones(p.size)
        log_e += float(np.log(ratio[part]).sum()) - part.size * math.log(float(p @ ratio))
        counts += np.bincount(part, minlength=p.size)
        seen += part.size
    looks_for = "any change of the law, however it is spread"
    return Check(name, looks_for, math.exp(-max(log_e, 0.0)))


def any_bias(law: Vector, num_trials: int, level: float, power: float) -> float:
    r"""Smallest total variation that `direction_check` finds with the power, in any direction.

    With :math:`h = R / (1 + R)` the logarithm of the bet is about :math:`\frac12 \sum (h \chi^2 -
    \log(1 + R))`, of noncentralities :math:`N d_i^2 / p_i`. A share :math:`\lambda` of its mean
    pays for the scatter, and by Cauchy and Schwarz

    .. math:: \sum \frac{N d^2}{p} h (1 - \lambda h)
              \ge \frac{4 N \delta^2}{\sum p / (h (1 - \lambda h))}.
    """
    from scipy import special

    if not num_trials:
        return 1.0
    spread, z = _strengths(law), max(float(special.ndtri(power)), 0.0)
    h = spread / (1.0 + spread)
    needed = float((np.log1p(spread) - h).sum()) - 2.0 * math.log(level)
    needed += _SHARE / 2 * float(h @ h) + z * z / _SHARE
    square = needed * float((law[law > 0] / h / (1.0 - _SHARE * h)).sum())
    return min(math.sqrt(square / (4 * num_trials * (1.0 - 1.0 / _PARTS))), 1.0)


class Hidden(NamedTuple):
    """Bias that could have stayed hidden: the fields of a `Report` about it."""

    detectable_bias: float = 1.0
    direction: str = ANY
    class_bias: float | None = None
    classes: str = ""

    @classmethod
    def largest(cls, parts: Sequence[Any]) -> Hidden:
        """The largest bias, in any direction and between classes, of several parts or reports."""
        worst = max(parts, key=lambda part: part.detectable_bias)
        within = max(parts, key=lambda part: part.class_bias or 0.0)
        return cls(worst.detectable_bias, worst.direction, within.class_bias, within.classes)


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """What the checks of a sample can see.

    The finest chi-square test compares so many `outcomes` in `cells`: `classes` in words, such as
    "between classes by p/q", where they are not single outcomes. Of the `laws` (V,) with a
    `direction_check` the largest bias counts, and `direction` says of what it is one; without any,
    directions that the cells do not show are not known.
    """

    outcomes: int
    cells: int
    classes: str = ""
    laws: Sequence[Vector] = ()
    direction: str = ANY

    def hidden(self, level: float, power: float) -> Hidden:
        """Bias that could have stayed hidden: checks of this level find a larger one."""
        if self.cells == 1 and not self.classes:  # one outcome alone is possible
            return Hidden(unseen_bias(self.outcomes, power))
        between = detectable_bias(self.outcomes, self.cells, level, power)
        if not (self.classes and self.laws):
            return Hidden(between, self.classes or ANY)
        anywhere = max(any_bias(law, self.outcomes, level, power) for law in self.laws)
        finer = (between, self.classes) if between < anywhere else ()
        return Hidden(anywhere, self.direction, *finer)
