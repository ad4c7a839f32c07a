"""Sums and bounds of the bins of p/q on the CPU, in one pass over a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd_opt.numba_cache import kernel

_TOGETHER = 1024  # tokens whose bins are found before they are added


@kernel
def row_table(
    target: Any, draft: Any, half: float, bins: Any, ends: Any, table: Any, ratios: Any
) -> None:
    """Bins of all tokens of a row, the sums of both weights in each, and the ends of t there.

    Parameters
    ----------
    target, draft : ndarray of float, shape (V,)
        Integer weights n and m.
    half : float
        The ratio n/m in the middle of the bins, of the weights' type.
    bins : ndarray of int16, shape (V,)
        Out.
    ends : ndarray of float, shape (B, 2)
        1 and 0; out: least and largest t. Not of the last bin.
    table : ndarray of float64, shape (B, 2)
        Zeros; out: sums of n and m. The last bin holds what is never drafted.
    ratios : ndarray of float, shape (1024,)
        To work in.
    """
    never = table.shape[0] - 1
    scale = half / half * never
    for start in range(0, target.size, _TOGETHER):
        n = target[start : start + _TOGETHER]
        m = draft[start : start + _TOGETHER]
        found = bins[start : start + _TOGETHER]
        for i in range(n.size):
            if m[i] > 0:
                ratios[i] = n[i] / (n[i] + half * m[i])
                found[i] = min(np.int32(ratios[i] * scale), never - 1)
            else:
                found[i] = never
        for i in range(n.size):
            place = found[i]
            table[place, 0] += n[i]
            table[place, 1] += m[i]
            if place < never:
                ends[place, 0] = min(ends[place, 0], ratios[i])
                ends[place, 1] = max(ends[place, 1], ratios[i])
