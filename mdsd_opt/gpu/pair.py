"""Both sides of a batch as kernels take them, and what they write of its rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mdsd_opt.gpu.layout import DeviceLogits, index_shape, runs
from mdsd_opt.gpu.runtime import DeviceRuntime
from mdsd_opt.gpu.sources import TOKEN_FILTERS


def scale_arguments(scale: float) -> list[np.float32]:
    """log2(e) / T as a sum of two numbers of single precision."""
    high = np.float32(scale)
    return [high, np.float32(scale - float(high))]


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Both sides of a batch and how probabilities come from them.

    A scale is log2(e) divided by the temperature. Filters are buffers, one ``Filter`` of
    `kernels/logits.cuh` a row, of 8 bytes: tokens that are left out.
    """

    target: DeviceLogits
    draft: DeviceLogits
    target_scale: float
    draft_scale: float
    target_filters: Any = None
    draft_filters: Any = None

    @property
    def types(self) -> tuple[str, str]:
        return self.target.dtype, self.draft.dtype

    @property
    def num_rows(self) -> int:
        return math.prod(index_shape(self.target, self.draft))

    def arguments(self) -> Iterator[tuple[slice, list[Any]]]:
        """Rows that one launch can reach, and what every kernel takes first to work on them."""
        for part, places in runs(self.target, self.draft):
            arguments = [*places, np.int32(self.target.vocab_size)]
            for scale, filters in (
                (self.target_scale, self.target_filters),
                (self.draft_scale, self.draft_filters),
            ):
                arguments += [*scale_arguments(scale), None if filters is None else filters[part]]
            yield part, arguments

    def exact_arguments(self) -> Iterator[tuple[slice, list[Any]]]:
        """`arguments` of kernels with whole weights of 64 bits, which take the bits next.

        That is of a weight's fraction: as many as keep the sum of a row below 2**63.
        """
        bits = np.int32(min(44, 61 - math.ceil(math.log2(max(self.target.vocab_size, 2)))))
        return ((part, [*arguments, bits]) for part, arguments in self.arguments())


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """Which tokens are left in; see `mdsd_opt.softmax`."""

    target_one_hot: bool = False  # a temperature of zero
    draft_one_hot: bool = False
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None


def with_filters(runtime: DeviceRuntime, pair: Pair, settings: FilterSettings) -> Pair:
    """Leave out, on both sides, what the settings leave out."""
    filters = [runtime.empty((pair.num_rows, 2), np.float32) for _ in range(2)]
    top_k = settings.top_k
    values = [
        np.int32(settings.target_one_hot),
        np.int32(settings.draft_one_hot),
        np.int32(0 if top_k is None or top_k >= pair.target.vocab_size else top_k),
        np.float64(1.0 if settings.top_p is None else settings.top_p),
        np.float64(math.log2(settings.min_p) if settings.min_p else -math.inf),
    ]
    for part, arguments in pair.exact_arguments():
        outputs = [side[part] for side in filters]
        rows = part.stop - part.start
        runtime.launch(TOKEN_FILTERS, pair.types, rows, [*arguments, *values, *outputs])
    return replace(pair, target_filters=filters[0], draft_filters=filters[1])


@dataclass(frozen=True, slots=True, eq=False)
class RowRates:
    """Results of a batch, in the runtime's memory.

    `gaps` are by how much each rate may be off. What was left open by the bins is certain for the
    weights a rate was computed from; the 5e-7 for the rounding of these is what it was seen to come
    to.
    """

    rates: Any  # float64, shape (num_rows, num_counts)
    gaps: Any  # the same; None where there is nothing to search for
    is_bad: Any  # int32, shape (num_rows,): 1 for a row that is no distribution, of any rates
