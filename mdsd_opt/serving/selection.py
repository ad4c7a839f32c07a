r"""Selection among several draws at every node, in PyTorch; the kernels find the same.

The optimal rule on closed bins of p/q (`mdsd_opt.verifiers.optimal`), for K children that were
drawn independently from q. Sums over the bins are of integers, so that their order does not matter.
With P, Q and :math:`F = Q^K` the masses of the first n bins under target, draft and all drafts:

1. the optimal prefix of bins minimises P - F;
2. the marginal of the selected draft is :math:`\rho_b\,q` in bin b: p there, raised to one level
   in the first bins and capped by one in the last, such that the prefix has the mass F;
3. at a mixing level s the selected draft is the first one in the block of the topmost draft: an
   edge of the lower convex hull of R - s F over Q, R the sums of the marginal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mdsd_opt.prefix_search.bins import HALF
from mdsd_opt.serving.arguments import TreeCall
from mdsd_opt.serving.children import all_children

#: Number of bins, the last for tokens that are never drafted. With 2,048 acceptance is .0004 higher
#: at best.
NUM_BINS = 256

#: Sums over bins are integers in these units of probability; smaller tokens count as none.
UNIT = 2.0**44

#: Most tangents between the two halves of a hull, in turn: two or three are usual.
MOST_STEPS = 32


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Plan of every node, by rows b N + i.

    `ratios`, float32 [bs N, bins], are those of the selected draft's law to q, and `chosen`, int64
    [bs N], is the child that is selected, -1 where none was drawn.
    """

    ratios: Any
    chosen: Any


def bins_of(p: Any, q: Any) -> Any:
    """Bins of tokens: even in p / (p + 2 q), the last for q = 0.

    Any bin for NaN, which rows may hold that no walk comes to.
    """
    import torch

    t = p / torch.where(q > 0.0, p + HALF * q, 1.0)
    found = (t * (NUM_BINS - 1)).int().clamp(0, NUM_BINS - 2)
    return torch.where(q > 0.0, found, NUM_BINS - 1)


def select(call: TreeCall, levels: Any) -> Selection:
    """Plan of every node; `levels`, float32 [bs, N], are the levels s."""
    import torch

    trees, laws = call.trees, call.laws
    bs, num_nodes, vocab_size = laws.target.shape
    children = all_children(trees).view(bs * num_nodes, -1)
    exists = children >= 0
    request = torch.arange(bs, device=children.device).repeat_interleave(num_nodes)
    tokens = trees.tokens[request[:, None], children.clamp(min=0)]
    p = laws.target.view(bs * num_nodes, vocab_size)
    if laws.rows is None:
        q = laws.drafts
    else:
        row = laws.rows[request, children[:, 0].clamp(min=0)]
        q = torch.where((row >= 0)[:, None], laws.drafts[row.clamp(min=0)], 0.0)
    bins = bins_of(p, q).long()
    target_sums, draft_sums = bin_sums(p, q, bins)
    curves = curves_of(target_sums, draft_sums, exists.sum(1), exists.shape[1])

    at = bins.gather(1, tokens)
    drawn = exists & (at < NUM_BINS - 1)
    top = torch.where(drawn, at, 0).amax(1)
    start = start_of_block(curves, top, levels.view(-1).double())
    inside = drawn & (at >= start[:, None])
    chosen = children.gather(1, inside.int().argmax(1, keepdim=True))[:, 0]
    return Selection(curves.ratios.float(), torch.where(inside.any(1), chosen, -1))


def bin_sums(p: Any, q: Any, bins: Any) -> tuple[Any, Any]:
    """Integer sums over the bins, [M, bins]; a token that is drafted has at least one unit."""
    import torch

    of_p = (p.double() * UNIT).long()
    of_q = torch.where(q > 0.0, (q.double() * UNIT).long().clamp(min=1), 0)
    empty = torch.zeros(p.shape[0], NUM_BINS, dtype=torch.int64, device=p.device)
    return empty.scatter_add(1, bins, of_p), empty.scatter_add(1, bins, of_q)


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Values before every bin: Q in units, F and R, [M, bins]; ratios of the bins; cut, [M, 1].

    R and the ratios are written down piece by piece, not summed: a kernel finds the same numbers.
    """

    below: Any
    contained: Any
    marginal: Any
    ratios: Any
    split: Any


def curves_of(target_sums: Any, draft_sums: Any, num_drafts: Any, most_drafts: int) -> Curves:
    """Plan from integer sums, [M, bins], for so many drafts, [M], which are at most a few."""
    import torch

    n = torch.arange(NUM_BINS, device=target_sums.device)[None]
    all_p, all_q = (x.sum(1, keepdim=True).clamp(min=1).double() for x in (target_sums, draft_sums))
    below_p, below_q = target_sums.cumsum(1) - target_sums, draft_sums.cumsum(1) - draft_sums
    p, q = target_sums / all_p, draft_sums / all_q
    before_p, before_q = below_p / all_p, below_q / all_q
    through_p = (below_p + target_sums) / all_p
    behind_q, beyond_q = ((all_q - x) / all_q for x in (below_q, below_q + draft_sums))
    contained = before_q
    for k in range(1, most_drafts):
        contained = torch.where((num_drafts > k)[:, None], contained * before_q, contained)
    center = (n.double() + 0.5) / (NUM_BINS - 1)
    ratios = torch.where(q > 0.0, p / q, HALF * center / (1.0 - center))

    split = (before_p - contained).argmin(1, keepdim=True)
    inside, p_split = contained.gather(1, split), before_p.gather(1, split)
    # The first place in the prefix that a level reaches without passing the ratio behind it.
    marginal = inside + (before_p - p_split)
    fits = (marginal <= ratios * before_q) & (n < split)
    raised = torch.where(fits, n, split).amin(1, keepdim=True)
    level = _quotient(marginal.gather(1, raised), before_q.gather(1, raised))
    # The last place behind it from which a cap does not fall below the ratio before it.
    left = (1.0 - inside) - (through_p - p_split)
    fits = (left >= ratios * beyond_q) & (beyond_q > 0.0) & (n >= split) & (n < NUM_BINS - 1)
    capped = torch.where(fits, n + 1, split).amax(1, keepdim=True)
    room = (1.0 - marginal.gather(1, capped)).clamp(min=0.0)
    cap = _quotient(room, behind_q.gather(1, capped))
    marginal = torch.where(n < raised, level * before_q, marginal)
    marginal = torch.where(n > capped, 1.0 - cap * behind_q, marginal)
    ratios = torch.where(n < raised, level, torch.where(n >= capped, cap, ratios))
    ratios = torch.where(n < NUM_BINS - 1, ratios, 0.0)
    return Curves(below_q.double(), contained, marginal, ratios, split)


def _quotient(a: Any, b: Any) -> Any:
    import torch

    return torch.where(b > 0.0, a / b, 0.0)


def start_of_block(curves: Curves, top: Any, levels: Any) -> Any:
    """First bin of the block around bin `top`, both [M].

    The edge of the hull over a bin is what tangents from either side agree on. The cut is a vertex
    at every level.
    """
    import torch

    n = torch.arange(NUM_BINS, device=top.device)[None]
    height = curves.marginal - levels[:, None] * curves.contained
    top = top[:, None]
    behind_cut = top >= curves.split
    on_left = (n <= top) & (n >= torch.where(behind_cut, curves.split, 0))
    on_right = (n > top) & (n <= torch.where(behind_cut, NUM_BINS - 1, curves.split))
    start = top
    for _ in range(MOST_STEPS):
        slopes = _slopes(curves.below, height, start)
        least = torch.where(on_right, slopes, torch.inf).amin(1, keepdim=True)
        stop = torch.where(on_right & (slopes <= least), n, 0).amax(1, keepdim=True)
        slopes = _slopes(curves.below, height, stop)
        most = torch.where(on_left, slopes, -torch.inf).amax(1, keepdim=True)
        start = torch.where(on_left & (slopes >= most), n, top).amin(1, keepdim=True)
    return start[:, 0]


def _slopes(below: Any, height: Any, place: Any) -> Any:
    """Slopes of the lines from all places to one, [M, bins]; that place's own value is unused."""
    return (height - height.gather(1, place)) / (below - below.gather(1, place))
