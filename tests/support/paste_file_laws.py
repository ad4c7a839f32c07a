"""The exact law of what the rules of examples/torch_verifiers.py put out."""

from __future__ import annotations

import itertools
from unittest.mock import patch

import numpy as np
import torch
import torch_verifiers

import mdsd_opt as mo

SCHEMES = {"with_replacement": mo.WithReplacement, "without_replacement": mo.WithoutReplacement}


def verdicts(name, scheme, p, q, drafts, uniforms):
    """By the package's uniforms, of which the functions use all but the second."""
    given = [torch.as_tensor(x) for x in (p, q, drafts, uniforms[:, [0, 2, 3]])]
    return getattr(torch_verifiers, name)(*given, replacement=scheme == "with_replacement")


def drafted_tuples(q, num_drafts, replacement):
    """Every draft tuple with its probability; no mass is found as a difference."""
    wanted = num_drafts
    if not replacement:
        num_drafts = min(num_drafts, int((q > 0.0).sum()))
    for drafts in itertools.product(range(q.size), repeat=num_drafts):
        probability, left = 1.0, q.copy()
        for token in drafts:
            probability *= left[token] / left.sum() if left.sum() > 0.0 else 0.0
            if not replacement:
                left[token] = 0.0
        if probability > 1e-14:
            yield (*drafts, *[-1] * (wanted - num_drafts)), probability


def output_law(name, scheme, p, q, num_drafts, believed=None):
    """Law of the output at one position, shape (V,), and how often a draft is accepted.

    Over all draft tuples, whose probabilities are those of q while the rule believes in `believed`.
    """
    replaced = scheme == "with_replacement"
    tuples, chances = zip(*drafted_tuples(q, num_drafts, replaced), strict=True)
    tuples, chances = torch.tensor(tuples), np.array(chances)
    rows = [torch.as_tensor(x)[None] for x in (p, q if believed is None else believed)]
    replaced = replaced or num_drafts == 1
    if name == "rrs":
        given = (x.expand(len(tuples), -1) for x in rows)
        decision = torch_verifiers._recursive(*given, tuples, None, replaced)
        accept = decision.accept.numpy()
    else:
        plan = torch_verifiers._plan(*rows, num_drafts, replaced)
        everywhere = np.arange(len(tuples))
        decision, _ = _selected(plan, rows, tuples, np.zeros(len(tuples)), replaced)
        accept = _mean_over_levels(
            lambda at, levels: _selected(plan, rows, tuples[at], levels, replaced), everywhere
        )
    left = torch_verifiers._excess(*rows, decision.ratio, decision.bins)
    left = left.scatter_add(1, tuples.clamp(min=0), decision.extra).numpy()
    empty = left.sum(1) <= 0.0
    left[empty] = rows[0].double().numpy()
    left /= left.sum(1, keepdims=True)
    law = np.zeros(p.shape[0])
    rejected = chances * (1.0 - accept.sum(1))
    for drafts, weights in zip(tuples.T.numpy(), (chances[:, None] * accept).T, strict=True):
        np.add.at(law, np.maximum(drafts, 0), weights)
    return law + rejected @ left, 1.0 - rejected.sum()


def _selected(plan, rows, drafts, levels, replaced):
    """What the optimal rule decides at some levels, and its blocks."""
    blocks = []

    def recorded(*given):
        blocks.append(block(*given))
        return blocks[0]

    size, block = len(drafts), torch_verifiers._block
    plans = torch_verifiers._Plan(*(x.expand(size, *x.shape[1:]) for x in plan))
    rows = [x.expand(size, -1) for x in rows]
    with patch.object(torch_verifiers, "_block", recorded):
        levels = torch.as_tensor(levels, dtype=torch.float64)
        decision = torch_verifiers._selected(plans, *rows, drafts, levels, replaced)
    return decision, torch.cat(blocks[0], 1).numpy()


def _mean_over_levels(selected, at):
    """Acceptance of the drafts over all levels: blocks only grow, and are halved where they do."""
    low, high = np.zeros(at.size), np.full(at.size, 1.0 - 1e-12)
    (first, start), (last, stop) = (selected(at, x) for x in (low, high))
    first, last = first.accept.numpy(), last.accept.numpy()
    accept = np.zeros_like(first)
    for _ in range(31):
        grows = (start != stop).any(1)
        np.add.at(accept, at[~grows], (high - low)[~grows, None] * first[~grows])
        at, low, high = at[grows], low[grows], high[grows]
        first, last, start, stop = (x[grows] for x in (first, last, start, stop))
        if at.size == 0:
            break
        middle = (low + high) / 2
        decision, block = selected(at, middle)
        at, low, high = np.tile(at, 2), np.append(low, middle), np.append(middle, high)
        first, last = (
            np.concatenate(x) for x in ((first, decision.accept), (decision.accept, last))
        )
        start, stop = np.concatenate((start, block)), np.concatenate((block, stop))
    np.add.at(accept, at, (high - low)[:, None] * (first + last) / 2)
    return accept
