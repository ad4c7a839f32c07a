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


@kernel
def add_carrying(total: float, value: float, lost: float) -> tuple[float, float]:
    """Sum of two numbers, and what it has lost in rounding, to be given back at the next call.

    In a long run of equal numbers each addition rounds the same way.
    """
    value += lost
    result = total + value
    return result, min(total, value) - (result - max(total, value))


@kernel
def suffix_sums(values: Vector, after: float) -> Vector:
    """after + the sum of the values from each place to the end, shape (n + 1,)."""
    sums = np.empty(values.size + 1)
    sums[values.size] = after
    lost = 0.0
    for j in range(values.size - 1, -1, -1):
        sums[j], lost = add_carrying(sums[j + 1], values[j], lost)
    return sums
