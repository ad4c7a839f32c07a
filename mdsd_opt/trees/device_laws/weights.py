"""Integers in proportion to softmax, in torch: they are the laws, and every sum of them is exact.

A float32 probability times 2**52 is, once rounded, an integer that float32 holds. Sums of a row
stay below 2**53, and float64 adds them without error, in any order: a row has one total, whoever
adds it up. What softmax gives, up to 2**-53 a token, is what drafts are drawn from and what is
verified. Drafts are drawn without a wait for the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Floats
from mdsd_opt.trees.device_laws.transfers import on_host

UNIT = 2.0**52


def integer_weights(
    logits: Any,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    joint: bool = False,
) -> Any:
    """Weights of rows of logits, [..., V]; float32, or float64 for float64 logits.

    Filters apply in the order that `mdsd_opt.Sampling` states; ties are kept.
    """
    import torch

    values = logits if logits.dtype == torch.float64 else logits.float()
    if temperature == 0.0:
        best = values.argmax(-1, keepdim=True)
        return torch.zeros_like(values).scatter_(-1, best, UNIT)
    if temperature != 1.0:
        values = values / temperature
    whole = law = torch.softmax(values, -1)
    if top_k is not None and 0 < top_k < law.shape[-1]:
        law = _at_least(law, law, law.topk(top_k, -1).values[..., -1:])
    if top_p is not None and top_p < 1:
        seen = whole if joint else law
        descending = seen.sort(-1, descending=True).values
        before = descending.cumsum(-1, dtype=torch.float64) - descending
        num_tokens = (before < top_p).sum(-1, keepdim=True)
        law = _at_least(law, seen, descending.gather(-1, num_tokens - 1))
    if min_p is not None and min_p > 0:
        law = _at_least(law, law, min_p * law.amax(-1, keepdim=True))
    return law.mul_(UNIT).round_()


def probabilities(law: Any) -> Floats:
    """Draft law on the host: itself, or that of integer weights, which waits for them."""
    if isinstance(law, np.ndarray):
        return law
    weights: Floats = on_host(law)[0]
    return weights / weights.sum()


def _at_least(law: Any, seen: Any, floor: Any) -> Any:
    """Law of the tokens to which another law, or the same, gives at least so much."""
    import torch

    masses = torch.where(seen >= floor, law, 0.0)
    return masses / masses.sum(-1, keepdim=True)


def draw(masses: Any, uniforms: Any) -> Any:
    """Tokens drawn independently in proportion to rows of masses; int64, shape (n, K).

    `masses` has shape (n, V); `uniforms`, of float64 on [0, 1), has shape (n, K).
    """
    import torch

    reached = masses.cumsum(-1, dtype=torch.float64)
    at = uniforms * reached[:, -1:]
    # the product may be rounded up to the total; the last of equal sums has a mass
    last = torch.searchsorted(reached, reached[:, -1:].contiguous())
    return torch.searchsorted(reached, at, right=True).minimum(last)


def draw_distinct(weights: Any, uniforms: Any) -> Any:
    """Tokens drawn one after another, each in proportion to the weights of those not drawn yet.

    A draw is a place on the line of all weights, in which what is drawn already takes no room: one
    sum over the vocabulary serves all draws, and it is exact. `weights`, shape (n, V), are integers
    with sums below 2**53; `uniforms`, shape (n, K), are of float64 on [0, 1). Returns int64, shape
    (n, K), -1 where no token is left.
    """
    import torch

    reached = weights.cumsum(-1, dtype=torch.float64)
    rest = reached[:, -1:].contiguous()
    tokens = []
    starts = masses = rest[:, :0]
    for k in range(uniforms.shape[1]):
        at = (uniforms[:, k : k + 1] * rest).floor_().minimum(rest - 1.0)
        for j in range(k):
            at += torch.where(at >= starts[:, j : j + 1], masses[:, j : j + 1], 0.0)
        exists = rest > 0.0
        token = torch.searchsorted(reached, at, right=True)
        mass = torch.where(exists, weights.gather(-1, token).double(), 0.0)
        tokens.append(torch.where(exists, token, -1))
        starts, order = torch.cat((starts, reached.gather(-1, token) - mass), -1).sort(-1)
        masses = torch.cat((masses, mass), -1).gather(-1, order)
        rest = rest - mass
    return torch.cat(tokens, -1)
