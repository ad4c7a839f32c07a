r"""Trees for drafters that give the laws of several tokens at once, whatever these tokens are.

One law for each position, :math:`q(w) = \prod_i q_i(w_i)`, as of [Medusa], [P-EAGLE] or [DFlash].
Trees of them are drawn as all others are, or are certain: the likeliest texts under q.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from mdsd_opt.base.arrays import Floats
from mdsd_opt.base.checked import check_counts, floats
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import DraftModel, Place, Topology
from mdsd_opt.trees.plans import Cost, seconds_of


def by_position(laws: Floats) -> DraftModel:
    """Draft model that has one law for each position, for `grow`.

    Parameters
    ----------
    laws : ndarray, shape (L, V)
        Laws as probabilities; the first is of the next token. Trees have up to L levels.
    """
    rows = floats(laws, "laws")
    return lambda texts: rows[[len(text) for text in texts]]


def best_first(laws: Floats, num_nodes: int, cost: Cost | None = None) -> Topology:
    r"""Tree of the texts that are likeliest under the laws of the positions.

    It is for the scheme ``"top_k"``: the k-th draft of a node is the k-th likeliest token of its
    position. No lossless rule accepts more of it than :math:`\sum_w p(w)` over its texts w, which
    the rule ``"naive_target"`` does. Source: [DDTree], and with a cost [CaDDTree], from their
    descriptions.

    Parameters
    ----------
    laws : ndarray, shape (L, V)
        As for `by_position`.
    num_nodes : int
        Drafts of the tree, at most.
    cost : callable, mapping of int to float, or sequence, optional
        Seconds of a step by its number of drafts, as for `plan_tree`: the tree has the number for
        which :math:`(1 + \sum_w q(w))` / seconds is largest. Where the cost is convex, that is the
        first number with which it falls.

    Raises
    ------
    InvalidInput
        No draft allowed, no law, or a cost that is not positive.
    """
    laws = floats(laws, "laws")
    check_counts(num_nodes=num_nodes)
    if laws.ndim != 2 or not laws.size or not (laws >= 0.0).all():
        raise InvalidInput(f"laws have shape {laws.shape}: give probabilities of shape (L, V)")
    falling = -np.sort(-laws, axis=1)
    chances: list[float] = []
    order: list[Place] = []
    waiting: list[tuple[float, Place, float]] = [(-float(falling[0, 0]), (0,), 1.0)]
    while waiting and len(order) < num_nodes:
        negative, place, above = heappop(waiting)
        chances.append(-negative)
        order.append(place)
        depth, rank = len(place), place[-1] + 1
        after = [((*place[:-1], rank), above, depth - 1)] if rank < laws.shape[1] else []
        if depth < len(laws):
            after.append(((*place, 0), -negative, depth))
        for child, base, position in after:
            chance = base * float(falling[position, child[-1]])
            if chance > 0.0:
                heappush(waiting, (-chance, child, base))
    count = len(order)
    if cost is not None:
        seconds, expected = seconds_of(cost), 1.0 + np.cumsum(chances)
        count = 1 + max(range(count), key=lambda n: float(expected[n]) / seconds(n + 1))
    num_drafts: dict[Place, int] = {}
    for place in order[:count]:
        num_drafts[place[:-1]] = num_drafts.get(place[:-1], 0) + 1
    return Topology(num_drafts, f"best{count}")
