"""Selection among several draws at every node, as Triton kernels: a reading of `selection`.

Two launches over all nodes that have children: sums over bins of p/q by atomic additions of
integers, the same as there, and the plan from them in float64. R and the ratios are written down
piece by piece instead of summed, and the block is found by tangents instead of a stack.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from mdsd_opt.prefix_search import HALF as _HALF
from mdsd_opt.serving import selection
from mdsd_opt.serving.arguments import TreeArguments

#: Number of tokens that are processed together.
BLOCK = 2048

#: Options by which products are rounded before they are added, as in `selection`.
SUM_OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}
PLAN_OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}

HALF = tl.constexpr(_HALF)
UNIT = tl.constexpr(selection.UNIT)

#: Most tangents between the two halves of a hull, in turn: two or three are usual.
MOST_STEPS = tl.constexpr(32)


@triton.jit
def bins_of(p, q, NUM_BINS: tl.constexpr):
    """Bins of tokens: even in p / (p + 2 q), the last for q = 0."""
    t = tl.div_rn(p, tl.where(q > 0.0, p + HALF * q, 1.0))
    place = tl.minimum(tl.maximum((t * (NUM_BINS - 1)).to(tl.int32), 0), NUM_BINS - 2)
    return tl.where(q > 0.0, place, NUM_BINS - 1)


@triton.jit
def row_of_child(rows, node_row, child, BY_CHILD: tl.constexpr):
    """Row of draft laws from which a child was drawn: its own, or that of its parent."""
    if BY_CHILD:
        return tl.load(rows + child)
    else:
        return node_row


@triton.jit(do_not_specialize=["num_nodes"])
def sum_bins(
    first_child, target, drafts, rows, sums, num_nodes, vocab_size,
    BY_CHILD: tl.constexpr, BLOCK: tl.constexpr, NUM_BINS: tl.constexpr,
):  # fmt: skip
    """Add a block of tokens of one node to its sums [2, bins], p first."""
    node_row = tl.program_id(0).to(tl.int64)
    child = tl.load(first_child + node_row)
    if child != -1:
        root_row = node_row // num_nodes * num_nodes
        q_row = row_of_child(rows + root_row, node_row, child, BY_CHILD)
        if q_row >= 0:
            tokens = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
            inside = tokens < vocab_size
            p = tl.load(target + node_row * vocab_size + tokens, mask=inside, other=0.0)
            q = tl.load(drafts + q_row * vocab_size + tokens, mask=inside, other=0.0)
            of_p = (p.to(tl.float64) * UNIT).to(tl.int64)
            of_q = tl.maximum((q.to(tl.float64) * UNIT).to(tl.int64), 1)
            into = sums + node_row * 2 * NUM_BINS + bins_of(p, q, NUM_BINS)
            tl.atomic_add(into, of_p, mask=inside & (p > 0.0), sem="relaxed")
            tl.atomic_add(into + NUM_BINS, of_q, mask=inside & (q > 0.0), sem="relaxed")


@triton.jit
def _at(values, n, place):
    return tl.sum(tl.where(n == place, values, 0.0), axis=0)


@triton.jit
def _quotient(a, b):
    return tl.where(b > 0.0, a / tl.where(b > 0.0, b, 1.0), 0.0)


@triton.jit
def _slopes(below, height, n, place):
    """Slopes of the lines from all places to one; the value at that place is not read."""
    run = below - _at(below, n, place)
    return (height - _at(height, n, place)) / tl.where(run == 0.0, 1.0, run)


@triton.jit
def _is_drawn(target, drafts, p_row, q_row, token, vocab_size, NUM_BINS: tl.constexpr):
    p = tl.load(target + p_row * vocab_size + token)
    return bins_of(p, tl.load(drafts + q_row * vocab_size + token), NUM_BINS)


@triton.jit(do_not_specialize=["num_nodes"])
def plan_nodes(
    candidates, first_child, next_sibling, levels, target, drafts, rows, sums, ratios, chosen,
    num_nodes, vocab_size, BY_CHILD: tl.constexpr, NUM_BINS: tl.constexpr,
):  # fmt: skip
    """Ratios of the selected draft's law to q in the bins of one node, and the selected child."""
    node_row = tl.program_id(0).to(tl.int64)
    root_row = node_row // num_nodes * num_nodes
    first = tl.load(first_child + node_row)
    selected = first * 0 - 1
    q_row = first * 0 - 1
    if first != -1:
        q_row = row_of_child(rows + root_row, node_row, first, BY_CHILD)  # all as the first
    if q_row >= 0:
        n = tl.arange(0, NUM_BINS)
        sums_p = tl.load(sums + node_row * 2 * NUM_BINS + n)
        sums_q = tl.load(sums + node_row * 2 * NUM_BINS + NUM_BINS + n)
        all_p = tl.maximum(tl.sum(sums_p, axis=0), 1).to(tl.float64)
        all_q = tl.maximum(tl.sum(sums_q, axis=0), 1).to(tl.float64)
        through_p = tl.cumsum(sums_p, axis=0)
        through_q = tl.cumsum(sums_q, axis=0)
        below = (through_q - sums_q).to(tl.float64)
        p = sums_p.to(tl.float64) / all_p
        q = sums_q.to(tl.float64) / all_q
        before_p = (through_p - sums_p).to(tl.float64) / all_p
        before_q = below / all_q
        behind_q = (all_q - below) / all_q
        beyond_q = (all_q - through_q.to(tl.float64)) / all_q

        # Every child is a draw: how many there are, and the topmost of their bins.
        contained = before_q
        top = 0
        other = first
        while other != -1:
            token = tl.load(candidates + root_row + other)
            drawn = _is_drawn(target, drafts, node_row, q_row, token, vocab_size, NUM_BINS)
            top = tl.where((drawn < NUM_BINS - 1) & (drawn > top), drawn, top)
            contained = tl.where(other == first, contained, contained * before_q)
            other = tl.load(next_sibling + root_row + other)
        center = (n.to(tl.float64) + 0.5) / (NUM_BINS - 1)
        ratio = tl.where(q > 0.0, p / tl.where(q > 0.0, q, 1.0), HALF * center / (1.0 - center))

        split = tl.argmin(before_p - contained, axis=0)
        inside = _at(contained, n, split)
        p_split = _at(before_p, n, split)
        # The first place in the prefix that a level reaches without passing the ratio behind it.
        marginal = inside + (before_p - p_split)
        fits = (marginal <= ratio * before_q) & (n < split)
        raised = tl.min(tl.where(fits, n, split), axis=0)
        level = _quotient(_at(marginal, n, raised), _at(before_q, n, raised))
        # The last place behind it from which a cap does not fall below the ratio before it.
        left = (1.0 - inside) - (through_p.to(tl.float64) / all_p - p_split)
        fits = (left >= ratio * beyond_q) & (beyond_q > 0.0)
        fits = fits & (n >= split) & (n < NUM_BINS - 1)
        capped = tl.max(tl.where(fits, n + 1, split), axis=0)
        room = tl.maximum(1.0 - _at(marginal, n, capped), 0.0)
        cap = _quotient(room, _at(behind_q, n, capped))
        marginal = tl.where(n < raised, level * before_q, marginal)
        marginal = tl.where(n > capped, 1.0 - cap * behind_q, marginal)
        ratio = tl.where(n < raised, level, tl.where(n >= capped, cap, ratio))
        ratio = tl.where(n < NUM_BINS - 1, ratio, 0.0)
        tl.store(ratios + node_row * NUM_BINS + n, ratio.to(tl.float32))

        # The edge of the hull over bin `top`: tangents from either side, until they agree.
        height = marginal - tl.load(levels + node_row).to(tl.float64) * contained
        low = tl.where(top >= split, split, 0)
        high = tl.where(top >= split, NUM_BINS - 1, split)
        start = top
        stop = top
        before = top + 1
        steps = 0
        while (steps < MOST_STEPS) & (before != start):
            before = start
            slopes = tl.where((n > top) & (n <= high), _slopes(below, height, n, start),
                              float("inf"))  # fmt: skip
            stop = tl.max(tl.where(slopes <= tl.min(slopes, axis=0), n, 0), axis=0)
            slopes = tl.where((n <= top) & (n >= low), _slopes(below, height, n, stop),
                              -float("inf"))  # fmt: skip
            start = tl.min(tl.where(slopes >= tl.max(slopes, axis=0), n, top), axis=0)
            steps += 1
        other = first
        while (other != -1) & (selected == -1):
            token = tl.load(candidates + root_row + other)
            drawn = _is_drawn(target, drafts, node_row, q_row, token, vocab_size, NUM_BINS)
            selected = tl.where((drawn >= start) & (drawn < NUM_BINS - 1), other, selected)
            other = tl.load(next_sibling + root_row + other)
    tl.store(chosen + node_row, selected)


def select(call: TreeArguments, levels: Any) -> selection.Selection:
    """Plan of every node; `levels`, float32 [bs, N], are the levels s."""
    target, first_child, rows = call.target_probs, call.retrive_next_token, call.draft_rows
    bs, num_nodes, vocab_size = target.shape
    num_bins, device = selection.NUM_BINS, target.device
    sums = torch.zeros(bs * num_nodes, 2, num_bins, dtype=torch.int64, device=device)
    ratios = torch.empty(bs * num_nodes, num_bins, dtype=torch.float32, device=device)
    chosen = torch.empty(bs * num_nodes, dtype=torch.int64, device=device)
    by_child = rows is not None
    rows = rows if by_child else call.retrive_index  # which is not read then
    block = min(BLOCK, triton.next_power_of_2(vocab_size))
    with torch.cuda.device_of(target):
        sum_bins[(bs * num_nodes, triton.cdiv(vocab_size, block))](
            first_child, target, call.draft_probs, rows, sums, num_nodes, vocab_size,
            BY_CHILD=by_child, BLOCK=block, NUM_BINS=num_bins, **SUM_OPTIONS,
        )  # fmt: skip
        plan_nodes[(bs * num_nodes,)](
            call.candidates, first_child, call.retrive_next_sibling, levels, target,
            call.draft_probs, rows, sums, ratios, chosen, num_nodes, vocab_size,
            BY_CHILD=by_child, NUM_BINS=num_bins, **PLAN_OPTIONS,
        )  # fmt: skip
    return selection.Selection(ratios, chosen)
