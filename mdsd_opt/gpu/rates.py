"""Acceptance rates by the kernels, on whatever engine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mdsd_opt.gpu.engine import Engine
from mdsd_opt.gpu.layout import DeviceLogits, index_shape, num_rows, runs
from mdsd_opt.gpu.sources import (
    BEST_PREFIX,
    BEST_RACE_PREFIXES,
    BEST_ZOOMED_PREFIX,
    BEST_ZOOMED_RACE_PREFIXES,
    FIXED_DRAFTS,
    RACE_RECORDS,
    RACE_TABLES,
    RACE_VARIANTS,
    RATIO_RECORDS,
    RATIO_TABLES,
    REJECTION,
    TOKEN_FILTERS,
    ZOOMED_RACE_TABLES,
    ZOOMED_RATIO_TABLES,
    Kernel,
)
from mdsd_opt.gpu.tables import PrefixSearch, best_prefixes

#: Numbers of drafts that one launch can take.
MAX_COUNTS = 8

#: Vocabularies the sums of a row can hold, and drafts with replacement that kernels have room for.
MAX_VOCAB_SIZE = 1 << 22
MAX_DRAFTS = 64

#: Drafts without replacement: the error of the quadrature grows with them, see
#: `kernels/race_curve.cuh`.
MAX_RACE_DRAFTS = 32

#: Places for likeliest tokens in a block, see `kernels/likeliest.cuh`.
_CANDIDATES = 8192


_WITH_REPLACEMENT = PrefixSearch(
    RATIO_TABLES,
    ZOOMED_RATIO_TABLES,
    (BEST_PREFIX,),
    (BEST_ZOOMED_PREFIX,),
    num_sums=2,
    head_bytes=RATIO_RECORDS["RowHead"],
    window_bytes=RATIO_RECORDS["RatioWindow"],
)


@dataclass(frozen=True, slots=True, eq=False)
class RowRates:
    """Results of a batch, in the engine's memory.

    Attributes
    ----------
    rates : buffer of float64, shape (num_rows, num_counts)
    gaps : buffer of float64, shape (num_rows, num_counts), or None
        By how much each rate may be off; None where there is nothing to search for. What was left
        open by the bins is certain for the weights a rate was computed from; the 5e-7 for the
        rounding of these is what it was seen to come to.
    is_bad : buffer of int32, shape (num_rows,)
        1 where a row is no distribution; its rates mean nothing.
    """

    rates: Any
    gaps: Any
    is_bad: Any


def weight_bits(vocab_size: int) -> int:
    """Bits of a weight's fraction: as many as keep the sum of a row below 2**63."""
    return min(44, 61 - math.ceil(math.log2(max(vocab_size, 2))))


def scale_arguments(scale: float) -> list[np.float32]:
    """log2(e) / T as a sum of two numbers of single precision."""
    high = np.float32(scale)
    return [high, np.float32(scale - float(high))]


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Both sides of a batch and how probabilities come from them.

    Attributes
    ----------
    target, draft : DeviceLogits
    target_scale, draft_scale : float
        log2(e) divided by the temperature.
    target_filters, draft_filters : buffer or None
        One ``Filter`` of `kernels/logits.cuh` a row, of 8 bytes: tokens that are left out.
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
        return num_rows(index_shape(self.target, self.draft))

    def arguments(self) -> Iterator[tuple[slice, list[Any]]]:
        """Rows that one launch can reach, and what every kernel takes first to work on them."""
        for run in runs(self.target, self.draft):
            part = slice(run.start, run.start + run.num_rows)
            yield (
                part,
                [
                    *run.target_arguments(),
                    *run.draft_arguments(),
                    np.int64(run.inner),
                    np.int32(self.target.vocab_size),
                    *scale_arguments(self.target_scale),
                    _part(self.target_filters, part),
                    *scale_arguments(self.draft_scale),
                    _part(self.draft_filters, part),
                ],
            )

    def exact_arguments(self) -> Iterator[tuple[slice, list[Any]]]:
        """The same for kernels with whole weights of 64 bits, which take the bits next."""
        bits = np.int32(weight_bits(self.target.vocab_size))
        return ((part, [*arguments, bits]) for part, arguments in self.arguments())


def _part(buffer: Any, part: slice) -> Any:
    return None if buffer is None else buffer[part]


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """Which tokens are left in; see `mdsd_opt.softmax`.

    Attributes
    ----------
    target_one_hot, draft_one_hot : bool
        A temperature of zero.
    top_k : int or None
    top_p, min_p : float or None
    """

    target_one_hot: bool = False
    draft_one_hot: bool = False
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None


def with_filters(engine: Engine, pair: Pair, settings: FilterSettings) -> Pair:
    """Leave out, on both sides, what the settings leave out."""
    filters = [engine.empty((pair.num_rows, 2), np.float32) for _ in range(2)]
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
        engine.launch(TOKEN_FILTERS, pair.types, rows, [*arguments, *values, *outputs])
    return replace(pair, target_filters=filters[0], draft_filters=filters[1])


def with_replacement(engine: Engine, pair: Pair, num_drafts: Sequence[int]) -> RowRates:
    """Optimal acceptance rates of K drafts with replacement; at most `MAX_COUNTS` of them."""
    result = _empty_rates(engine, pair, num_drafts)
    # The rounding of q counts K times, that of ratios next to K is no matter with few drafts.
    many = max(num_drafts) >= 16
    shape, in_pairs = (4.0, np.int32(0)) if many else (2.0, np.int32(1))
    best_prefixes(engine, pair, num_drafts, _WITH_REPLACEMENT, shape, (in_pairs,), result)
    return result


def without_replacement(engine: Engine, pair: Pair, num_drafts: Sequence[int]) -> RowRates:
    """Optimal acceptance rates of K drafts without replacement; at most `MAX_COUNTS` of them.

    K is at most `MAX_RACE_DRAFTS`. Where it reaches the number of possible drafts, the rate is
    their probability.
    """
    most = max(num_drafts)
    largest = [variant >= most for variant in RACE_VARIANTS].index(True) + 1
    smallest = [variant >= min(num_drafts) for variant in RACE_VARIANTS].index(True)
    search = PrefixSearch(
        RACE_TABLES,
        ZOOMED_RACE_TABLES,
        BEST_RACE_PREFIXES[smallest:largest],
        BEST_ZOOMED_RACE_PREFIXES[smallest:largest],
        num_sums=5,
        head_bytes=RACE_RECORDS["RaceHead"],
        window_bytes=RACE_RECORDS["RaceWindow"],
    )
    result = _empty_rates(engine, pair, num_drafts)
    counts = engine.upload(np.array(num_drafts, np.int32)), np.int32(len(num_drafts))
    best_prefixes(engine, pair, num_drafts, search, max(2.0, most / 2), counts, result)
    return result


def greedy(engine: Engine, pair: Pair, num_drafts: Sequence[int]) -> RowRates:
    """Optimal acceptance rates of the K - 1 likeliest drafts and one drawn from the rest.

    K is at most `most_fixed_drafts`.
    """
    return _without_gaps(engine, pair, num_drafts, FIXED_DRAFTS, 1)


def top_k(engine: Engine, pair: Pair, num_drafts: Sequence[int]) -> RowRates:
    """Acceptance rates of the K likeliest drafts; K is at most `most_fixed_drafts`."""
    return _without_gaps(engine, pair, num_drafts, FIXED_DRAFTS, 0)


def most_fixed_drafts(vocab_size: int, threads_per_row: int) -> int:
    """Largest K of `greedy` and `top_k`: the likeliest tokens of a block must fit its memory.

    As many threads as there are likeliest tokens to be found may bring all of theirs.
    """
    per_thread = 4 * (1 + vocab_size // (4 * threads_per_row))
    return min(MAX_DRAFTS, _CANDIDATES // per_thread)


def kseq(engine: Engine, pair: Pair, num_drafts: Sequence[int]) -> RowRates:
    """Acceptance rates of K-SEQ [SpecTr], drafts with replacement."""
    return _without_gaps(engine, pair, num_drafts, REJECTION, 1)


def rrs(engine: Engine, pair: Pair, num_drafts: Sequence[int]) -> RowRates:
    """Acceptance rates of recursive rejection sampling, drafts with replacement."""
    return _without_gaps(engine, pair, num_drafts, REJECTION, 0)


def _without_gaps(
    engine: Engine, pair: Pair, num_drafts: Sequence[int], kernel: Kernel, variant: int
) -> RowRates:
    counts = engine.upload(np.array(num_drafts, np.int32))
    result = _empty_rates(engine, pair, num_drafts, has_gaps=False)
    for part, arguments in pair.exact_arguments():
        outputs = [result.rates[part], result.is_bad[part]]
        engine.launch(
            kernel,
            pair.types,
            part.stop - part.start,
            [*arguments, np.int32(variant), counts, np.int32(len(num_drafts)), *outputs],
        )
    return result


def _empty_rates(
    engine: Engine, pair: Pair, num_drafts: Sequence[int], has_gaps: bool = True
) -> RowRates:
    shape = (pair.num_rows, len(num_drafts))
    gaps = engine.empty(shape, np.float64) if has_gaps else None
    return RowRates(engine.empty(shape, np.float64), gaps, engine.empty(shape[:1], np.int32))
