"""Reference walk down a tree of drafts in PyTorch, on any device; the kernel decides the same.

Shapes are static and nothing waits for the device. Probabilities are compared in float32, in the
order of the siblings; sums over the vocabulary are of float64, so that their order does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mdsd_opt.serving.arguments import TreeArguments
from mdsd_opt.serving.selection import Selection, bins_of


@dataclass(frozen=True, slots=True, eq=False)
class Children:
    """Children of one node per request, [bs, C]; where `exists` is false there is none."""

    nodes: Any
    exists: Any
    tokens: Any
    rows: Any  # of drafts, -1 where certain


def walk(call: TreeArguments, selection: Selection | None = None) -> None:
    """Decide on every tree of the batch, and write the decisions.

    Children that were drawn are tried one after another, or the one that `selection` tells, against
    the law that it was selected by.
    """
    import torch

    accept_index, place_of, token_of = call.accept_index, call.retrive_index, call.candidates
    request = torch.arange(len(token_of), device=token_of.device)
    children = call.children()
    node = torch.zeros_like(request)
    accepted = torch.zeros_like(request)
    going = torch.ones_like(request, dtype=torch.bool)
    place = place_of[:, 0]
    accept_index[:, 0] = place
    unmet = torch.full_like(request, -1)  # the row of the law that was refused, and how much of it
    scale = torch.zeros_like(call.uniform_samples_for_final_sampling)
    for _ in range(accept_index.shape[1] - 1):
        met = _children_of(node, children, call)
        chosen, refused, taken_off = _choose(met, node, call, selection)
        moving = going & (chosen >= 0)
        unmet = torch.where(going & ~moving, refused, unmet)
        scale = torch.where(going & ~moving, taken_off, scale)
        going = moving
        node = torch.where(moving, chosen, node)
        _write(call.predicts, place, token_of[request, node], moving)
        place = torch.where(moving, place_of[request, node], place)
        accepted += moving
        at = request * accept_index.shape[1] + accepted
        _write(accept_index.view(-1), at, place, moving)
    call.accept_token_num.copy_(accepted)
    # Who went as deep as there is room for has met no children of the last node.
    met = _children_of(node, children, call)
    spent = met.exists & ~going[:, None]
    weights = _without(_left(call, node, unmet, scale, selection), met.tokens, spent)
    p = call.target_probs[request, node]
    token = _drawn(weights, p, call.uniform_samples_for_final_sampling)
    _write(call.predicts, place, token, torch.ones_like(going))


def _children_of(node: Any, children: Any, call: TreeArguments) -> Children:
    """Children of one node per request, `node` of shape [bs]."""
    import torch

    bs, num_nodes = call.candidates.shape
    request = torch.arange(bs, device=node.device)
    nodes = children[request, node]
    exists = nodes >= 0
    tokens = call.candidates.gather(1, nodes.clamp(min=0))
    if call.draft_rows is None:
        rows = (request * num_nodes + node)[:, None].expand_as(nodes)
    else:
        rows = call.draft_rows.gather(1, nodes.clamp(min=0))
    return Children(nodes, exists, tokens, torch.where(exists, rows, -1))


def _choose(met: Children, node: Any, call: TreeArguments, selection: Selection | None) -> Any:
    """Child that is taken or -1, row that was refused or -1, and the factor of its law.

    Drawn children come first: x ~ q is taken if u q(x) < p(x), where q has been scaled to the mass
    of what is left of p, for all that was not drawn before. If it is refused, p loses this q, and
    the next one is tried by a coin of its own, which is that of the node that was refused and is
    never visited. What is left of p in the end takes a certain child by a coin.
    """
    import torch

    coins, laws = call.uniform_samples, call.draft_probs
    request = torch.arange(node.shape[0], device=node.device)
    p = call.target_probs[request[:, None], node[:, None], met.tokens]
    q = torch.where(met.rows >= 0, laws[met.rows.clamp(min=0), met.tokens], 0.0)
    untried = (q > 0.0) & met.exists
    if selection is not None:
        untried &= met.nodes == selection.chosen.view(coins.shape)[request, node][:, None]
    coin = coins[request, node]
    divisor = torch.full_like(coin, call.threshold_acc)  # by a number, a device multiplies
    chosen, unmet = torch.full_like(node, -1), torch.full_like(node, -1)
    scale, mass = torch.zeros_like(coin), torch.ones_like(coin)
    tried_q = torch.zeros_like(coin, dtype=torch.float64)
    left = _left(call, node, unmet, scale, selection)
    for k in range(min(call.num_drawn, untried.shape[1])):
        exists = untried.any(1) & (chosen < 0)
        first = untried.int().argmax(1, keepdim=True)
        drawn, row, p_x, q_x = (x.gather(1, first)[:, 0] for x in (met.nodes, met.rows, p, q))
        untried = untried.scatter(1, first, False)
        all_q = laws[row.clamp(min=0)].sum(1, dtype=torch.float64) if k else 1.0
        step = mass / torch.maximum((all_q - tried_q).float(), q_x)
        next_q = step * q_x
        if selection is not None:
            next_q = _selected_law(p_x[:, None], q_x[:, None], node, call, selection)[:, 0]
        left_x = (p_x - scale * q_x).clamp(min=0.0)
        likely = (coin * next_q < left_x / divisor) | (p_x >= call.threshold_single)
        taken = exists & (left_x > 0.0) & likely
        refused = exists & ~taken
        chosen = torch.where(taken, drawn, chosen)
        unmet = torch.where(refused, row, unmet)
        scale = torch.where(refused, scale + step, scale)
        tried_q += torch.where(refused, q_x, 0.0)
        left = _left(call, node, unmet, scale, selection)
        mass = torch.where(refused, left.sum(1, dtype=torch.float64).float(), mass)
        coin = torch.where(refused, coins[request, drawn.clamp(min=0)], coin)

    weights = torch.where(_is_new(met), left.gather(1, met.tokens), 0.0)
    reached = torch.zeros_like(coin)
    for k in range(weights.shape[1]):
        reached = reached + weights[:, k]
        likely = (coin * mass < reached / divisor) | (weights[:, k] >= call.threshold_single)
        hit = (weights[:, k] > 0.0) & likely & (chosen < 0)
        chosen = torch.where(hit, met.nodes[:, k], chosen)
    return chosen, unmet, scale


def _is_new(met: Children) -> Any:
    """Whether each child's token differs from those of all siblings before it."""
    equal = (met.tokens[:, :, None] == met.tokens[:, None, :]) & met.exists[:, None, :]
    return met.exists & ~equal.tril(-1).any(2)


def _left(call: TreeArguments, node: Any, row: Any, scale: Any, selection: Selection | None) -> Any:
    """Positive part of p - scale q, [bs, V], if a row was refused; else p."""
    import torch

    p = call.target_probs[torch.arange(node.shape[0], device=node.device), node]
    q = call.draft_probs[row.clamp(min=0)]
    if selection is None:
        q = scale[:, None] * q
    else:
        q = _selected_law(p, q, node, call, selection)
    return torch.where((row >= 0)[:, None], (p - q).clamp(min=0.0), p)


def _selected_law(p: Any, q: Any, node: Any, call: TreeArguments, selection: Selection) -> Any:
    """Law of the selected draft, from p and q of some tokens at one node per request."""
    import torch

    bs, num_nodes = call.candidates.shape
    rows = torch.arange(bs, device=node.device) * num_nodes + node
    return selection.ratios[rows].gather(1, bins_of(p, q).long()) * q


def _without(weights: Any, tokens: Any, spent: Any) -> Any:
    """Weights of float64 without those of spent tokens."""
    import torch

    vocab_size = weights.shape[1]
    kept = torch.ones_like(weights[:, :1]).repeat(1, vocab_size + 1)  # one for what is not spent
    kept.scatter_(1, torch.where(spent, tokens, vocab_size), 0.0)
    return weights.double() * kept[:, :vocab_size]


def _drawn(weights: Any, p: Any, coins: Any) -> Any:
    """Token drawn in proportion to weights, or to p if rounding has left no weight.

    It is the first token at which the sums of weights exceed the coin times the total. Where a
    rounding leaves none, it is the last one with a weight.
    """
    import torch

    exists = (weights > 0.0).any(1, keepdim=True)
    weights = torch.where(exists, weights, p.double())
    reached = weights.cumsum(1)
    positive = weights > 0.0
    hit = positive & (reached > coins.double()[:, None] * reached[:, -1:])
    last = weights.shape[1] - 1 - positive.flip(1).int().argmax(1)
    return torch.where(hit.any(1), hit.int().argmax(1), last)


def _write(into: Any, places: Any, values: Any, where: Any) -> None:
    import torch

    into[places] = torch.where(where, values.to(into.dtype), into[places])
