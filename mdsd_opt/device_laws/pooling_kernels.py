"""Ratios brought into order."""

from __future__ import annotations

from typing import Any

from mdsd_opt.numba_cache import kernel


@kernel
def pool(x: Any, w: Any, mass: Any, weight: Any, start: Any) -> None:
    """Ascending ratios x/w, in place: neighbours that are out of order share one.

    Parameters
    ----------
    x, w : ndarray, shape (n,)
        Masses and positive weights.
    mass, weight : ndarray, shape (n,)
        To work in.
    start : ndarray of integers, shape (n,)
        To work in.
    """
    count = 0
    for i in range(x.size):
        total, width, first = x[i], w[i], i
        while count > 0 and mass[count - 1] * width > total * weight[count - 1]:
            count -= 1
            total += mass[count]
            width += weight[count]
            first = start[count]
        mass[count], weight[count], start[count] = total, width, first
        count += 1
    for block in range(count):
        stop = start[block + 1] if block + 1 < count else x.size
        if stop - start[block] > 1:
            for i in range(start[block], stop):
                x[i] = mass[block] / weight[block] * w[i]
