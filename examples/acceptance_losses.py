"""Losses that train a draft: cross-entropy, and the rate at which its drafts can be accepted.

With K drafts that are drawn independently from q, the best that a lossless verifier can accept is

    alpha(p, q) = 1 + min over sets H of tokens of p(H) - q(H)^K,

and a minimiser is a level set of p / q. By Danskin's theorem its derivative is that of the bracket
at the minimiser: -K q(H)^(K - 1) for the tokens in H, 0 for the others. No sort is needed to find
it. For K = 1, 1 - alpha is the total variation distance.
"""

from __future__ import annotations

import torch
from torch import Tensor

BUCKETS = 1024  # of log(p / q), in which the least bracket is looked for
LOWEST = 1e-6  # ratios below it share the first bucket
DESCENTS = 4  # steps from the best bucket's edge to the level set itself


def cross_entropy(target: Tensor, draft_logits: Tensor) -> Tensor:
    """Loss -sum of p log q, [...], for laws p, [..., S], and logits of q.

    A target that sums to less than one, because the draft does not have all tokens, counts by what
    it has.
    """
    return -(target * draft_logits.log_softmax(-1)).sum(-1)


def rejection(target: Tensor, draft_logits: Tensor, num_drafts: int = 1) -> Tensor:
    """Loss 1 - alpha(p, q), [...], for `num_drafts` independent drafts; p, q as in `cross_entropy`.

    Its gradient in the logits is a subgradient where several sets are least.
    """
    draft = draft_logits.softmax(-1)
    with torch.no_grad():
        least = least_set(target, draft, num_drafts)
    mass = (draft * least).sum(-1)
    return mass**num_drafts - (target * least).sum(-1)


def least_set(target: Tensor, draft: Tensor, num_drafts: int) -> Tensor:
    """Set H that minimises p(H) - q(H)^K, as zeros and ones, [..., S].

    The best of some level sets of p / q is where the search begins. From there each step replaces
    q(H)^K, which is convex in q(H), by its tangent. Then the least set is {p / q < K q(H)^(K - 1)},
    and as the tangent lies below, the bracket never grows.
    """
    ratio = target / draft.clamp_min(1e-30)
    # no token of a larger ratio than K can be in the set
    step = (BUCKETS - 1) / torch.log(torch.tensor(num_drafts / LOWEST))
    place = ((ratio.clamp_min(LOWEST) / LOWEST).log() * step).long().clamp_max(BUCKETS)
    sums = target.new_zeros((2, *target.shape[:-1], BUCKETS + 1))
    masses = sums.scatter_add_(-1, place.expand(2, *place.shape), torch.stack([target, draft]))
    below, drawn = masses[..., :-1].cumsum(-1)
    bracket, best = (below - drawn**num_drafts).min(-1)
    least = (place <= best[..., None]) & (bracket < 0)[..., None]
    for _ in range(DESCENTS if num_drafts > 1 else 1):
        mass = (draft * least).sum(-1, keepdim=True)
        least = ratio < num_drafts * mass ** (num_drafts - 1)
    return least.to(draft.dtype)
