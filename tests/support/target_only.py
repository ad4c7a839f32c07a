"""Target-only sampling of one tree, written from what it is: an oracle for rows of zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.served_trees import Served, children


def target_only(served: Served, request: int, single: float = 1.0, acc: float = 1.0) -> list[int]:
    """The text of one request: the same float32 sums and comparisons, one child after another."""
    one, text, node = np.float32, [], 0
    single, acc = one(single), max(one(acc), one(1e-9))
    p: Any = np.float32(served.p[request])
    coins = np.float32(served.coins[request])
    refused: list[int] = []
    while len(text) < served.depth - 1:
        reached, chosen, refused = one(0), None, []
        for child in children(served, request, node):
            token = int(served.tokens[request, child])
            reached += p[node, token]
            likely = coins[node] < reached / acc or p[node, token] >= single
            if p[node, token] > 0 and likely:
                chosen = child
                break
            refused.append(token)
        if chosen is None:
            break
        text.append(int(served.tokens[request, chosen]))
        node, refused = chosen, []
    weights = p[node].copy()
    weights[refused] = 0
    sums = np.cumsum(weights, dtype=np.float32)
    goal = np.float32(served.last_coins[request]) * sums[-1]
    hits = np.flatnonzero((sums > goal) & (weights > 0))
    return [*text, int(hits[0] if hits.size else np.flatnonzero(weights)[-1])]
