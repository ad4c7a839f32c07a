"""Acceptance rates by the kernels, on whatever engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.gpu.engine import Engine
from mdsd_opt.gpu.layout import DeviceLogits, Run, index_shape, num_rows, runs
from mdsd_opt.gpu.sources import WITH_REPLACEMENT

#: Keys of log-ratios are integers of so many bits, see `kernels/ratio_histogram.cuh`.
KEY_BITS = 23
BIN_BITS = 11

#: Numbers of drafts that one launch can take.
MAX_COUNTS = 8

#: Vocabularies the sums of a row can hold, and numbers of drafts the grid of ratios is made for.
MAX_VOCAB_SIZE = 1 << 22
MAX_DRAFTS = 1 << 10


@dataclass(frozen=True, slots=True, eq=False)
class RowRates:
    """Results of a batch, in the engine's memory.

    Attributes
    ----------
    rates : buffer of float64, shape (num_rows, num_counts)
    gaps : buffer of float64, shape (num_rows, num_counts)
        By how much each rate may at most be too high, for the weights it was computed from.
    is_bad : buffer of int32, shape (num_rows,)
        1 where a row is no distribution; its rates mean nothing.
    """

    rates: Any
    gaps: Any
    is_bad: Any


def weight_bits(vocab_size: int) -> int:
    """Bits of a weight's fraction: as many as keep the sum of a row below 2**63."""
    return min(44, 61 - math.ceil(math.log2(max(vocab_size, 2))))


def ratio_grid(vocab_size: int, most_drafts: int) -> tuple[np.float32, np.float32]:
    """Slope and offset that turn a log-ratio of weights into a key.

    A row's weights sum to between 1/2 and 2 V times the largest, so log-ratios of weights and of
    probabilities differ by at most log2(V) + 2. The grid ends above a ratio of K, which is never in
    the optimal prefix, and begins below 2**-21, where a whole bin gains nothing that counts.
    """
    margin = math.log2(vocab_size) + 2.0
    octaves = 21.0 + 2.0 * margin + math.log2(most_drafts)
    per_octave = min(64.0, (2**BIN_BITS - 1) / octaves)
    slope = per_octave * 2.0 ** (KEY_BITS - BIN_BITS)
    return np.float32(slope), np.float32(slope * (21.0 + margin))


def scale_arguments(scale: float) -> list[np.float32]:
    """log2(e) / T as a sum of two numbers of single precision."""
    high = np.float32(scale)
    return [high, np.float32(scale - float(high))]


def with_replacement(
    engine: Engine,
    target: DeviceLogits,
    draft: DeviceLogits,
    num_drafts: Sequence[int],
    target_scale: float,
    draft_scale: float,
    target_filters: Any = None,
    draft_filters: Any = None,
) -> RowRates:
    """Optimal acceptance rates of K drafts with replacement; at most `MAX_COUNTS` of them."""
    rows = num_rows(index_shape(target, draft))
    result = RowRates(
        engine.empty((rows, len(num_drafts)), np.float64),
        engine.empty((rows, len(num_drafts)), np.float64),
        engine.empty((rows,), np.int32),
    )
    vocab_size = target.vocab_size
    counts = engine.upload(np.array(num_drafts, np.int32))
    for run in runs(target, draft):
        part = slice(run.start, run.start + run.num_rows)
        engine.launch(
            WITH_REPLACEMENT,
            (target.dtype, draft.dtype),
            run.num_rows,
            [
                *row_arguments(run, vocab_size),
                *scale_arguments(target_scale),
                filters_of(target_filters, part),
                *scale_arguments(draft_scale),
                filters_of(draft_filters, part),
                *ratio_grid(vocab_size, max(num_drafts)),
                counts,
                np.int32(len(num_drafts)),
                result.rates[part],
                result.gaps[part],
                result.is_bad[part],
            ],
        )
    return result


def row_arguments(run: Run, vocab_size: int) -> list[Any]:
    """What every kernel takes first: where the rows are, their width, and the weights' bits."""
    return [
        *run.target_arguments(),
        *run.draft_arguments(),
        np.int64(run.inner),
        np.int32(vocab_size),
        np.int32(weight_bits(vocab_size)),
    ]


def filters_of(filters: Any, part: slice) -> Any:
    """Filters of some of the rows, or None."""
    return None if filters is None else filters[part]
