"""Sums over bins of p/q on the CPU, in one pass over a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd_opt.numba_cache import kernel

_TOGETHER = 1024  # tokens whose bins are found before they are added


@kernel
def row_table(target: Any, draft: Any, half: float, bins: Any, table: Any) -> None:
    """Bins of all tokens of a row, and the sums of both weights in each.

    Parameters
    ----------
    target, draft : ndarray of float, shape (V,)
        Integer weights n and m.
    half : float
        The ratio n/m in the middle of the bins, of the weights' type.
    bins : ndarray of int16, shape (V,)
        Out.
    table : ndarray of float64, shape (B, 2)
        Zeros; out: sums of n and m. The last bin holds what is never drafted.
    """
    never = table.shape[0] - 1
    scale = half / half * never
    for start in range(0, target.size, _TOGETHER):
        n = target[start : start + _TOGETHER]
        m = draft[start : start + _TOGETHER]
        found = bins[start : start + _TOGETHER]
        for i in range(n.size):
            if m[i] > 0:
                place = np.int32(n[i] / (n[i] + half * m[i]) * scale)
                found[i] = min(place, never - 1)
            else:
                found[i] = never
        for i in range(n.size):
            table[found[i], 0] += n[i]
            table[found[i], 1] += m[i]
