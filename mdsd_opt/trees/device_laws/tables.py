"""Tables of a position for the host: sums of both laws over bins of p/q.

They are `prefix_search.bins` of integer weights, whose sums are exact, whatever adds them. The ends
of t in each bin tell how far apart its ratios are. Drafts without replacement ask for the sums of a
race, too, which are made on the device.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, log2
from typing import Any, NamedTuple

import numpy as np

from mdsd_opt.base.array_types import Vector
from mdsd_opt.prefix_search import (
    HALF,
    NUM_BINS,
    Bins,
    RaceSums,
    race_sums_of_row,
    ratios_at,
    steps_of,
)
from mdsd_opt.trees.device_laws import transfers
from mdsd_opt.trees.device_laws.transfers import on_device, on_host

#: Distance by which the ends of t are moved apart, for three roundings of t in float32.
_ROUNDING = 5e-7

#: Sums and ends [n, B, 2]; token, n, m and bin of draws [n, 4, K]; races; bins [n, V], which stay.
_Summed = tuple[Vector, Vector, Vector, Sequence[Callable[[], RaceSums]], Any]


class DrawnToken(NamedTuple):
    """Facts about a token on the host: both probabilities, its bin, and the draft's weight."""

    p: float
    q: float
    bin: int
    weight: float


@dataclass(frozen=True, slots=True, eq=False)
class BinTable(Bins):
    """Both laws of a position by bins, in integer weights, and references to them.

    `target` makes its weights, shape (V,), when they are needed, as at a leaf few are; without
    drafts, `draft` and `bins` are None.
    """

    target: Callable[[], Any]
    draft: Any  # weights, shape (V,)
    bins: Any  # integers, shape (V,)
    draws: tuple[int, ...] = ()  # in draw order; -1 where no token was left
    at: dict[int, DrawnToken] = field(default_factory=dict)  # each token that was drawn

    def left(self, draws: Sequence[int]) -> float:
        """Integer weight of the draft that remains without these tokens."""
        return float(self.weights.sum()) - sum(
            self.at[token].weight for token in draws if token >= 0
        )


def bin_tables(
    targets: Any,
    drafts: Sequence[Any],
    draws: Any,
    num_drafts: Sequence[int],
    replaced: bool = True,
    num_bins: int = NUM_BINS,
) -> list[BinTable]:
    """Tables of some positions; one copy to the host.

    `targets`, shape (n, V), and `drafts`, n tensors of shape (V,), are integer weights. `draws`, of
    int64 and shape (n, K), are the tokens drawn at each position, -1 where none was left, of which
    `num_drafts` count; `replaced`: whether they were drawn with replacement.
    """
    summed = summed_on_cpu if transfers.is_host(targets.device) else summed_on_device
    sums, ends, drawn, races, bins = summed(targets, drafts, draws, num_drafts, replaced, num_bins)
    low, high = np.moveaxis(ends.astype(np.float64), -1, 0)  # of n/m; an empty bin has none
    lowest = ratios_at(np.maximum(low - _ROUNDING, 0.0))
    highest = ratios_at(np.minimum(high + _ROUNDING, 1.0))
    tables = []
    for i, count in enumerate(num_drafts):
        total = sums[i].sum(axis=0)
        scale = total[1] / total[0]
        at = {
            int(token): DrawnToken(n / total[0], m / total[1], int(place), m)
            for token, n, m, place in drawn[i, :, :count].T.tolist()
            if token >= 0
        }
        masses = np.ascontiguousarray((sums[i] / total).T)
        tables.append(BinTable(
            masses[0], masses[1], scale * lowest[i], scale * highest[i],
            sums[i, :, 1].copy(), None if replaced else races[i],
            partial(operator.getitem, targets, i), drafts[i], bins[i],
            tuple(drawn[i, 0, :count].astype(int).tolist()), at,
        ))  # fmt: skip
    return tables


def undrafted_table(weights: Callable[[], Any]) -> BinTable:
    """Table of a position without drafts: everything is in one bin."""
    one, none = np.ones(1), np.zeros(1)
    return BinTable(one, none, none, none, none, None, weights, None, None)


def summed_on_device(
    targets: Any, drafts: Sequence[Any], draws: Any, num_drafts: Sequence[int], replaced: bool,
    num_bins: int,
) -> _Summed:  # fmt: skip
    """Sums of some positions for the host, in one copy."""
    import torch

    rows = torch.stack(list(drafts))
    sums, ends, bins = sums_on_device(targets, rows, num_bins)
    at = draws.clamp(min=0)
    drawn = [draws.double(), *(array.gather(1, at).double() for array in (targets, rows, bins))]
    parts = [sums, ends, torch.stack(drawn, 1)]
    if not replaced:
        parts += race_sums_on_device(rows, bins, num_drafts, num_bins)
    one, two, three, *race = on_host(*parts)
    most = max(num_drafts)
    races = [partial(race_sums_of, most, *row) for row in zip(*race, strict=True)]
    return one, two, three, races, bins


def sums_on_device(targets: Any, drafts: Any, num_bins: int) -> tuple[Any, Any, Any]:
    """Sums and ends [n, B, 2] and bins [n, V] of two tensors [n, V], in any order."""
    import torch

    count = targets.shape[0]
    bins, ratios = bins_on_device(targets, drafts, num_bins)
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


def bins_on_device(targets: Any, drafts: Any, num_bins: int) -> tuple[Any, Any]:
    """Bins and t of the tokens of two tensors; any bin for NaN."""
    import torch

    never = num_bins - 1
    half = targets.new_full((), HALF)
    drafted = drafts > 0
    ratios = torch.where(drafted, targets / (targets + half * drafts), 0.0)
    places = (ratios * never).to(torch.int32).clamp_(min=0, max=never - 1)
    return torch.where(drafted, places, never), ratios


def summed_on_cpu(
    targets: Any, drafts: Sequence[Any], draws: Any, num_drafts: Sequence[int], replaced: bool,
    num_bins: int,
) -> _Summed:  # fmt: skip
    """Same as `summed_on_device`, by a pass over each row, and one more if a race is asked for."""
    import torch

    from mdsd_opt.prefix_search import row_table

    count = len(num_drafts)
    sums = np.zeros((count, num_bins, 2))
    ends = np.tile(np.array([1.0, 0.0], targets.numpy().dtype), (count, num_bins, 1))
    drawn = np.empty((count, 4, draws.shape[1]))
    bins = np.empty(targets.shape, np.int16)
    races = []
    for i, tokens in enumerate(draws.numpy()):
        n, m = targets[i].numpy(), drafts[i].numpy()
        row_table(n, m, steps_of(num_bins, n.dtype), bins[i], ends[i], sums[i])
        drawn[i] = tokens, n[tokens], m[tokens], bins[i, tokens]
        races.append(partial(race_sums_of_row, m, bins[i], num_drafts[i], num_bins))
    return sums, ends, drawn, races, torch.from_numpy(bins)


def race_sums_on_device(
    weights: Any, bins: Any, num_drafts: Sequence[int], num_bins: int
) -> tuple[Any, Any, Any]:
    """Sums of races of many rows in torch, for `race_sums_of` on the host.

    `weights` and `bins` have shape (n, V), `num_drafts` is K of every row, `num_bins` is B. Returns
    `slowest`, `others` and `unit`, shape (n, 3); moments, shape (n, B, MOMENTS), the first a sum of
    weights, the others rounded to integers in units of `_grain`, which is exact in whatever order
    they are added; weights and bins of heavy tokens, shape (n, 2, L), weight 0 where there is none.
    """
    import torch

    from mdsd_opt.prefix_search import MOMENTS, lightness, most_heavy

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
    """Power of two of which light tokens sum up to less than 2**53."""
    from mdsd_opt.prefix_search import lightness

    return 2.0 ** (ceil(log2(lightness(num_drafts))) - 51)


def race_sums_of(most_drafts: int, terms: Vector, sums: Vector, heavy: Vector) -> RaceSums:
    """Sums that `race_sums_on_device` gives for one row; `most_drafts` are those of all rows."""
    from mdsd_opt.prefix_search import COLUMNS, MOMENT

    num_bins, num_moments = sums.shape
    slowest, others, unit = terms.tolist()
    moments = np.zeros((num_bins, COLUMNS))
    moments[:, MOMENT] = sums[:, 0] / unit
    moments[:, MOMENT + 1 : MOMENT + num_moments] = sums[:, 1:] * _grain(most_drafts)
    first = np.full(num_bins, -1)
    positive = heavy[:, heavy[0] > 0.0]
    following = np.empty(positive.shape[1], np.int64)
    for i, place in enumerate(positive[1].astype(np.int64).tolist()):
        following[i], first[place] = first[place], i
    return RaceSums(slowest, others, unit, moments, (first, following, positive[0].copy()))
