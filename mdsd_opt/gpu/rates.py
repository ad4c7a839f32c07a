"""Acceptance rates by the kernels, on any runtime.

Tables of sums over bins of p/q, and the searches for the best prefix in them, in turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.gpu.pair import Pair, RowRates
from mdsd_opt.gpu.runtime import DeviceRuntime
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
    REJECTION_RATES,
    ZOOMED_RACE_TABLES,
    ZOOMED_RATIO_TABLES,
    Kernel,
)

#: Number of bins of a table, see `kernels/ratio_sums.cuh`.
NUM_BINS = 2048

#: Largest memory, in bytes, of tables and their companions at a time: room for a thousand plans of
#: decisions, as a launch for few rows leaves most of a device idle at its end.
SCRATCH_BYTES = 256 << 20

#: Number of clusters that look after the rows that a table leaves open.
_NUM_ZOOMING = 128

#: Largest number of values of K that one launch can take.
MAX_COUNTS = 8

#: Largest vocabulary that the sums of a row hold, and most drafts with replacement.
MAX_VOCAB_SIZE = 1 << 22

MAX_DRAFTS = 64

#: Largest number of drafts without replacement, with which the quadrature's error grows, see
#: `kernels/race_curve.cuh`.
MAX_RACE_DRAFTS = 32

#: Number of places for likeliest tokens in a block, see `kernels/likeliest.cuh`.
_CANDIDATES = 8192


@dataclass(frozen=True, slots=True)
class PrefixSearch:
    """Kernels that find the best prefix, with the buffers that they write for each other.

    Tables are sums over the bins of rows, and over parts of those that stay open; searches look for
    the best prefix in either, each for its own numbers of drafts.
    """

    tables: Kernel
    zoomed_tables: Kernel
    searches: tuple[Kernel, ...]
    zoomed_searches: tuple[Kernel, ...]
    num_sums: int  # numbers in a bin
    head_bytes: int  # of what is kept of a row
    window_bytes: int  # of what it leaves open


def best_prefixes(
    runtime: DeviceRuntime,
    pair: Pair,
    num_drafts: Sequence[int],
    search: PrefixSearch,
    shape: float,
    values: Sequence[Any],
    result: RowRates,
) -> None:
    """Rates of all rows, by tables and best prefixes, and by both again for rows that stay open.

    They go into `result`, which waits for the device before it reads open rows once more: nothing
    is launched for rows that are settled. `shape` is c of the bins, which are even in
    p / (p + c q); `values` are what the kernel that makes tables takes first of its own.
    """
    num_counts = len(num_drafts)
    counts = [runtime.upload(np.array(num_drafts, np.int32)), np.int32(num_counts)]
    c = np.float32(shape)
    table_bytes = 4 * search.num_sums * NUM_BINS
    row_bytes = table_bytes + search.head_bytes + num_counts * search.window_bytes
    size = min(max(1, SCRATCH_BYTES // row_bytes), pair.num_rows)
    tables = runtime.empty((size, search.num_sums, NUM_BINS), np.uint32)
    heads = runtime.empty((size, search.head_bytes // 8), np.uint64)
    windows = runtime.empty((size * num_counts, search.window_bytes // 8), np.uint64)
    num_windows = runtime.empty((1,), np.uint32)
    found = [windows, num_windows]
    chunks = (
        (run.start, slice(start, min(start + size, run.stop)), arguments)
        for run, arguments in pair.arguments()
        for start in range(run.start, run.stop, size)
    )
    for run_start, part, arguments in chunks:
        num_rows = part.stop - part.start
        rows = [*arguments, np.int64(part.start - run_start)]
        outputs = [result.first_rates[part], result.first_gaps[part]]

        def launch(kernel: Kernel, num_rows: int, *arguments: Any) -> None:
            runtime.launch(kernel, pair.types, num_rows, arguments)

        result.settle_by(None)  # of the rows before, whose tables are overwritten now
        made = [tables, heads, result.is_bad[part], num_windows]
        launch(search.tables, num_rows, *rows, *values, c, *made)
        for kernel in search.searches:
            launch(kernel, num_rows, tables, heads, c, *counts, *outputs, *found)

        def zoom(num_rows: int = num_rows, rows: Any = rows, outputs: Any = outputs) -> None:
            num_open = min(int(runtime.download(num_windows)[0]), num_rows * num_counts)
            for first in range(0, num_open, num_rows):  # as many windows as there are tables
                part = min(num_open - first, num_rows)
                place = [*found, np.uint32(first)]
                read = [*rows, c, tables, heads, *place, np.uint32(part)]
                runtime.launch(search.zoomed_tables, pair.types, min(part, _NUM_ZOOMING), read)
                for kernel in search.zoomed_searches:
                    given = [tables, heads, c, *counts, *outputs, *place]
                    runtime.launch(kernel, pair.types, part, given)

        result.settle_by(zoom)


_WITH_REPLACEMENT = PrefixSearch(
    RATIO_TABLES, ZOOMED_RATIO_TABLES, (BEST_PREFIX,), (BEST_ZOOMED_PREFIX,), num_sums=2,
    head_bytes=RATIO_RECORDS["RowHead"], window_bytes=RATIO_RECORDS["RatioWindow"],
)  # fmt: skip


def with_replacement(runtime: DeviceRuntime, pair: Pair, num_drafts: Sequence[int]) -> RowRates:
    """Optimal acceptance rates of K drafts with replacement; at most `MAX_COUNTS` of them."""
    result = _empty_rates(runtime, pair, num_drafts)
    # The rounding of q counts K times, that of ratios next to K is no matter with few drafts.
    many = max(num_drafts) >= 16
    shape, in_pairs = (4.0, np.int32(0)) if many else (2.0, np.int32(1))
    best_prefixes(runtime, pair, num_drafts, _WITH_REPLACEMENT, shape, (in_pairs,), result)
    return result


def without_replacement(runtime: DeviceRuntime, pair: Pair, num_drafts: Sequence[int]) -> RowRates:
    """Optimal acceptance rates of K drafts without replacement; at most `MAX_COUNTS` of them.

    K is at most `MAX_RACE_DRAFTS`. Where it reaches the number of possible drafts, the rate is
    their probability.
    """
    most = max(num_drafts)
    smallest = bisect_left(RACE_VARIANTS, min(num_drafts))
    largest = bisect_left(RACE_VARIANTS, most) + 1
    search = PrefixSearch(
        RACE_TABLES,
        ZOOMED_RACE_TABLES,
        BEST_RACE_PREFIXES[smallest:largest],
        BEST_ZOOMED_RACE_PREFIXES[smallest:largest],
        num_sums=5,
        head_bytes=RACE_RECORDS["RaceHead"],
        window_bytes=RACE_RECORDS["RaceWindow"],
    )
    result = _empty_rates(runtime, pair, num_drafts)
    counts = runtime.upload(np.array(num_drafts, np.int32)), np.int32(len(num_drafts))
    best_prefixes(runtime, pair, num_drafts, search, max(2.0, most / 2), counts, result)
    return result


def greedy(runtime: DeviceRuntime, pair: Pair, num_drafts: Sequence[int]) -> RowRates:
    """Optimal acceptance rates of the K - 1 likeliest drafts and one drawn from the rest.

    K is at most `most_fixed_drafts`.
    """
    return _by_fixed_drafts(runtime, pair, num_drafts, 1)


def top_k(runtime: DeviceRuntime, pair: Pair, num_drafts: Sequence[int]) -> RowRates:
    """Acceptance rates of the K likeliest drafts; K is at most `most_fixed_drafts`."""
    return _by_fixed_drafts(runtime, pair, num_drafts, 0)


def most_fixed_drafts(vocab_size: int, threads_per_row: int) -> int:
    """Largest K of `greedy` and `top_k`: the likeliest tokens of a block must fit its memory.

    As many threads as there are likeliest tokens to be found may bring all of theirs.
    """
    per_thread = 4 * (1 + vocab_size // (4 * threads_per_row))
    return min(MAX_DRAFTS, _CANDIDATES // per_thread)


def most_drafts(name: str, vocab_size: int, threads_per_row: int) -> int:
    """Largest K that the kernels of a name take."""
    if name in ("greedy", "top_k"):
        return most_fixed_drafts(vocab_size, threads_per_row)
    return MAX_RACE_DRAFTS if name == "without_replacement" else MAX_DRAFTS


def kseq(runtime: DeviceRuntime, pair: Pair, num_drafts: Sequence[int]) -> RowRates:
    """Acceptance rates of K-SEQ [SpecTr], drafts with replacement."""
    return _by_rejection(runtime, pair, num_drafts, np.int32(1))


def rrs(runtime: DeviceRuntime, pair: Pair, num_drafts: Sequence[int]) -> RowRates:
    """Acceptance rates of recursive rejection sampling, drafts with replacement."""
    return _by_rejection(runtime, pair, num_drafts, np.int32(0))


#: Functions by the names that schemes and verifiers declare for a device.
BY_NAME = {
    "with_replacement": with_replacement,
    "without_replacement": without_replacement,
    "greedy": greedy,
    "top_k": top_k,
    "kseq": kseq,
    "rrs": rrs,
}


def _by_fixed_drafts(
    runtime: DeviceRuntime, pair: Pair, num_drafts: Sequence[int], is_greedy: int
) -> RowRates:
    counts = runtime.upload(np.array(num_drafts, np.int32))
    result = _empty_rates(runtime, pair, num_drafts, has_gaps=False)
    for part, arguments in pair.exact_arguments():
        outputs = [result.first_rates[part], result.is_bad[part]]
        given = [*arguments, np.int32(is_greedy), counts, np.int32(len(num_drafts)), *outputs]
        runtime.launch(FIXED_DRAFTS, pair.types, part.stop - part.start, given)
    return result


def _by_rejection(
    runtime: DeviceRuntime, pair: Pair, num_drafts: Sequence[int], is_kseq: np.int32
) -> RowRates:
    """Rates by the tables of `with_replacement`; of rows that these leave open by all weights."""
    counts = [runtime.upload(np.array(num_drafts, np.int32)), np.int32(len(num_drafts))]
    result = _empty_rates(runtime, pair, num_drafts, has_gaps=False)
    is_open = runtime.empty((pair.num_rows,), np.int32)
    c, head_bytes = np.float32(2), RATIO_RECORDS["RowHead"]
    size = min(SCRATCH_BYTES // (8 * NUM_BINS + head_bytes), pair.num_rows)
    tables = runtime.empty((size, 2, NUM_BINS), np.uint32)
    heads = runtime.empty((size, head_bytes // 8), np.uint64)
    no_windows = runtime.empty((1,), np.uint32)
    for run, arguments in pair.arguments():
        for start in range(run.start, run.stop, size):
            part = slice(start, min(start + size, run.stop))

            def launch(kernel: Kernel, *given: Any, num_rows: int = part.stop - start) -> None:
                runtime.launch(kernel, pair.types, num_rows, given)

            rows = [*arguments, np.int64(start - run.start), np.int32(0)]  # exact sums
            launch(RATIO_TABLES, *rows, c, tables, heads, result.is_bad[part], no_windows)
            found = [result.first_rates[part], is_open[part]]
            launch(REJECTION_RATES, tables, heads, c, is_kseq, *counts, *found)
    for part, arguments in pair.exact_arguments():
        given = [*arguments, is_kseq, *counts, result.first_rates[part], is_open[part]]
        runtime.launch(REJECTION, pair.types, part.stop - part.start, given)
    return result


def _empty_rates(
    runtime: DeviceRuntime, pair: Pair, num_drafts: Sequence[int], has_gaps: bool = True
) -> RowRates:
    shape = (pair.num_rows, len(num_drafts))
    gaps = runtime.empty(shape, np.float64) if has_gaps else None
    return RowRates(runtime.empty(shape, np.float64), gaps, runtime.empty(shape[:1], np.int32))
