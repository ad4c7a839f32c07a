r"""Which bias a chi-square check can see.

If the law of k cells is off by a total variation of :math:`\delta`, the noncentrality of chi-square
after N trials is :math:`N \sum_b d_b^2 / p_b \ge N (\sum_b |d_b|)^2 = 4 N \delta^2` by the
Cauchy-Schwarz inequality. The smallest noncentrality that is found with the wanted power therefore
gives a bias that is found whatever its shape.
"""

from __future__ import annotations

import math
from functools import lru_cache

from scipy import stats
from scipy.optimize import brentq


@lru_cache(maxsize=256)
def needed_noncentrality(dof: int, level: float, power: float) -> float:
    """Noncentrality at which chi-square with `dof` exceeds its `level` threshold with `power`."""
    threshold = stats.chi2.isf(level, dof)
    high = threshold + 1.0
    while stats.ncx2.sf(threshold, dof, high) < power:
        high *= 2.0
    return float(
        brentq(lambda excess: stats.ncx2.sf(threshold, dof, excess) - power, 1e-9, high, rtol=1e-9)
    )


def detectable_bias(num_trials: int, num_cells: int, level: float, power: float) -> float:
    """Smallest total variation of the law of the cells that is found with `power`, or infinity."""
    if num_cells < 2 or num_trials < 1:
        return math.inf
    bias = math.sqrt(needed_noncentrality(num_cells - 1, level, power) / (4 * num_trials))
    return bias if bias <= 1.0 else math.inf


def trials_needed(bias: float, num_cells: int, level: float, power: float) -> int:
    """Trials after which every bias of this total variation is found with `power`."""
    cells = max(num_cells, 2)
    return math.ceil(needed_noncentrality(cells - 1, level, power) / (4 * bias**2))
