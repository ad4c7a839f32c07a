r"""What the host is told of a position: sums of both laws over bins of p/q.

Bins are even in :math:`t = n / (n + 2 m)`, n and m the integer weights of target and draft; one
more holds the tokens that are never drafted. The sums are exact, whatever adds them; the ends of t
in each bin tell how far apart its ratios are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

#: Of one position, the bin of what is never drafted among them.
NUM_BINS = 2048

#: n/m in the middle of the bins: where p/q is near 1 they are narrow on both sides.
_HALF = 2.0

#: By how much the ends of t are moved apart, for the roundings of t in float32: three of them.
_ROUNDING = 5e-7


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
    sums, ends, drawn, bins = summed(targets, drafts, padded, num_bins)
    lowest, highest = _ratios(ends)
    found = []
    for i, row in enumerate(padded):
        total = sums[i].sum(axis=0)
        scale = total[1] / total[0]
        p, q = drawn[i, :2] / total[:, np.newaxis]
        at = dict(zip(row, zip(p, q, drawn[i, 2].astype(np.int64), strict=True), strict=True))
        masses = np.ascontiguousarray((sums[i] / total).T)
        weights = partial(operator.getitem, targets, i)
        low, high = scale * lowest[i], scale * highest[i]
        found.append(BinTable(masses[0], masses[1], low, high, weights, drafts[i], bins[i], at))
    return found


def undrafted_table(weights: Callable[[], Any]) -> BinTable:
    """Of a position without drafts: everything is in one bin."""
    one, none = np.ones(1), np.zeros(1)
    return BinTable(one, none, none, none, weights, None, None, {})


def _summed_on_device(
    targets: Any, drafts: Sequence[Any], draws: list[list[int]], num_bins: int
) -> tuple[Vector, Vector, Vector, Any]:
    """Sums and ends [n, B, 2]; n, m and bin of draws [n, 3, K]; bins [n, V], which stay there."""
    import torch

    rows = torch.stack(list(drafts))
    sums, ends, bins = sums_on_device(targets, rows, num_bins)
    tokens = torch.as_tensor(draws, device=targets.device)
    drawn = torch.stack([array.gather(1, tokens).double() for array in (targets, rows, bins)], 1)
    parts = (sums, ends.double(), drawn)
    packed = torch.cat([part.flatten() for part in parts]).cpu().numpy()
    stops = np.cumsum([part.numel() for part in parts])[:-1]
    shaped = zip(np.split(packed, stops), parts, strict=True)
    one, two, three = (array.reshape(part.shape) for array, part in shaped)
    return one, two, three, bins


def sums_on_device(targets: Any, drafts: Any, num_bins: int) -> tuple[Any, Any, Any]:
    """Sums and ends [n, B, 2] and bins [n, V] of two tensors [n, V], in any order."""
    import torch

    count = targets.shape[0]
    never = num_bins - 1
    half = torch.tensor(_HALF, dtype=targets.dtype, device=targets.device)
    drafted = drafts > 0
    ratios = torch.where(drafted, targets / (targets + half * drafts), 0.0)
    places = (ratios * never).to(torch.int32).clamp_(max=never - 1)
    bins = torch.where(drafted, places, never)
    rows = torch.arange(count, device=targets.device, dtype=torch.int32)[:, None] * num_bins
    sums = torch.zeros(count * num_bins, 2, dtype=torch.float64, device=targets.device)
    weights = torch.stack((targets.double(), drafts.double()), -1).view(-1, 2)
    index = (bins + rows).view(-1)
    sums.index_add_(0, index, weights)
    ends = [
        torch.full(
            (count * num_bins,), start, dtype=ratios.dtype, device=ratios.device
        ).scatter_reduce_(0, index.long(), ratios.view(-1), reduction)
        for start, reduction in ((1.0, "amin"), (0.0, "amax"))
    ]
    shape = (count, num_bins, 2)
    return sums.view(shape), torch.stack(ends, -1).view(shape), bins


def _summed_on_cpu(
    targets: Any, drafts: Sequence[Any], draws: list[list[int]], num_bins: int
) -> tuple[Vector, Vector, Vector, Any]:
    """The same, a pass over each row."""
    import torch

    from mdsd_opt.device_laws.table_kernels import row_table

    sums = np.zeros((len(draws), num_bins, 2))
    ends = np.tile(np.array([1.0, 0.0], targets.numpy().dtype), (len(draws), num_bins, 1))
    drawn = np.empty((len(draws), 3, len(draws[0])))
    ratios = np.empty(1024, ends.dtype)
    bins = np.empty(targets.shape, np.int16)
    for i, tokens in enumerate(draws):
        n, m = targets[i].numpy(), drafts[i].numpy()
        row_table(n, m, n.dtype.type(_HALF), bins[i], ends[i], sums[i], ratios)
        drawn[i] = n[tokens], m[tokens], bins[i, tokens]
    return sums, ends, drawn, torch.from_numpy(bins)


def _ratios(ends: Vector) -> tuple[Vector, Vector]:
    """Bounds of n/m in each bin, [n, B] both; of an empty bin none."""
    low = np.maximum(ends[..., 0].astype(np.float64) - _ROUNDING, 0.0)
    high = np.minimum(ends[..., 1].astype(np.float64) + _ROUNDING, 1.0)
    with np.errstate(divide="ignore"):
        return _HALF * low / (1.0 - low), _HALF * high / (1.0 - high)
