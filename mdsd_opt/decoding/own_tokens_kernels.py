"""Law of a row of the target's logits, as far as a draft with part of the vocabulary needs it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Integers, Matrix, Vector
from mdsd_opt.base.distributions import SMALLEST_PROBABILITY
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search import block_sum, largest_logit, range_sum, weigh


@kernel
def own_masses(
    row: NDArray[Any], scale: float, ids: Integers, places: Integers, lanes: NDArray[Any],
    room: Matrix, masses: Vector,
) -> bool:  # fmt: skip
    """Write the probability of every own token, and after them that of all others.

    What is below 1e-300 is zero. The law of the whole row never stands in memory, to which it would
    go at half the speed. `ids` are the own tokens in ascending order, `places` where each of them
    belongs; `lanes` is room as of `largest_logit`, `room` for two numbers of each token of a block.
    False for a row that has no law.
    """
    exponents = room[0]
    largest = largest_logit(row, lanes)
    others, n = 0.0, 0
    all_in_order = ids.size == row.size and _is_ascending(places)
    for start in range(0, row.size, exponents.size):
        stop = min(start + exponents.size, row.size)
        weights = masses[start:stop] if all_in_order else room[1]
        weigh(row[start:stop], largest, scale, exponents, weights)
        if all_in_order:
            continue
        while n < ids.size and ids[n] < stop:
            masses[places[n]] = weights[ids[n] - start]
            weights[ids[n] - start] = 0.0
            n += 1
        others += block_sum(weights, 0, stop - start)
    masses[ids.size] = others
    total = range_sum(masses, 0, masses.size)
    for i in range(masses.size):
        mass = masses[i] / total
        masses[i] = mass if mass >= SMALLEST_PROBABILITY else 0.0
    return np.isfinite(total)


@kernel(inner=True)
def _is_ascending(places: Integers) -> bool:
    """Whether every token stands at the place of its number."""
    ascending = True
    for i in range(places.size):
        ascending &= places[i] == i
    return ascending
