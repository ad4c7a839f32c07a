"""One compensated pass over the prefixes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.numba_cache import kernel


@kernel
def smallest_prefix_difference(
    p: NDArray[np.float64], contained: NDArray[np.float64]
) -> tuple[float, int]:
    """min over j of P_j - Q_j and the first j that attains it.

    p is in prefix order, shape (n,); contained holds Q of every prefix, shape (n + 1,). The sum P_j
    is compensated (Neumaier), so it is exact to rounding at any length.
    """
    best = -contained[0]
    best_length = 0
    total = 0.0
    lost = 0.0
    for j in range(p.size):
        x = p[j]
        new_total = total + x
        if total >= x:
            lost += (total - new_total) + x
        else:
            lost += (x - new_total) + total
        total = new_total
        difference = (total + lost) - contained[j + 1]
        if difference < best:
            best = difference
            best_length = j + 1
    return best, best_length
