"""The sums that a race of drafts without replacement asks for, made on the device."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.prefix_search.bins import RaceSums

Vector = NDArray[np.float64]


def race_sums_on_device(
    weights: Any, bins: Any, num_drafts: Sequence[int], num_bins: int
) -> tuple[Any, Any, Any]:
    """Of many rows in torch, for `race_sums_of` on the host.

    Parameters
    ----------
    weights, bins : tensor, shape (n, V)
    num_drafts : sequence of int
        K of every row.
    num_bins : int
        B.

    Returns
    -------
    terms : tensor, shape (n, 3)
        `slowest`, `others` and `unit`.
    moments : tensor, shape (n, B, MOMENTS)
        The first is a sum of weights, the others are rounded to integers in units of `_grain`:
        that is exact, in whatever order they are added.
    heavy : tensor, shape (n, 2, L)
        Weights and bins of heavy tokens; weight 0 where there is none.
    """
    import torch

    from mdsd_opt.decoding.device_laws.transfers import on_device
    from mdsd_opt.prefix_search.race_kernels import MOMENTS, lightness, most_heavy

    count, vocab_size = weights.shape
    most = max(num_drafts)
    top, at = weights.topk(most_heavy(vocab_size, most), -1)
    top = top.double()
    total = weights.sum(-1, keepdim=True, dtype=torch.float64)
    heaviest = torch.nn.functional.pad(top.cumsum(-1), (1, 0))
    fewer = on_device([[min(k - 1, vocab_size)] for k in num_drafts], weights.device)
    slowest = total - heaviest.gather(-1, fewer)
    unit = slowest / on_device([[lightness(k)] for k in num_drafts], weights.device).double()
    is_light = weights <= unit
    share = torch.where(is_light, weights / unit, 0.0)
    power = share
    columns = [torch.where(is_light, weights, 0.0).double()]
    for _ in range(1, MOMENTS):
        power = power * share
        columns.append((power / _grain(most)).round_())
    rows = torch.arange(count, device=weights.device, dtype=torch.int32)[:, None] * num_bins
    sums = weights.new_zeros((count * num_bins, MOMENTS), dtype=torch.float64)
    sums.index_add_(0, (bins + rows).view(-1), torch.stack(columns, -1).view(-1, MOMENTS))
    heavy = torch.stack((torch.where(top > unit, top, 0.0), bins.gather(-1, at).double()), 1)
    terms = torch.cat((slowest, total - top[:, :1], unit), -1)
    return terms, sums.view(count, num_bins, MOMENTS), heavy


def _grain(num_drafts: int) -> float:
    """A power of two: light tokens sum up to less than 2**53 of it."""
    from mdsd_opt.prefix_search.race_kernels import lightness

    return 2.0 ** (ceil(log2(lightness(num_drafts))) - 51)


def race_sums_of(most_drafts: int, terms: Vector, sums: Vector, heavy: Vector) -> RaceSums:
    """What `race_sums_on_device` gives of one row; `most_drafts` are those of all rows."""
    from mdsd_opt.prefix_search.race_group_kernels import COLUMNS, MOMENT

    num_bins, num_moments = sums.shape
    slowest, others, unit = terms.tolist()
    moments = np.zeros((num_bins, COLUMNS))
    moments[:, MOMENT] = sums[:, 0] / unit
    moments[:, MOMENT + 1 : MOMENT + num_moments] = sums[:, 1:] * _grain(most_drafts)
    first = np.full(num_bins, -1)
    kept = heavy[:, heavy[0] > 0.0]
    following = np.empty(kept.shape[1], np.int64)
    for i, place in enumerate(kept[1].astype(np.int64).tolist()):
        following[i], first[place] = first[place], i
    return RaceSums(slowest, others, unit, moments, (first, following, kept[0].copy()))
