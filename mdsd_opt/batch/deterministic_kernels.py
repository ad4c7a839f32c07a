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

from mdsd_opt.batch.logit_kernels import (
    drop_impossible,
    likeliest_tokens,
    row_side,
    weigh_row,
)
from mdsd_opt.kernels.sum_kernels import LANES, lane_sum
from mdsd_opt.numba_cache import kernel

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]


@kernel
def greedy_rates(
    target: NDArray[Any],
    draft: NDArray[Any],
    is_half: bool,
    target_scale: float,
    draft_scale: float,
    num_drafts: Integers,
    rates: Matrix,
    totals: Matrix,
) -> None:
    """Acceptance rates of rows of logits; the arguments are those of `schemes.RowFunction`."""
    _rates(target, draft, is_half, target_scale, draft_scale, num_drafts, rates, totals, True)


@kernel
def top_k_rates(
    target: NDArray[Any],
    draft: NDArray[Any],
    is_half: bool,
    target_scale: float,
    draft_scale: float,
    num_drafts: Integers,
    rates: Matrix,
    totals: Matrix,
) -> None:
    """Acceptance rates of rows of logits; the arguments are those of `schemes.RowFunction`."""
    _rates(target, draft, is_half, target_scale, draft_scale, num_drafts, rates, totals, False)


@kernel
def _rates(
    target: NDArray[Any],
    draft: NDArray[Any],
    is_half: bool,
    target_scale: float,
    draft_scale: float,
    num_drafts: Integers,
    rates: Matrix,
    totals: Matrix,
    last_is_drawn: bool,
) -> None:
    vocab_size = target.shape[1]
    exponents = np.empty(vocab_size)
    p = np.empty(vocab_size)
    q = np.empty(vocab_size)
    for row in range(target.shape[0]):
        p_side = row_side(target[row], is_half, target_scale)
        q_side = row_side(draft[row], is_half, draft_scale)
        totals[row, 0] = weigh_row(p_side, exponents, p)
        totals[row, 1] = weigh_row(q_side, exponents, q)
        if not np.isfinite(totals[row]).all():
            continue
        drop_impossible(q, totals[row, 1])
        likeliest = likeliest_tokens(exponents, q, num_drafts.max())
        for j in range(num_drafts.size):
            fixed = likeliest[: num_drafts[j] - 1] if last_is_drawn else likeliest[: num_drafts[j]]
            accepted = 0.0
            for token in fixed:
                accepted += p[token]
            if last_is_drawn:
                accepted += _overlap_outside(p, q, fixed, totals[row, 0])
            rates[row, j] = min(accepted / totals[row, 0], 1.0)


@kernel
def _overlap_outside(p: Vector, q: Vector, fixed: Integers, p_total: float) -> float:
    """Sum of min(p, p_total q') over the tokens that are not fixed, in weights of p.

    The mass outside is summed over what is outside: 1 - q(T) would be nothing but rounding errors
    where T holds nearly everything.
    """
    kept = q[fixed]
    q[fixed] = 0.0
    outside = lane_sum(q)
    overlap = 0.0
    if outside > 0.0:
        overlap = _overlap(p, q, p_total / outside)
    q[fixed] = kept
    return overlap


@kernel
def _overlap(p: Vector, q: Vector, factor: float) -> float:
    """Sum of min(p, factor q), in lanes like `lane_sum`."""
    lanes = np.zeros(LANES)
    whole = p.size - p.size % LANES
    for start in range(0, whole, LANES):
        for lane in range(LANES):
            scaled = q[start + lane] * factor
            lanes[lane] += scaled if scaled < p[start + lane] else p[start + lane]
    for i in range(whole, p.size):
        lanes[i - whole] += min(q[i] * factor, p[i])
    return lanes.sum()
