"""Sums of long rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.numba_cache import kernel

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

LANES = 256  # independent maxima or sums, so that one operation need not wait for another


@kernel
def lane_sum(values: Vector) -> float:
    """Sum in many lanes: fast, and runs of equal numbers gather little rounding error."""
    lanes = np.zeros(LANES)
    whole = values.size - values.size % LANES
    for start in range(0, whole, LANES):
        block = values[start : start + LANES]  # indexed from 0, so that the loop vectorises
        for lane in range(LANES):
            lanes[lane] += block[lane]
    for i in range(whole, values.size):
        lanes[i - whole] += values[i]
    return lanes.sum()


@kernel
def sum_of_others(values: Vector, places: Integers) -> float:
    """Sum of all values but those at the given places, without a difference."""
    total = 0.0
    start = 0
    for place in np.sort(places):
        total += lane_sum(values[start:place])
        start = max(start, place + 1)
    return total + lane_sum(values[start:])
