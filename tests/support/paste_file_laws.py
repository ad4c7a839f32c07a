"""The exact law of what the rules of examples/torch_verifiers.py put out."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import torch
import torch_verifiers

SCHEMES = ["with_replacement", "without_replacement"]


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

    Over all draft tuples, whose probabilities are those of q while the rule believes in `believed`;
    what depends on the mixing level is constant between a few of its values, which are found by
    bisection.
    """
    replacement = scheme == "with_replacement"
    tuples, chances = zip(*drafted_tuples(q, num_drafts, replacement), strict=True)
    tuples, chances = torch.tensor(tuples), np.array(chances)
    rows = [torch.as_tensor(x)[None] for x in (p, q if believed is None else believed)]

    replaced = replacement or num_drafts == 1
    rule = partial(torch_verifiers._recursive, replacement=replaced)
    if name == "optimal":  # the plan is the same for all of them
        plan = torch_verifiers._plan(*rows, num_drafts, replaced)

        def rule(p, q, drafts, levels):
            of_all = (x.expand(len(p), *x.shape[1:]) for x in plan)
            plans = torch_verifiers._Plan(*of_all)
            return torch_verifiers._selected(plans, p, q, drafts, levels, replaced)

    def decided(at, levels):
        levels = torch.as_tensor(levels, dtype=torch.float64)
        given = [x.expand(len(at), -1) for x in rows]
        return rule(*given, tuples[at], levels)

    at = np.repeat(np.arange(len(tuples)), 8)
    low = np.tile(np.arange(8) / 8, len(tuples))
    high = low + 1 / 8
    accept = np.zeros(tuples.shape)
    first, last = (decided(at, x).accept.numpy() for x in (low, np.minimum(high, 1.0 - 1e-12)))
    for _ in range(28):
        changes = (np.abs(first - last) > 1e-13).any(1)
        settled = ~changes
        np.add.at(accept, at[settled], (high - low)[settled, None] * first[settled])
        at, low, high = at[changes], low[changes], high[changes]
        first, last = first[changes], last[changes]
        if at.size == 0:
            break
        middle = (low + high) / 2
        between = decided(at, middle).accept.numpy()
        at, low, high = np.tile(at, 2), np.append(low, middle), np.append(middle, high)
        first, last = np.concatenate((first, between)), np.concatenate((between, last))
    np.add.at(accept, at, (high - low)[:, None] * (first + last) / 2)
    return _with_residuals(
        tuples, chances, accept, rows, decided(np.arange(len(tuples)), np.full(len(tuples), 0.5))
    )


def _with_residuals(tuples, chances, accept, rows, decision):
    p, q = (x.expand(len(tuples), -1) for x in rows)
    left = torch_verifiers._excess(p, q, decision.ratio, decision.bins)
    left = left.scatter_add(1, tuples.clamp(min=0), decision.extra).numpy()
    empty = left.sum(1) <= 0.0
    left[empty] = p.double().numpy()[empty]
    left /= left.sum(1, keepdims=True)
    law = np.zeros(p.shape[1])
    rejected = chances * (1.0 - accept.sum(1))
    for drafts, weights in zip(tuples.T.numpy(), (chances[:, None] * accept).T, strict=True):
        np.add.at(law, np.maximum(drafts, 0), weights)
    return law + rejected @ left, 1.0 - rejected.sum()
