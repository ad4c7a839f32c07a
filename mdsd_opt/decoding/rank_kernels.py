"""How often the best, second best, ... of the drafts of a node is passed under the hull rule."""

from __future__ import annotations

from typing import Any

from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.bucket_kernels import power
from mdsd_opt.verifiers.optimal.acceptance_rule_kernels import (
    death_levels,
    fill_side,
    spans_of_blocks,
)


@kernel
def rank_chances(
    target: Any, q: Any, num_drafts: int, sums: Any, blocks: Any, links: Any, keys: Any,
    entries: Any, levels: Any, spans: Any, lives: Any, chances: Any,
) -> None:  # fmt: skip
    """What `hull_plan.rank_chances` returns, added to zeros.

    Parameters
    ----------
    target, q : ndarray, shape (n,)
    num_drafts : int
        K.
    sums : ndarray, shape (5, n + 1)
        Room, as all that follow but the last.
    blocks, links, keys, entries, levels
        Of `death_levels`.
    spans, lives
        Of `spans_of_blocks`.
    chances : ndarray, shape (K,)
    """
    n = target.size
    below, passed = sums[0], sums[1]
    below[0] = 0.0
    passed[0] = 0.0
    difference = 0.0
    best = 0.0
    split = 0
    before = 0.0
    for i in range(n):
        below[i + 1] = min(below[i] + q[i], 1.0)
        contained = power(below[i + 1], num_drafts)
        blocks[1, i] = q[i]
        blocks[2, i] = contained - before
        difference += target[i] - blocks[2, i]
        before = contained
        if difference < best:
            best = difference
            split = i + 1
    x = blocks[0]
    for i in range(n):
        x[i] = target[i]
    inside = power(below[split], num_drafts)
    fill_side(q, x, 0, split, inside, True, sums[2:])
    fill_side(q, x, split, n, 1.0 - inside, False, sums[2:])
    for i in range(n):
        share = 1.0 if target[i] > 0.0 else 0.0
        share = target[i] / x[i] if target[i] < x[i] else share
        passed[i + 1] = passed[i] + q[i] * share
    death_levels(blocks, links, keys, entries, levels)
    spans_of_blocks(levels, spans, lives)
    for j in range(2 * n + 1):
        if j <= n:
            start, stop, life = spans[0, j], spans[1, j], lives[j]
        else:
            start, stop = j - n - 1, j - n
            life = min(levels[start], levels[stop])
        mass = life * (passed[stop] - passed[start])
        if mass > 0.0:
            for k in range(num_drafts):
                chances[k] += mass * power(below[start], k) * power(below[stop], num_drafts - 1 - k)
