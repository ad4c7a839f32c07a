"""Acceptance rates by the kernels, on any runtime.

Tables of sums over bins of p/q, and the searches for the best prefix in them, in turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
    PACKED_FIXED_DRAFTS,
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


class RatesWork:
    """Buffers for the rates of at most so many rows, and the launches that fill them.

    A call allocates nothing where it is given the buffer of the rates, [rows, num_counts] of
    float64. Calls overwrite what the one before has left.
    """

    def __init__(self, runtime: DeviceRuntime, num_drafts: Sequence[int], max_rows: int) -> None:
        self.runtime, self.num_counts, self.max_rows = runtime, len(num_drafts), max_rows
        self.counts = [runtime.upload(np.array(num_drafts, np.int32)), np.int32(len(num_drafts))]
        self.is_bad = runtime.empty((max_rows,), np.int32)

    def __call__(self, pair: Pair, rates: Any = None) -> RowRates:
        """Launch the kernels; there are at most `max_rows` rows."""
        if rates is None:
            rates = self.runtime.empty((pair.num_rows, self.num_counts), np.float64)
        result = RowRates(rates, self._gaps(pair.num_rows), self.is_bad[: pair.num_rows])
        self._launch(pair, result)
        return result

    def _gaps(self, num_rows: int) -> Any:
        """Buffer for the gaps of these rows; None where there is nothing to search for."""
        return None

    def _launch(self, pair: Pair, result: RowRates) -> None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class PrefixSearch:
    """Kernels that find the best prefix, with the buffers that they write for each other.

    Tables are sums over the bins of rows, and over parts of those that stay open; searches look for
    the best prefix in either, each for its own numbers of drafts. `shape` is c of the bins, which
    are even in p / (p + c q).
    """

    tables: Kernel
    zoomed_tables: Kernel
    searches: tuple[Kernel, ...]
    zoomed_searches: tuple[Kernel, ...]
    num_sums: int  # numbers in a bin
    head_bytes: int  # of what is kept of a row
    window_bytes: int  # of what it leaves open
    shape: float
    in_pairs: int | None = None  # what tables take first of their own; None: the numbers of drafts

    @classmethod
    def with_replacement(cls, num_drafts: Sequence[int]) -> PrefixSearch:
        """For drafts with replacement."""
        # The rounding of q counts K times, that of ratios next to K is no matter with few drafts.
        many = max(num_drafts) >= 16
        return cls(
            RATIO_TABLES, ZOOMED_RATIO_TABLES, (BEST_PREFIX,), (BEST_ZOOMED_PREFIX,), num_sums=2,
            head_bytes=RATIO_RECORDS["RowHead"], window_bytes=RATIO_RECORDS["RatioWindow"],
            shape=4.0 if many else 2.0, in_pairs=int(not many),
        )  # fmt: skip

    @classmethod
    def without_replacement(cls, num_drafts: Sequence[int]) -> PrefixSearch:
        """For drafts without replacement."""
        smallest = bisect_left(RACE_VARIANTS, min(num_drafts))
        largest = bisect_left(RACE_VARIANTS, max(num_drafts)) + 1
        return cls(
            RACE_TABLES, ZOOMED_RACE_TABLES, BEST_RACE_PREFIXES[smallest:largest],
            BEST_ZOOMED_RACE_PREFIXES[smallest:largest], num_sums=5,
            head_bytes=RACE_RECORDS["RaceHead"], window_bytes=RACE_RECORDS["RaceWindow"],
            shape=max(2.0, max(num_drafts) / 2),
        )  # fmt: skip


class PrefixRates(RatesWork):
    """Rates by tables and best prefixes, and by both again for rows that stay open.

    `waits` tells how these are found. If it is true, the result waits for the device before it
    reads open rows once more: nothing is launched for rows that are settled. Else kernels are
    launched for as many windows as there may be, which end at once where nothing is open.
    """

    def __init__(
        self,
        runtime: DeviceRuntime,
        num_drafts: Sequence[int],
        max_rows: int,
        search: PrefixSearch,
        waits: bool = True,
    ) -> None:
        super().__init__(runtime, num_drafts, max_rows)
        self._search, self._waits = search, waits
        self._values = self.counts if search.in_pairs is None else [np.int32(search.in_pairs)]
        table_bytes = 4 * search.num_sums * NUM_BINS
        row_bytes = table_bytes + search.head_bytes + self.num_counts * search.window_bytes
        self._size = size = min(max(1, SCRATCH_BYTES // row_bytes), max_rows)
        self._num_tables = (
            size  # what is launched without a wait is launched once, if there is room
        )
        if not waits:
            self._num_tables = max(size, min(size * self.num_counts, SCRATCH_BYTES // table_bytes))
        self._tables = runtime.empty((self._num_tables, search.num_sums, NUM_BINS), np.uint32)
        self._heads = runtime.empty((size, search.head_bytes // 8), np.uint64)
        windows = runtime.empty((size * self.num_counts, search.window_bytes // 8), np.uint64)
        self._windows = [windows, runtime.empty((1,), np.uint32)]
        self._all_gaps = runtime.empty((max_rows, self.num_counts), np.float64)

    def _gaps(self, num_rows: int) -> Any:
        return self._all_gaps[:num_rows]

    def _launch(self, pair: Pair, result: RowRates) -> None:
        search, size, c = self._search, self._size, np.float32(self._search.shape)
        num_windows = self._windows[1]
        for run, arguments in pair.arguments():
            for start in range(run.start, run.stop, size):
                part = slice(start, min(start + size, run.stop))
                num_rows = part.stop - start
                rows = [*arguments, np.int64(start - run.start)]
                outputs = [result.first_rates[part], result.first_gaps[part]]
                result.settle_by(None)  # of the rows before, whose tables are overwritten now
                made = [self._tables, self._heads, result.is_bad[part], num_windows]
                given = [*rows, *self._values, c, *made]
                self.runtime.launch(search.tables, pair.types, num_rows, given)
                for kernel in search.searches:
                    read = [self._tables, self._heads, c, *self.counts, *outputs, *self._windows]
                    self.runtime.launch(kernel, pair.types, num_rows, read)
                most = num_rows * self.num_counts
                if self._waits:
                    result.settle_by(partial(self._zoom_counted, pair, rows, outputs, most))
                else:
                    self._zoom(pair, rows, outputs, most)

    def _zoom_counted(self, pair: Pair, rows: list[Any], outputs: list[Any], most: int) -> None:
        num_open = int(self.runtime.download(self._windows[1])[0])
        self._zoom(pair, rows, outputs, min(num_open, most))

    def _zoom(self, pair: Pair, rows: list[Any], outputs: list[Any], num_open: int) -> None:
        search, c = self._search, np.float32(self._search.shape)
        for first in range(0, num_open, self._num_tables):
            part = min(num_open - first, self._num_tables)
            place = [*self._windows, np.uint32(first)]
            read = [*rows, c, self._tables, self._heads, *place, np.uint32(part)]
            self.runtime.launch(search.zoomed_tables, pair.types, min(part, _NUM_ZOOMING), read)
            for kernel in search.zoomed_searches:
                given = [self._tables, self._heads, c, *self.counts, *outputs, *place]
                self.runtime.launch(kernel, pair.types, part, given)


class FixedDraftRates(RatesWork):
    """Rates of the K likeliest drafts; or of K - 1 of them, and one drawn from the rest."""

    def __init__(
        self, runtime: DeviceRuntime, num_drafts: Sequence[int], max_rows: int, is_greedy: bool
    ) -> None:
        super().__init__(runtime, num_drafts, max_rows)
        self._is_greedy = np.int32(is_greedy)
        self._is_open = runtime.empty((max_rows,), np.int32)

    def _launch(self, pair: Pair, result: RowRates) -> None:
        for kernel, runs in (
            (PACKED_FIXED_DRAFTS, pair.arguments()),
            (FIXED_DRAFTS, pair.exact_arguments()),
        ):
            for part, arguments in runs:
                outputs = [result.first_rates[part], result.is_bad[part], self._is_open[part]]
                given = [*arguments, self._is_greedy, *self.counts, *outputs]
                self.runtime.launch(kernel, pair.types, part.stop - part.start, given)


class RejectionRates(RatesWork):
    """Rates of two baselines by tables of ratios; of rows that these leave open by all weights."""

    def __init__(
        self, runtime: DeviceRuntime, num_drafts: Sequence[int], max_rows: int, is_kseq: bool
    ) -> None:
        super().__init__(runtime, num_drafts, max_rows)
        self._is_kseq = np.int32(is_kseq)
        head_bytes = RATIO_RECORDS["RowHead"]
        self._size = size = min(SCRATCH_BYTES // (8 * NUM_BINS + head_bytes), max_rows)
        self._tables = runtime.empty((size, 2, NUM_BINS), np.uint32)
        self._heads = runtime.empty((size, head_bytes // 8), np.uint64)
        self._no_windows = runtime.empty((1,), np.uint32)
        self._is_open = runtime.empty((max_rows,), np.int32)

    def _launch(self, pair: Pair, result: RowRates) -> None:
        c, launch = np.float32(2), self.runtime.launch
        given = [self._is_kseq, *self.counts]
        for run, arguments in pair.arguments():
            for start in range(run.start, run.stop, self._size):
                part = slice(start, min(start + self._size, run.stop))
                num_rows = part.stop - start
                rows = [*arguments, np.int64(start - run.start), np.int32(0)]  # exact sums
                made = [self._tables, self._heads, result.is_bad[part], self._no_windows]
                launch(RATIO_TABLES, pair.types, num_rows, [*rows, c, *made])
                found = [result.first_rates[part], self._is_open[part]]
                read = [self._tables, self._heads, c, *given, *found]
                launch(REJECTION_RATES, pair.types, num_rows, read)
        for part, arguments in pair.exact_arguments():
            found = [result.first_rates[part], self._is_open[part]]
            launch(REJECTION, pair.types, part.stop - part.start, [*arguments, *given, *found])


def prepared(
    runtime: DeviceRuntime, name: str, num_drafts: Sequence[int], max_rows: int, waits: bool = True
) -> RatesWork:
    """Work on rates by the kernels of a name, for at most `MAX_COUNTS` numbers of drafts.

    "with_replacement" and "without_replacement" are the optimum, of K up to `MAX_RACE_DRAFTS` in
    the second case; where K reaches the number of possible drafts, the rate is their probability.
    "greedy" is the optimum for the K - 1 likeliest drafts and one drawn from the rest, "top_k" for
    the K likeliest, K at most `most_fixed_drafts`; "rrs" and "kseq" are recursive rejection
    sampling and K-SEQ [SpecTr], drafts with replacement. `waits` is as for `PrefixRates`.
    """
    if name in ("greedy", "top_k"):
        return FixedDraftRates(runtime, num_drafts, max_rows, name == "greedy")
    if name in ("rrs", "kseq"):
        return RejectionRates(runtime, num_drafts, max_rows, name == "kseq")
    search = getattr(PrefixSearch, name)(num_drafts)
    return PrefixRates(runtime, num_drafts, max_rows, search, waits)


def _rates_of(name: str) -> Callable[[DeviceRuntime, Pair, Sequence[int]], RowRates]:
    def rates(runtime: DeviceRuntime, pair: Pair, num_drafts: Sequence[int]) -> RowRates:
        return prepared(runtime, name, num_drafts, pair.num_rows)(pair)

    return rates


#: Functions by the names that schemes and verifiers declare for a device, see `prepared`.
BY_NAME = {
    name: _rates_of(name)
    for name in ("with_replacement", "without_replacement", "greedy", "top_k", "kseq", "rrs")
}


def most_fixed_drafts(vocab_size: int, threads_per_row: int) -> int:
    """Largest K of "greedy" and "top_k": the likeliest tokens of a block must fit its memory.

    As many threads as there are likeliest tokens to be found may bring all of theirs.
    """
    per_thread = 4 * (1 + vocab_size // (4 * threads_per_row))
    return min(MAX_DRAFTS, _CANDIDATES // per_thread)


def most_drafts(name: str, vocab_size: int, threads_per_row: int) -> int:
    """Largest K that the kernels of a name take."""
    if name in ("greedy", "top_k"):
        return most_fixed_drafts(vocab_size, threads_per_row)
    return MAX_RACE_DRAFTS if name == "without_replacement" else MAX_DRAFTS
