"""Slopes of a least concave majorant, by pooling neighbours; O(n)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.numba_cache import kernel

Vector = NDArray[np.float64]


@kernel
def pool_falling(
    widths: Vector, gains: Vector, ends: NDArray[np.int64], width: Vector, gain: Vector
) -> int:
    """Blocks of falling gain/width; how many there are.

    Parameters
    ----------
    widths, gains : ndarray, shape (n,)
        Not negative.
    ends, width, gain : ndarray, shape (n,)
        Room; the end, the width and the gain of each block.
    """
    count = 0
    for i in range(widths.size):
        ends[count] = i + 1
        width[count] = widths[i]
        gain[count] = gains[i]
        count += 1
        while count > 1:
            low, high = count - 2, count - 1
            if gain[low] * width[high] > gain[high] * width[low]:
                break
            ends[low] = ends[high]
            width[low] += width[high]
            gain[low] += gain[high]
            count -= 1
    return count
