"""Decisions of the optimal verifier by the kernels, on any runtime."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.gpu.pair import Pair
from mdsd_opt.gpu.philox import Randomness
from mdsd_opt.gpu.rates import NUM_BINS, SCRATCH_BYTES
from mdsd_opt.gpu.runtime import DeviceRuntime
from mdsd_opt.gpu.sources import (
    DRAFT_SELECTION,
    DRAFTED_TOKENS,
    PLAN_RECORDS,
    RACE_GROUPS,
    RACE_RECORDS,
    RACE_RESIDUAL_TOKENS,
    RACE_TABLES,
    RACE_VARIANTS,
    RATIO_GROUPS,
    RATIO_RECORDS,
    RATIO_TABLES,
    RESIDUAL_TOKENS,
    Kernel,
)


@dataclass(frozen=True, slots=True, eq=False)
class RowTokens:
    """Decisions of a batch, in the runtime's memory: buffers of shape (num_rows,).

    `rates`, of float64, are the probability that the selected draft is accepted, and `gaps` how
    much higher the optimum is at most, for the weights they were computed from.
    """

    tokens: Any  # int64; -1 for a row that is no distribution
    is_bad: Any  # int32; 1 where a row is no distribution
    rates: Any = None
    gaps: Any = None


def _kernels_for(
    is_replaced: bool, num_drafts: int
) -> tuple[Kernel, tuple[Kernel, ...], Kernel, int, int, np.float32]:
    """Kernels for tables of rows, for groups of bins and for the residual, with three numbers.

    Groups have a kernel for some numbers of drafts each. The numbers are those in a bin, the bytes
    of what is kept of a row, and c of the bins, which are even in p / (p + c q).
    """
    if is_replaced:
        c, head_bytes = np.float32(4 if num_drafts >= 16 else 2), RATIO_RECORDS["RowHead"]
        return RATIO_TABLES, (RATIO_GROUPS,), RESIDUAL_TOKENS, 2, head_bytes, c
    largest = bisect_left(RACE_VARIANTS, num_drafts) + 1
    c, head_bytes = np.float32(max(2.0, num_drafts / 2)), RACE_RECORDS["RaceHead"]
    return RACE_TABLES, RACE_GROUPS[:largest], RACE_RESIDUAL_TOKENS, 5, head_bytes, c


def verify_rows(
    runtime: DeviceRuntime,
    pair: Pair,
    drafts: Any,
    randomness: Randomness,
    uniforms: Any = None,
    first_row: int = 0,
    with_rates: bool = False,
    is_replaced: bool = True,
) -> RowTokens:
    """Decisions by the kernels for every row.

    `drafts`, contiguous int64 of shape (num_rows, K), were drawn from q, with replacement or not,
    in draw order; -1 where there is none. `uniforms`, contiguous float64 of shape (num_rows, 4),
    are in the order of `mdsd_opt.verifiers.Uniforms`, in place of `randomness`, for which
    `first_row` is the number of the first row. Rates and gaps cost one more pass over rows that
    accept.
    """
    num_drafts = np.int32(drafts.shape[1])
    tabling, grouping, drawing, num_sums, head_bytes, c = _kernels_for(is_replaced, drafts.shape[1])
    shape = (pair.num_rows,)
    result = RowTokens(
        runtime.empty(shape, np.int64),
        runtime.empty(shape, np.int32),
        *(runtime.empty(shape, np.float64) if with_rates else None for _ in range(2)),
    )
    row_bytes = 4 * num_sums * NUM_BINS + head_bytes + PLAN_RECORDS["RowPlan"]
    size = min(max(1, SCRATCH_BYTES // row_bytes), pair.num_rows)
    tables = runtime.empty((size, num_sums, NUM_BINS), np.uint32)
    heads = runtime.empty((size, head_bytes // 8), np.uint64)
    row_plans = runtime.empty((size, PLAN_RECORDS["RowPlan"] // 8), np.uint64)
    drafted = runtime.empty((size, drafts.shape[1], PLAN_RECORDS["DraftedToken"] // 4), np.uint32)
    num_windows = runtime.empty((1,), np.uint32)
    is_race = np.int32(not is_replaced)
    if is_race:
        values: list[Any] = [runtime.upload(np.array([num_drafts])), np.int32(1)]
    else:
        values = [np.int32(0)]  # exact sums
    for run, arguments in pair.arguments():
        for start in range(run.start, run.stop, size):
            part = slice(start, min(start + size, run.stop))
            rows = [*arguments, np.int64(start - run.start)]

            def launch(kernel: Kernel, *arguments: Any, num_rows: int = part.stop - start) -> None:
                runtime.launch(kernel, pair.types, num_rows, arguments)

            made = [tables, heads, result.is_bad[part], num_windows]
            launch(tabling, *rows, *values, c, *made)
            read = [*rows, c, heads]
            launch(DRAFTED_TOKENS, *read, is_race, drafts[part], num_drafts, drafted)
            for kernel in grouping:
                launch(kernel, tables, heads, c, drafted, num_drafts, row_plans)
            draws = [
                None if uniforms is None else uniforms[part],
                np.uint64(randomness.seed),
                np.uint64(first_row + start),
                np.uint32(randomness.step),
            ]
            tokens = result.tokens[part]
            launch(DRAFT_SELECTION, row_plans, drafted, num_drafts, *draws, tokens)
            outputs = [x if x is None else x[part] for x in (result.rates, result.gaps)]
            launch(drawing, *read, row_plans, *draws, tokens, *outputs)
    return result
