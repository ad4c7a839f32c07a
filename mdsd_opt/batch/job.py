"""A batch, cut into tasks for threads.

The kernels release the GIL, so threads are all it takes. They are made anew for every call, which
costs a fraction of a millisecond and leaves nothing behind; calls from several threads at once do
not know of each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.batch.row_functions import RowFunction
from mdsd_opt.batch.rows import LogitRows, Sampling, common_dtype, paired_rows
from mdsd_opt.progress import progress_bar

#: Tokens a thread takes at once: some milliseconds of work, little enough to be shared evenly.
_TOKENS_PER_TASK = 1 << 20

#: Batches of fewer tokens are not worth a thread.
_TOKENS_PER_THREAD = 1 << 16


@dataclass(frozen=True, slots=True)
class Job:
    """What to compute of every row; all but the rows themselves."""

    row_function: RowFunction
    num_drafts: tuple[int, ...]
    target_sampling: Sampling
    draft_sampling: Sampling
    num_threads: int
    progress: bool
    pad: bool

    def rates(
        self, target_logits: Any, draft_logits: Any, origin: tuple[int, ...] | None = None
    ) -> NDArray[np.float64]:
        """Rates of all rows, shape (..., len(num_drafts))."""
        target, draft = paired_rows(
            target_logits, draft_logits, self.target_sampling, self.draft_sampling, self.pad, origin
        )
        rates = np.empty((math.prod(target.index_shape), len(self.num_drafts)))
        tasks = self._tasks(rates.shape[0], max(target.vocab_size, draft.vocab_size))
        dtype = common_dtype(target, draft)

        def run(rows: range) -> int:
            self._run(target, draft, dtype, rows, rates)
            return len(rows)

        with progress_bar("acceptance rates", rates.shape[0], self.progress) as advance:
            for done in self._completed(run, tasks):
                advance(done)
        return rates.reshape(*target.index_shape, len(self.num_drafts))

    def _tasks(self, num_rows: int, vocab_size: int) -> list[range]:
        size = max(1, _TOKENS_PER_TASK // vocab_size)
        if self.num_threads > 1:
            evenly = math.ceil(num_rows / (4 * self.num_threads))
            at_least = max(1, _TOKENS_PER_THREAD // vocab_size)
            size = max(min(size, evenly), at_least)
        return [range(i, min(i + size, num_rows)) for i in range(0, num_rows, size)]

    def _completed(self, run: Callable[[range], int], tasks: list[range]) -> Iterator[int]:
        """Run all tasks, in order where an error is concerned: the first bad row is reported."""
        workers = min(self.num_threads, len(tasks))
        if workers <= 1:
            yield from map(run, tasks)
            return
        with ThreadPoolExecutor(workers, thread_name_prefix="acceptance_rates") as pool:
            try:
                yield from pool.map(run, tasks)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _run(
        self,
        target: LogitRows,
        draft: LogitRows,
        dtype: np.dtype[Any],
        rows: range,
        rates: NDArray[np.float64],
    ) -> None:
        vocab_size = max(target.vocab_size, draft.vocab_size)
        totals = np.empty((len(rows), 2))
        self.row_function(
            target.read(rows.start, rows.stop, dtype, vocab_size),
            draft.read(rows.start, rows.stop, dtype, vocab_size),
            self.target_sampling.scale,
            self.draft_sampling.scale,
            np.array(self.num_drafts, dtype=np.int64),
            rates[rows.start : rows.stop],
            totals,
        )
        bad = ~np.isfinite(totals)
        if bad.any():
            row, side = np.argwhere(bad)[0]
            raise (target, draft)[side].bad_row(rows.start + int(row))
