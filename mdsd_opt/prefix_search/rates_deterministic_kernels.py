r"""Optimal acceptance of drafts that are fixed, all of them or all but one.

Let T be the likeliest draft tokens, ties towards the lowest id. Drafting the top K accepts P(T).
Greedy drafting takes the top K - 1 and draws the last draft from the rest, q' = q / (1 - q(T)); its
optimum is :math:`P(T) + \sum_{x \notin T} \min(p_x, q'_x)` ([Hu25]). Tokens with q = 0 are never
drafted, so T may be smaller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search.sum_kernels import BLOCK, range_sum
from mdsd_opt.prefix_search.weigh_kernels import drop_impossible, likeliest_tokens, weigh_row


@kernel
def rates_of_rows(
    target: NDArray[Any], draft: NDArray[Any],
    target_scale: float, draft_scale: float, num_drafts: Integers, rates: Matrix, totals: Matrix,
    last_is_drawn: bool, columns: Matrix, likeliest: Integers,
) -> None:  # fmt: skip
    """Write the rates, with the given buffers."""
    p, q, exponents = columns[0], columns[1], columns[2]
    for row in range(target.shape[0]):
        p_total = weigh_row(target[row], target_scale, exponents, p)
        q_total = weigh_row(draft[row], draft_scale, exponents, q)
        totals[row, 0] = p_total
        totals[row, 1] = q_total
        if not (np.isfinite(p_total) and np.isfinite(q_total)):
            continue
        drop_impossible(q, q_total)
        num_likeliest = likeliest_tokens(exponents, q, likeliest.size, likeliest)
        for j in range(num_drafts.size):
            count = min(num_drafts[j] - 1 if last_is_drawn else num_drafts[j], num_likeliest)
            accepted = 0.0
            for i in range(count):
                accepted += p[likeliest[i]]
            if last_is_drawn:
                accepted += _overlap_outside(p, q, exponents, likeliest, count, p_total)
            rates[row, j] = min(accepted / p_total, 1.0)


@kernel(inner=True)
def _overlap_outside(
    p: Vector, q: Vector, backup: Vector, fixed: Integers, count: int, p_total: float
) -> float:
    """Sum of min(p, p_total q') over the tokens that are not fixed, in weights of p.

    The mass outside is summed over what is outside: 1 - q(T) would be nothing but rounding errors
    where T holds nearly everything. Of `backup`, the first `count` entries are written.
    """
    for i in range(count):
        backup[i] = q[fixed[i]]
        q[fixed[i]] = 0.0
    outside = range_sum(q, 0, q.size)
    overlap = 0.0
    if outside > 0.0:
        for start in range(0, q.size, BLOCK):
            stop = min(start + BLOCK, q.size)
            overlap += _overlap(p[start:stop], q[start:stop], p_total / outside)
    for i in range(count):
        q[fixed[i]] = backup[i]
    return overlap


@kernel(reassociate=True, inner=True)
def _overlap(p: Vector, q: Vector, factor: float) -> float:
    """Sum of min(p, factor q) over a block."""
    total = 0.0
    for i in range(p.size):
        scaled = q[i] * factor
        total += scaled if scaled < p[i] else p[i]
    return total
