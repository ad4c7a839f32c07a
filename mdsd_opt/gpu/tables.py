"""Tables of sums over bins of p/q, and the searches for the best prefix in them, in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.gpu.engine import Engine
from mdsd_opt.gpu.pair import Pair, RowRates
from mdsd_opt.gpu.sources import Kernel

#: Bins of a table, see `kernels/ratio_sums.cuh`.
NUM_BINS = 2048

#: Of tables and what belongs to them, at a time.
SCRATCH_BYTES = 64 << 20

#: Clusters that look after rows that a table leaves open.
_NUM_ZOOMING = 128


@dataclass(frozen=True, slots=True)
class PrefixSearch:
    """Kernels that find the best prefix, and what they write for each other.

    Attributes
    ----------
    tables, zoomed_tables : Kernel
        Sums over the bins of rows, and over parts of those that stay open.
    searches, zoomed_searches : tuple of Kernel
        What looks for the best prefix in either, each for its own numbers of drafts.
    num_sums : int
        Numbers in a bin.
    head_bytes, window_bytes : int
        Of what is kept of a row, and of what it leaves open.
    """

    tables: Kernel
    zoomed_tables: Kernel
    searches: tuple[Kernel, ...]
    zoomed_searches: tuple[Kernel, ...]
    num_sums: int
    head_bytes: int
    window_bytes: int


def best_prefixes(
    engine: Engine,
    pair: Pair,
    num_drafts: Sequence[int],
    search: PrefixSearch,
    shape: float,
    values: Sequence[Any],
    result: RowRates,
) -> None:
    """Rates of all rows: their tables, the best prefixes, and both again for what stays open.

    Parameters
    ----------
    shape : float
        c of the bins, which are even in p / (p + c q).
    values : sequence
        What the kernel that makes tables takes first of its own.
    result : RowRates
        Where they go.
    """
    num_counts = len(num_drafts)
    counts = [engine.upload(np.array(num_drafts, np.int32)), np.int32(num_counts)]
    c = np.float32(shape)
    table_bytes = 4 * search.num_sums * NUM_BINS
    row_bytes = table_bytes + search.head_bytes + num_counts * search.window_bytes
    size = min(max(1, SCRATCH_BYTES // row_bytes), pair.num_rows)
    tables = engine.empty((size, search.num_sums, NUM_BINS), np.uint32)
    heads = engine.empty((size, search.head_bytes // 8), np.uint64)
    windows = engine.empty((size * num_counts, search.window_bytes // 8), np.uint64)
    num_windows = engine.empty((1,), np.uint32)
    found = [windows, num_windows]
    chunks = (
        (run.start, slice(start, min(start + size, run.stop)), arguments)
        for run, arguments in pair.arguments()
        for start in range(run.start, run.stop, size)
    )
    for run_start, part, arguments in chunks:
        num_rows = part.stop - part.start
        rows = [*arguments, np.int64(part.start - run_start)]
        outputs = [result.rates[part], result.gaps[part]]

        def launch(kernel: Kernel, num_rows: int, *arguments: Any) -> None:
            engine.launch(kernel, pair.types, num_rows, arguments)

        made = [tables, heads, result.is_bad[part], num_windows]
        launch(search.tables, num_rows, *rows, *values, c, *made)
        for kernel in search.searches:
            launch(kernel, num_rows, tables, heads, c, *counts, *outputs, *found)
        for turn in range(num_counts):  # as many windows as there are tables
            first = np.uint32(turn * num_rows)
            launch(
                search.zoomed_tables,
                min(num_rows, _NUM_ZOOMING),
                *(*rows, c, tables, heads, *found, first, np.uint32(num_rows)),
            )
            for kernel in search.zoomed_searches:
                launch(kernel, num_rows, tables, heads, c, *counts, *outputs, *found, first)
