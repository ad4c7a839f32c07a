"""The best use of drafts below a node, for every number of drafts."""

from __future__ import annotations

from typing import Any

from mdsd_opt.base.numba_cache import kernel


@kernel
def best_below(rates: Any, below: Any, best: Any, counts: Any, sums: Any) -> None:
    """Largest W of a node that may use up to b drafts, for b = 0, 1, ...

    Parameters
    ----------
    rates : ndarray, shape (K + 1, K)
        Descending in every row.
    below : ndarray, shape (n + 1,)
        The same of its drafts; may be `best` itself, where there is no limit of depth.
    best : ndarray, shape (n + 1,)
        Out.
    counts : ndarray of integers, shape (n + 1,)
        Out: drafts after the node; 0 where b - 1 bring as much.
    sums : ndarray, shape (K + 1, K, n + 1)
        Out: [k, j, s] the most that the first j + 1 of k drafts bring with s below them.
    """
    best[0] = 0.0
    counts[0] = 0
    for b in range(1, best.size):
        found = best[b - 1]
        count = 0
        for k in range(1, min(rates.shape[1], b) + 1):
            s = b - k
            top = rates[k, 0] * (1.0 + below[s])
            sums[k, 0, s] = top
            for j in range(1, k):
                rate = rates[k, j]
                before = sums[k, j - 1]
                # In falling order the last has at most its share. Two maxima: neither waits.
                end = s // (j + 1) + 1
                top = before[s] + rate
                other = top
                for x in range(1, end - 1, 2):
                    value = before[s - x] + rate * (1.0 + below[x])
                    top = value if value > top else top
                    value = before[s - x - 1] + rate * (1.0 + below[x + 1])
                    other = value if value > other else other
                value = before[s - end + 1] + rate * (1.0 + below[end - 1])
                top = max(top, other, value)
                sums[k, j, s] = top
            if top > found:
                found = top
                count = k
        best[b] = found
        counts[b] = count
