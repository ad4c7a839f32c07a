"""Means with confidence intervals for positions that come in sequences."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.problem.solution import weighted_count


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean and its confidence interval; NaN ends where one group gives no interval."""

    mean: float
    low: float
    high: float
    num_groups: int  # independent: sequences, or positions if sequences are unknown

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def shown(self) -> str:
        """0.7234 ± 0.0051, or the mean alone if there is no interval."""
        width = self.half_width
        return f"{self.mean:.4f}" if width != width else f"{self.mean:.4f} ± {width:.4f}"

    def to_dict(self) -> dict[str, float | int | None]:
        """JSON-ready fields; missing interval ends are None."""
        return {name: None if value != value else value for name, value in asdict(self).items()}


def mean_interval(
    values: NDArray[np.float64], groups: NDArray[np.int64] | None = None, confidence: float = 0.95
) -> MeanInterval:
    r"""Mean over positions, with an interval that takes the sequences, not the tokens, as samples.

    Positions of one sequence resemble each other, so the variance is that of a ratio of group
    totals, :math:`\frac{G}{G-1} \sum_g (\sum_{i \in g} (x_i - \bar x))^2 / N^2`, with Student's t
    on G - 1 degrees of freedom.
    Without `groups`, the sequence of each position, every position is its own.
    """
    n = values.size
    if n == 0:
        return MeanInterval(np.nan, np.nan, np.nan, 0)
    mean = float(values.mean())
    deviations = values - mean
    if groups is not None:
        _, index = np.unique(groups, return_inverse=True)
        deviations = weighted_count(index.ravel(), deviations, int(index.max()) + 1)
    return interval_of_groups(mean, deviations, n, confidence)


def interval_of_groups(
    mean: float, deviations: NDArray[np.float64], num_values: int, confidence: float = 0.95
) -> MeanInterval:
    """Interval of a mean from the deviation total of each group, sum of x_i - mean, shape (G,)."""
    from scipy.special import stdtrit  # scipy.stats would take half a second to import

    g = deviations.size
    if g < 2:
        return MeanInterval(mean if num_values else np.nan, np.nan, np.nan, g)
    error = float(np.sqrt(g / (g - 1) * np.sum(deviations**2))) / num_values
    half = float(stdtrit(g - 1, 0.5 + confidence / 2)) * error
    return MeanInterval(mean, mean - half, mean + half, g)


def interval_note(num_groups: int, unit: str, confidence: float = 0.95) -> str:
    """Which intervals a table has; that it has none, if there is only one group."""
    if num_groups < 2:
        return f"no intervals, which take several {unit}"
    return f"{100 * confidence:g}% intervals over {num_groups} {unit}"
