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
    BLOCK_SIZE,
    DRAFT_PLACES,
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


class DecisionsWork:
    """Buffers for decisions on at most so many rows, and the launches that fill them.

    A call allocates nothing where it is given the buffers of what it finds. Calls overwrite what
    the one before has left.
    """

    def __init__(
        self, runtime: DeviceRuntime, num_drafts: int, max_rows: int, is_replaced: bool = True
    ) -> None:
        self.runtime, self.max_rows = runtime, max_rows
        self._num_drafts, self._is_race = np.int32(num_drafts), np.int32(not is_replaced)
        found = _kernels_for(is_replaced, num_drafts)
        self._tabling, self._grouping, self._drawing, num_sums, head_bytes, self._c = found
        row_bytes = 4 * num_sums * NUM_BINS + head_bytes + PLAN_RECORDS["RowPlan"]
        self._size = size = min(max(1, SCRATCH_BYTES // row_bytes), max_rows)
        self._tables = runtime.empty((size, num_sums, NUM_BINS), np.uint32)
        self._heads = runtime.empty((size, head_bytes // 8), np.uint64)
        self._row_plans = runtime.empty((size, PLAN_RECORDS["RowPlan"] // 8), np.uint64)
        token_words = PLAN_RECORDS["DraftedToken"] // 4
        self._drafted = runtime.empty((size, num_drafts, token_words), np.uint32)
        self._num_windows = runtime.empty((1,), np.uint32)
        self.is_bad = runtime.empty((max_rows,), np.int32)
        self._values = [np.int32(0)]  # exact sums
        if not is_replaced:
            self._values = [runtime.upload(np.array([num_drafts], np.int32)), np.int32(1)]

    def __call__(
        self,
        pair: Pair,
        drafts: Any,
        randomness: Randomness,
        found: RowTokens,
        uniforms: Any = None,
        first_row: int = 0,
        key: Any = None,
    ) -> None:
        """Launch the kernels, which fill the buffers of `found` that are there.

        `key`, of two numbers of 64 bits, holds the seed and the step in place of `randomness`.
        """
        c, size, launch = self._c, self._size, self.runtime.launch
        for run, arguments in pair.arguments():
            for start in range(run.start, run.stop, size):
                part = slice(start, min(start + size, run.stop))
                num_rows, types = part.stop - start, pair.types
                rows = [*arguments, np.int64(start - run.start)]
                made = [self._tables, self._heads, found.is_bad[part], self._num_windows]
                launch(self._tabling, types, num_rows, [*rows, *self._values, c, *made])
                read = [*rows, c, self._heads]
                own = [self._is_race, drafts[part], self._num_drafts, self._drafted]
                launch(DRAFTED_TOKENS, types, num_rows, [*read, *own])
                of_groups = [self._tables, self._heads, c, self._drafted, self._num_drafts]
                for kernel in self._grouping:
                    launch(kernel, types, num_rows, [*of_groups, self._row_plans])
                draws = [
                    None if uniforms is None else uniforms[part],
                    key,
                    np.uint64(randomness.seed),
                    np.uint64(first_row + start),
                    np.uint32(randomness.step),
                ]
                tokens = found.tokens[part]
                selected = [self._row_plans, self._drafted, self._num_drafts, *draws, tokens]
                launch(DRAFT_SELECTION, types, num_rows, selected)
                told = [x if x is None else x[part] for x in (found.rates, found.gaps)]
                drawn = [*read, self._row_plans, *draws, tokens, *told]
                launch(self._drawing, types, num_rows, drawn)

    def tell_places(self, drafts: Any, tokens: Any, places: Any, key: Any = None) -> None:
        """Launch what finds each token's first place among its row's drafts, -1 if it is none.

        The step of a `key` goes up by one: that is for the end of a decision.
        """
        num_rows = len(tokens)
        given = [drafts, self._num_drafts, tokens, np.int64(num_rows), places, key]
        blocks = max(1, -(-num_rows // BLOCK_SIZE))
        self.runtime.launch(DRAFT_PLACES, ("", ""), blocks, given)


def empty_tokens(runtime: DeviceRuntime, num_rows: int, with_rates: bool, is_bad: Any) -> RowTokens:
    """Buffers for decisions on so many rows."""
    tokens = runtime.empty((num_rows,), np.int64)
    told = (runtime.empty((num_rows,), np.float64) if with_rates else None for _ in range(2))
    return RowTokens(tokens, is_bad[:num_rows], *told)


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
    work = DecisionsWork(runtime, drafts.shape[1], pair.num_rows, is_replaced)
    found = empty_tokens(runtime, pair.num_rows, with_rates, work.is_bad)
    work(pair, drafts, randomness, found, uniforms, first_row)
    return found
