"""Means with confidence intervals for positions that come in sequences."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import weighted_count
from mdsd_opt.base.checked import check_confidence
from mdsd_opt.base.frames import Result

#: Degrees of freedom up to which Student's quantile is summed here.
_FEW_DEGREES = 200

#: Last decimal place that is shown.
_SHOWN = 1e-4


@dataclass(frozen=True, slots=True, order=True)
class MeanInterval(Result):
    """A mean and its confidence interval; NaN ends where one group gives no interval.

    Sorted by the mean.
    """

    mean: float
    low: float
    high: float
    num_groups: int  # independent: sequences, or positions if sequences are unknown

    def within(self, least: float, most: float) -> MeanInterval:
        """Interval cut to the range where the mean can be."""
        return replace(self, low=max(self.low, least), high=min(self.high, most))

    def spanning(self, other: MeanInterval) -> MeanInterval:
        """Interval with the same mean whose ends hold the other interval too."""
        return replace(self, low=min(self.low, other.low), high=max(self.high, other.high))

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def shown(self) -> str:
        """Text such as 0.7234 ± 0.0051, or 0.3333 [0.00, 1.00] at the ends, or the mean alone."""
        width = self.half_width
        if width != width:
            return f"{self.mean:.4f}"
        if abs(self.high - self.mean - width) < _SHOWN / 2:
            return f"{self.mean:.4f} ± {width:.4f}"
        low, high = math.floor(100 * self.low) / 100, math.ceil(100 * self.high) / 100
        return f"{self.mean:.4f} [{low:.2f}, {high:.2f}]"


def mean_interval(
    values: NDArray[np.float64], groups: NDArray[np.int64] | None = None, confidence: float = 0.95
) -> MeanInterval:
    r"""Mean over positions, with an interval that takes sequences, not tokens, as samples.

    Positions of one sequence resemble each other, so the variance is that of a ratio of group
    totals, :math:`\frac{G}{G-1} \sum_g (\sum_{i \in g} (x_i - \bar x))^2 / N^2`, with Student's t
    on G - 1 degrees of freedom.
    Without `groups`, the sequence of each position, every position is its own.
    """
    check_confidence(confidence)
    n = values.size
    if n == 0:
        return MeanInterval(np.nan, np.nan, np.nan, 0)
    mean = float(values.mean())
    deviations = values - mean
    if groups is not None:
        _, index = np.unique(groups, return_inverse=True)
        deviations = weighted_count(index.ravel(), deviations, int(index.max()) + 1)
    return interval_of_groups(mean, deviations, n, confidence)


def groups_alike(sizes: NDArray[np.float64], times: NDArray[np.float64] | float = 1.0) -> float:
    """Number of groups of one size that weigh as much as these, whose largest count for more."""
    return float((sizes * times).sum() ** 2 / (sizes**2 * times).sum())


def interval_of_groups(
    mean: float,
    deviations: NDArray[np.float64],
    num_values: int,
    confidence: float = 0.95,
    sizes: NDArray[np.float64] | None = None,
) -> MeanInterval:
    """Interval of a mean from the deviation total of each group, sum of x_i - mean, shape (G,).

    With the sizes of groups, Student's t has as many degrees of freedom as groups of one size.
    """
    g = deviations.size
    if g < 2:
        return MeanInterval(mean if num_values else np.nan, np.nan, np.nan, g)
    error = float(np.sqrt(g / (g - 1) * np.sum(deviations**2))) / num_values
    alike = g if sizes is None else max(int(groups_alike(sizes)), 2)
    half = students_quantile(alike - 1, confidence) * error
    return MeanInterval(mean, mean - half, mean + half, g)


@functools.cache
def students_quantile(degrees: int, confidence: float) -> float:
    r"""Quantile t with :math:`\Pr(|T| \le t)` the confidence, for Student's T.

    With few of them from the finite sums for :math:`\theta = \arctan(t / \sqrt{n})` (26.7.3 and
    26.7.4 in Abramowitz and Stegun's Handbook), as importing SciPy takes a tenth of a second.
    """
    if degrees > _FEW_DEGREES or not 0 < confidence < 1:
        from scipy.special import stdtrit

        return float(stdtrit(degrees, 0.5 + confidence / 2))
    odd = degrees % 2
    low, high = 0.0, math.pi / 2
    while low < (angle := (low + high) / 2) < high:
        term, total = math.sin(angle) * math.cos(angle) ** odd, 0.0
        for k in range(degrees // 2):
            total += term
            term *= math.cos(angle) ** 2 * (2 * k + 1 + odd) / (2 * k + 2 + odd)
        if odd:
            total = 2 / math.pi * (angle + total)
        low, high = (angle, high) if total < confidence else (low, angle)
    return math.sqrt(degrees) * math.tan(high)


def interval_note(num_groups: int, unit: str, confidence: float = 0.95) -> str:
    """Sentence on a table's intervals, or on their absence if there is only one group."""
    if num_groups < 2:
        return f"no intervals, which take several {unit}"
    return f"{100 * confidence:g}% intervals over {num_groups} {unit}"
