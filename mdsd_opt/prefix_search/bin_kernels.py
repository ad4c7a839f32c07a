"""Sums and bounds of the bins of p/q on the CPU, in one pass over a row."""

from __future__ import annotations

from typing import Any

from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.bucket_kernels import even_keys

_TOGETHER = 1024  # tokens whose bins are found before they are added


@kernel
def row_table(target: Any, draft: Any, steps: Any, bins: Any, ends: Any, table: Any) -> None:
    """Bins of all tokens of a row, the sums of both laws in each, and the ends of t there.

    Parameters
    ----------
    target, draft : ndarray of float, shape (V,)
        n and m: probabilities, or integer weights.
    steps : ndarray of float, shape (4,)
        As `even_keys` takes them, for all bins but the last.
    bins : ndarray of integers, shape (V,)
        Out.
    ends : ndarray of float, shape (B, 2) or (0, 2)
        1 and 0; out: least and largest t. Not of the last bin. Without rows not asked for.
    table : ndarray of float64, shape (B, 2)
        Zeros; out: sums of n and m. The last bin holds what is never drafted.
    """
    never = table.shape[0] - 1
    half = steps[0]
    for start in range(0, target.size, _TOGETHER):
        n = target[start : start + _TOGETHER]
        m = draft[start : start + _TOGETHER]
        found = bins[start : start + _TOGETHER]
        even_keys(n, m, steps, found)
        for i in range(n.size):
            found[i] = found[i] if m[i] > 0 else never
        for i in range(n.size):
            place = found[i]
            table[place, 0] += n[i]
            table[place, 1] += m[i]
        if ends.shape[0] > 0:
            for i in range(n.size):
                place = found[i]
                if place < never:
                    t = n[i] / (n[i] + half * m[i])
                    ends[place, 0] = min(ends[place, 0], t)
                    ends[place, 1] = max(ends[place, 1], t)
