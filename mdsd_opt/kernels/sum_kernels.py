"""Sums of long rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.numba_cache import kernel

Vector = NDArray[np.float64]

LANES = 256  # independent maxima or sums, so that one operation need not wait for another


@kernel
def lane_sum(values: Vector) -> float:
    """Sum in many lanes: fast, and runs of equal numbers gather little rounding error."""
    lanes = np.zeros(LANES)
    whole = values.size - values.size % LANES
    for start in range(0, whole, LANES):
        for lane in range(LANES):
            lanes[lane] += values[start + lane]
    for i in range(whole, values.size):
        lanes[i - whole] += values[i]
    return lanes.sum()
