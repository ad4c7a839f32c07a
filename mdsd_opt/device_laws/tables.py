r"""What the host is told of a position: sums of both laws over bins of p/q.

Bins are even in :math:`t = n / (n + 2 m)`, n and m the integer weights of target and draft; one
more holds the tokens that are never drafted. The sums are exact, whatever adds them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

#: Of one position, the bin of what is never drafted among them.
NUM_BINS = 2048

#: n/m in the middle of the bins: where p/q is near 1 they are narrow on both sides.
_HALF = 2.0

#: By how much bins are widened in t, for the roundings of t in float32.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class BinTable:
    """Both laws of a position by bins, and where their weights are.

    Attributes
    ----------
    p, q : ndarray, shape (B,)
        Masses of target and draft.
    lowest, highest : ndarray, shape (B,)
        Bounds of p/q in each bin, a little too wide.
    target, draft : tensor, shape (V,)
        The weights; of a position without drafts those of the target are made when they are
        needed, and the draft has none.
    bins : tensor of integers, shape (V,)
        None without drafts.
    at : dict of int to tuple
        p, q and bin of each token that was drawn.
    """

    p: Vector
    q: Vector
    lowest: Vector
    highest: Vector
    target: Callable[[], Any]
    draft: Any
    bins: Any
    at: dict[int, tuple[float, float, int]]


def bin_tables(
    targets: Any, drafts: Sequence[Any], draws: Sequence[Sequence[int]], num_bins: int = NUM_BINS
) -> list[BinTable]:
    """Tables of some positions; one copy to the host.

    Parameters
    ----------
    targets : tensor, shape (n, V)
        Integer weights.
    drafts : sequence of tensors, shape (V,)
        n of them.
    draws : sequence of sequences of int
        The tokens drawn at each position.
    num_bins : int
    """
    summed = _summed_on_cpu if targets.device.type == "cpu" else _summed_on_device
    widest = max(map(len, draws))
    padded = [[*tokens, *[tokens[0]] * (widest - len(tokens))] for tokens in draws]
    sums, drawn, bins = summed(targets, drafts, padded, num_bins)
    lowest, highest = _edges(num_bins)
    found = []
    for i, row in enumerate(padded):
        total = sums[i].sum(axis=0)
        scale = total[1] / total[0]
        p, q = drawn[i, :2] / total[:, np.newaxis]
        at = dict(zip(row, zip(p, q, drawn[i, 2].astype(np.int64), strict=True), strict=True))
        masses = np.ascontiguousarray((sums[i] / total).T)
        weights = partial(operator.getitem, targets, i)
        low, high = scale * lowest, scale * highest
        found.append(BinTable(masses[0], masses[1], low, high, weights, drafts[i], bins[i], at))
    return found


def undrafted_table(weights: Callable[[], Any]) -> BinTable:
    """Of a position without drafts: everything is in one bin."""
    one, none = np.ones(1), np.zeros(1)
    return BinTable(one, none, none, none, weights, None, None, {})


def _summed_on_device(
    targets: Any, drafts: Sequence[Any], draws: list[list[int]], num_bins: int
) -> tuple[Vector, Vector, Any]:
    """Sums [n, B, 2]; n, m and bin of the draws [n, 3, K]; bins [n, V], which stay there."""
    import torch

    rows = torch.stack(list(drafts))
    sums, bins = sums_on_device(targets, rows, num_bins)
    tokens = torch.as_tensor(draws, device=targets.device)
    drawn = torch.stack([array.gather(1, tokens).double() for array in (targets, rows, bins)], 1)
    packed = torch.cat([sums.flatten(), drawn.flatten()]).cpu().numpy()
    split = sums.numel()
    return packed[:split].reshape(sums.shape), packed[split:].reshape(drawn.shape), bins


def sums_on_device(targets: Any, drafts: Any, num_bins: int) -> tuple[Any, Any]:
    """Sums [n, B, 2] and bins [n, V] of two tensors [n, V], by additions in any order."""
    import torch

    count = targets.shape[0]
    never = num_bins - 1
    half = torch.tensor(_HALF, dtype=targets.dtype, device=targets.device)
    places = (targets / (targets + half * drafts) * never).to(torch.int32).clamp_(max=never - 1)
    bins = torch.where(drafts > 0, places, never)
    rows = torch.arange(count, device=targets.device, dtype=torch.int32)[:, None] * num_bins
    sums = torch.zeros(count * num_bins, 2, dtype=torch.float64, device=targets.device)
    weights = torch.stack((targets.double(), drafts.double()), -1).view(-1, 2)
    sums.index_add_(0, (bins + rows).view(-1), weights)
    return sums.view(count, num_bins, 2), bins


def _summed_on_cpu(
    targets: Any, drafts: Sequence[Any], draws: list[list[int]], num_bins: int
) -> tuple[Vector, Vector, Any]:
    """The same, a pass over each row."""
    import torch

    from mdsd_opt.device_laws.table_kernels import row_table

    sums = np.zeros((len(draws), num_bins, 2))
    drawn = np.empty((len(draws), 3, len(draws[0])))
    bins = np.empty(targets.shape, np.int16)
    for i, tokens in enumerate(draws):
        n, m = targets[i].numpy(), drafts[i].numpy()
        row_table(n, m, n.dtype.type(_HALF), bins[i], sums[i])
        drawn[i] = n[tokens], m[tokens], bins[i, tokens]
    return sums, drawn, torch.from_numpy(bins)


@cache
def _edges(num_bins: int) -> tuple[Vector, Vector]:
    """Bounds of n/m in each bin; of what is never drafted none."""
    ends = np.arange(num_bins) / (num_bins - 1)
    low = np.maximum(ends[:-1] - _ROUNDING, 0.0)
    high = np.minimum(ends[1:] + _ROUNDING, 1.0)
    with np.errstate(divide="ignore"):
        lowest, highest = _HALF * low / (1.0 - low), _HALF * high / (1.0 - high)
    return np.append(lowest, np.inf), np.append(highest, np.inf)
