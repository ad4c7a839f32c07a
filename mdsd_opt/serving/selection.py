"""Selection among several draws at every node, by the plan on bins; the kernels find the same.

The rule is that of `mdsd_opt.verifiers.optimal.grouped_plan`, for K children that were drawn
independently from q: p_I is p in the mean of every bin, raised to one ratio to q in the first bins
and capped by one in the last, and the selected draft is the first in the block of the topmost. The
table is that of `mdsd_opt.prefix_search.bins`, of fewer bins. Its sums are of integers, so that
their order does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Integers, Matrix
from mdsd_opt.prefix_search import BinGroups, Bins, groups_of
from mdsd_opt.serving.arguments import TreeArguments
from mdsd_opt.trees import bins_on_device
from mdsd_opt.verifiers import BinMarginal, bin_marginal

#: Number of bins, the last for tokens that are never drafted. With 2,048 acceptance is .0004 higher
#: at best.
NUM_BINS = 256

#: Sums over bins are integers in these units of probability; smaller tokens count as none.
UNIT = 2.0**44


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Plan of every node, by rows b N + i.

    `ratios`, float32 [bs N, bins], are those of the selected draft's law to q where bins hold any,
    and `chosen`, int64 [bs N], is the child that is selected, -1 where none was drawn.
    """

    ratios: Any
    chosen: Any


def bins_of(p: Any, q: Any) -> Any:
    """Bins of tokens; any bin for NaN, which rows may hold that no walk comes to."""
    return bins_on_device(p, q, NUM_BINS)[0]


def bin_sums(p: Any, q: Any, bins: Any) -> Any:
    """Integer sums over the bins, [M, bins, 2]; a token that is drafted has at least one unit."""
    import torch

    of_p = (p.double() * UNIT).floor()
    of_q = torch.where(q > 0.0, (q.double() * UNIT).floor().clamp(min=1.0), 0.0)
    empty = of_p.new_zeros((len(bins), NUM_BINS))
    return torch.stack([empty.scatter_add(1, bins.long(), x) for x in (of_p, of_q)], 2)


def select(call: TreeArguments, levels: Any) -> Selection:
    """Plan of every node; `levels`, float32 [bs, N], are the levels s."""
    import torch

    bs, num_nodes, vocab_size = call.target_probs.shape
    children = call.children().view(bs * num_nodes, -1)
    request = torch.arange(bs, device=children.device).repeat_interleave(num_nodes)
    tokens = call.candidates[request[:, None], children.clamp(min=0)]
    p, q = call.target_probs.view(bs * num_nodes, vocab_size), call.draft_probs
    if call.draft_rows is not None:
        row = call.draft_rows[request, children[:, 0].clamp(min=0)]
        q = torch.where((row >= 0)[:, None], q[row.clamp(min=0)], 0.0)
    bins = bins_of(p, q)
    parts = bin_sums(p, q, bins), bins.gather(1, tokens), children, levels.view(-1)
    sums, at, nodes, at_levels = (part.cpu().numpy() for part in parts)
    ratios = np.zeros((bs * num_nodes, NUM_BINS), np.float32)
    chosen = np.full(bs * num_nodes, -1)
    for node in np.flatnonzero(nodes[:, 0] >= 0):
        if sums[node, :, 1].any():
            below = nodes[node, nodes[node] >= 0]
            groups, marginal = plan_of(sums[node], below.size)
            of_bins = np.append(marginal.ratio, 0.0)[groups.place]
            ratios[node] = np.where(sums[node, :, 1] > 0.0, of_bins, 0.0)
            places = groups.place[at[node, : below.size]]
            chosen[node] = _selected(groups, marginal, places, float(at_levels[node]), below)
    return Selection(*(torch.from_numpy(x).to(children.device) for x in (ratios, chosen)))


def plan_of(sums: Matrix, num_drafts: int) -> tuple[BinGroups, BinMarginal]:
    """Groups and marginal from the sums of one node, shape (bins, 2), for K draws."""
    p, q = np.ascontiguousarray((sums / np.maximum(sums.sum(0), 1.0)).T)
    drafted = q > 0.0
    means = np.divide(p, q, out=np.zeros_like(p), where=drafted)
    lowest = np.where(drafted, means, np.inf)
    groups = groups_of(Bins(p, q, lowest, means, sums[:, 1], None), num_drafts, True)
    return groups, bin_marginal(groups)


def _selected(
    groups: BinGroups, marginal: BinMarginal, places: Integers, level: float, nodes: Integers
) -> int:
    """Node of the first draft in the block of the topmost one; -1 if none was drawn."""
    from mdsd_opt.verifiers import block_around

    top, size = int(places.max()), groups.q.size
    if top < 0:
        return -1
    starts, (mass, weight) = np.empty(size + 1, np.int64), np.empty((2, size))
    start, _ = block_around(
        marginal.x, groups.q, np.diff(groups.contained), level, marginal.split, 0, size, top,
        starts, mass, weight,
    )  # fmt: skip
    return int(nodes[(places >= start).argmax()])
