"""Walk down a tree of drafts as a Triton kernel: one program per request.

Decisions are those of `reference` for the same coins: probabilities are compared in float32 in the
order of the siblings, sums over the vocabulary are of float64. V is read once for each drawn child
that is refused, and at most twice for the last token.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from mdsd_opt.serving.arguments import TreeArguments
from mdsd_opt.serving.selection import NUM_BINS, Selection
from mdsd_opt.serving.triton_selection import bins_of, row_of_child

#: Number of tokens that are processed together.
BLOCK = 4096

#: Options by which products are rounded before they are added or compared, as in the reference.
OPTIONS = {"num_warps": 16, "enable_fp_fusion": False}


@triton.jit
def _left(target, drafts, ratios, p_row, q_row, scale, tokens, vocab_size, NUM_BINS: tl.constexpr):
    """Positive part of p - scale q; p where q_row is -1.

    With bins ratios to q take the place of the scale: q becomes the law of the selected draft.
    """
    refused = tl.where(q_row >= 0, vocab_size, 0)  # so many tokens have a q
    p = tl.load(target + p_row * vocab_size + tokens, mask=tokens < vocab_size, other=0.0)
    q = tl.load(drafts + q_row * vocab_size + tokens, mask=tokens < refused, other=0.0)
    if NUM_BINS > 0:
        place = p_row * NUM_BINS + bins_of(p, q, NUM_BINS)
        scale = tl.load(ratios + place, mask=tokens < refused, other=0.0)
    return tl.maximum(p - scale * q, 0.0)


@triton.jit
def _next_spent(candidates, next_sibling, child, start, vocab_size):
    """Lowest token from `start` on of a child and its later siblings; V for none."""
    lowest = child * 0 + vocab_size
    while child != -1:
        token = tl.load(candidates + child)
        lowest = tl.where((token >= start) & (token < lowest), token, lowest)
        child = tl.load(next_sibling + child)
    return lowest


@triton.jit
def _block_left(
    target, drafts, ratios, p_row, q_row, scale, candidates, next_sibling, child, start, spent,
    vocab_size, NUM_BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Remaining mass of p on a block, without the tokens of `child` and its later siblings."""
    tokens = start + tl.arange(0, BLOCK)
    weights = _left(target, drafts, ratios, p_row, q_row, scale, tokens, vocab_size, NUM_BINS)
    if spent < start + BLOCK:
        while child != -1:
            weights = tl.where(tokens == tl.load(candidates + child), 0.0, weights)
            child = tl.load(next_sibling + child)
    return weights


@triton.jit
def _total_left(
    target, drafts, ratios, p_row, q_row, scale, candidates, next_sibling, child, vocab_size,
    NUM_BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Remaining mass of p on all tokens but those of `child` and its later siblings."""
    sums = tl.zeros([BLOCK], tl.float64)
    spent = _next_spent(candidates, next_sibling, child, 0, vocab_size)
    for start in range(0, vocab_size, BLOCK):
        weights = _block_left(
            target, drafts, ratios, p_row, q_row, scale, candidates, next_sibling, child, start,
            spent, vocab_size, NUM_BINS, BLOCK,
        )  # fmt: skip
        sums += weights.to(tl.float64)
        if spent < start + BLOCK:
            spent = _next_spent(candidates, next_sibling, child, start + BLOCK, vocab_size)
    return tl.sum(sums, axis=0)


@triton.jit
def _draw(
    target, drafts, ratios, p_row, q_row, scale, candidates, next_sibling, child, goal, vocab_size,
    NUM_BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """First token with a weight at which the sums of weights exceed the goal.

    The block is found first. Where a rounding leaves no such token, it is the last with a weight.
    """
    passed = goal * 0.0
    before = passed
    block = 0
    start = 0
    spent = _next_spent(candidates, next_sibling, child, 0, vocab_size)
    while (start < vocab_size) & (passed <= goal):
        weights = _block_left(
            target, drafts, ratios, p_row, q_row, scale, candidates, next_sibling, child, start,
            spent, vocab_size, NUM_BINS, BLOCK,
        )  # fmt: skip
        amount = tl.sum(weights.to(tl.float64), axis=0)
        block = tl.where(amount > 0.0, start, block)
        before = tl.where(amount > 0.0, passed, before)
        passed += amount
        if spent < start + BLOCK:
            spent = _next_spent(candidates, next_sibling, child, start + BLOCK, vocab_size)
        start += BLOCK
    weights = _block_left(
        target, drafts, ratios, p_row, q_row, scale, candidates, next_sibling, child, block, block,
        vocab_size, NUM_BINS, BLOCK,
    )  # fmt: skip
    tokens = block + tl.arange(0, BLOCK)
    sums = before + tl.cumsum(weights.to(tl.float64), axis=0)
    hit = tl.min(tl.where((sums > goal) & (weights > 0.0), tokens, vocab_size), axis=0)
    last = tl.max(tl.where(weights > 0.0, tokens, 0), axis=0)
    return tl.where(hit < vocab_size, hit, last)


@triton.jit
def _child_left(
    target, drafts, ratios, p_row, q_row, scale, candidates, next_sibling, first, child, vocab_size,
    NUM_BINS: tl.constexpr,
):  # fmt: skip
    """Remaining mass of p on a child's token; 0 if a sibling before it has that token."""
    token = tl.load(candidates + child)
    weight = _left(target, drafts, ratios, p_row, q_row, scale, token, vocab_size, NUM_BINS)
    if weight > 0.0:
        other = first
        while (other != child) & (tl.load(candidates + other) != token):
            other = tl.load(next_sibling + other)
        weight = tl.where(other == child, weight, 0.0)
    return weight


@triton.jit(do_not_specialize=["num_nodes", "depth", "num_drawn"])
def walk_trees(
    predicts, accept_index, accept_token_num, candidates, index, first_child, next_sibling, coins,
    last_coins, target, drafts, rows, ratios, selected, threshold_single, threshold_acc, num_nodes,
    depth, num_drawn, vocab_size, BY_CHILD: tl.constexpr, NUM_BINS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Decide on the tree of one request.

    With bins the drawn child that is tried is `selected`, at ratios to q, else those that were
    drawn are tried one after another, `num_drawn` at most.
    """
    request = tl.program_id(0).to(tl.int64)
    root_row = request * num_nodes
    candidates += root_row
    index += root_row
    first_child += root_row
    next_sibling += root_row
    coins += root_row
    if BY_CHILD:
        rows += root_row
    accept_index += request * depth

    node = request * 0
    place = tl.load(index)
    tl.store(accept_index, place.to(tl.int32))
    accepted = 0
    child = node - 1  # whose token, and those of its later siblings, the last token cannot be
    unmet = node - 1  # the row of the law that was refused, and how much of it
    scale = 0.0
    rest = tl.full([], -1.0, tl.float64)  # what is left of p beside all children, once it is known
    going = depth > 1
    while going:
        p_row = root_row + node
        first = tl.load(first_child + node)
        coin = tl.load(coins + node)
        chosen = node * 0 - 1
        unmet = node * 0 - 1
        scale = 0.0  # q times it has been taken off p
        rest = tl.full([], -1.0, tl.float64)
        mass = 1.0  # of what is left of p
        all_q = tl.full([], 1.0, tl.float64)
        tried_q = tl.full([], 0.0, tl.float64)
        tries = 0
        # Children that were drawn come first, x ~ q without those before it.
        other = first
        if NUM_BINS > 0:
            other = tl.load(selected + p_row)
        while (other != -1) & (chosen == -1) & (tries < num_drawn):
            row = row_of_child(rows, p_row, other, BY_CHILD)
            token = tl.load(candidates + other)
            q_x = tl.load(drafts + row * vocab_size + token, mask=row >= 0, other=0.0)
            if q_x > 0.0:
                if tries == 1:
                    all_q = _total_left(
                        drafts, drafts, ratios, row, node * 0 - 1, 0.0, candidates, next_sibling,
                        node * 0 - 1, vocab_size, 0, BLOCK,
                    )  # fmt: skip
                tries += 1
                p_x = tl.load(target + p_row * vocab_size + token)
                step = tl.div_rn(mass, tl.maximum((all_q - tried_q).to(tl.float32), q_x))
                next_q = step * q_x
                left_x = tl.maximum(p_x - scale * q_x, 0.0)
                if NUM_BINS > 0:
                    bin_x = bins_of(p_x, q_x, NUM_BINS)
                    next_q = tl.load(ratios + p_row * NUM_BINS + bin_x) * q_x
                likely = coin * next_q < tl.div_rn(left_x, threshold_acc)
                if (left_x > 0.0) & (likely | (p_x >= threshold_single)):
                    chosen = other
                else:
                    unmet = row
                    scale += step
                    tried_q += q_x.to(tl.float64)
                    coin = tl.load(coins + other)  # of a node that is never visited
                    rest = _total_left(
                        target, drafts, ratios, p_row, row, scale, candidates, next_sibling, first,
                        vocab_size, NUM_BINS, BLOCK,
                    )  # fmt: skip
                    whole = rest
                    sibling = first
                    while sibling != -1:
                        weight = _child_left(
                            target, drafts, ratios, p_row, row, scale, candidates, next_sibling,
                            first, sibling, vocab_size, NUM_BINS,
                        )  # fmt: skip
                        whole += weight.to(tl.float64)
                        sibling = tl.load(next_sibling + sibling)
                    mass = whole.to(tl.float32)
            other = tl.load(next_sibling + other)
        # Else what is left of p may hit a child that is certain.
        goal = coin * mass
        reached = 0.0
        other = first
        while (other != -1) & (chosen == -1):
            weight = _child_left(
                target, drafts, ratios, p_row, unmet, scale, candidates, next_sibling, first, other,
                vocab_size, NUM_BINS,
            )  # fmt: skip
            reached += weight
            likely = (goal < tl.div_rn(reached, threshold_acc)) | (weight >= threshold_single)
            chosen = tl.where((weight > 0.0) & likely, other, chosen)
            other = tl.load(next_sibling + other)
        if chosen != -1:
            tl.store(predicts + place, tl.load(candidates + chosen).to(tl.int32))
            place = tl.load(index + chosen)
            accepted += 1
            tl.store(accept_index + accepted, place.to(tl.int32))
            node = chosen
            going = accepted < depth - 1
            unmet = node * 0 - 1
            rest = tl.full([], -1.0, tl.float64)
        else:
            child = first
            going = accepted < 0
    tl.store(accept_token_num + request, accepted)

    p_row = root_row + node
    if rest < 0.0:
        rest = _total_left(
            target, drafts, ratios, p_row, unmet, scale, candidates, next_sibling, child,
            vocab_size, NUM_BINS, BLOCK,
        )  # fmt: skip
    if rest <= 0.0:  # a rounding has left nothing: the last token is drawn from p
        child = node * 0 - 1
        unmet = node * 0 - 1
        rest = _total_left(
            target, drafts, ratios, p_row, unmet, scale, candidates, next_sibling, child,
            vocab_size, NUM_BINS, BLOCK,
        )  # fmt: skip
    goal = tl.load(last_coins + request).to(tl.float64) * rest
    token = _draw(
        target, drafts, ratios, p_row, unmet, scale, candidates, next_sibling, child, goal,
        vocab_size, NUM_BINS, BLOCK,
    )  # fmt: skip
    tl.store(predicts + place, token.to(tl.int32))


def walk(call: TreeArguments, selection: Selection | None = None) -> None:
    """Decide on every tree of the batch, and write the decisions."""
    bs, num_nodes, vocab_size = call.target_probs.shape
    by_child = call.draft_rows is not None
    # Without a use for them other tensors stand there, which are not read.
    rows = call.draft_rows if by_child else call.retrive_index
    plan = selection or Selection(call.draft_probs, call.retrive_index)
    with torch.cuda.device_of(call.target_probs):
        walk_trees[(bs,)](
            *call[:9], call.target_probs, call.draft_probs, rows, plan.ratios, plan.chosen,
            call.threshold_single, call.threshold_acc, num_nodes, call.accept_index.shape[1],
            call.num_drawn, vocab_size, BY_CHILD=by_child,
            NUM_BINS=0 if selection is None else NUM_BINS,
            BLOCK=min(BLOCK, triton.next_power_of_2(vocab_size)), **OPTIONS,
        )  # fmt: skip
