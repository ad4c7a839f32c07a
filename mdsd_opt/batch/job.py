"""A batch, cut into tasks for threads.

The kernels release the GIL, so threads are all it takes. They are made anew for every call, which
costs a fraction of a millisecond and leaves nothing behind; calls from several threads at once do
not know of each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Opened
from mdsd_opt.base.long_runs import available_threads, progress_bar, threaded
from mdsd_opt.batch.row_functions import RowFunction, row_function
from mdsd_opt.batch.rows import LogitRows, Sampling, common_dtype, paired_rows
from mdsd_opt.errors import InvalidDistribution, MdsdError
from mdsd_opt.verifiers import Verifier

#: Tokens a thread takes at once: some milliseconds of work, little enough to be shared evenly.
_TOKENS_PER_TASK = 1 << 20

#: Batches of fewer tokens are not worth a thread.
_TOKENS_PER_THREAD = 1 << 16


@dataclass(frozen=True, slots=True)
class RowJob:
    """What to compute of every row; all but the rows themselves."""

    scheme: str
    verifier: str | Verifier
    num_drafts: tuple[int, ...]
    target_sampling: Sampling
    draft_sampling: Sampling
    num_threads: int | None = None
    progress: bool = False
    pad: bool = False
    seed: int = 0

    @property
    def threads(self) -> int:
        """As many as asked for, or as there are processors for this process."""
        return available_threads() if self.num_threads is None else self.num_threads

    def row_function(self) -> RowFunction:
        """What computes the rates; the errors of `row_functions.row_function` come from here."""
        return row_function(self.scheme, self.verifier, self.num_drafts, self.seed)

    def rows(
        self, target: Opened, draft: Opened, origin: tuple[int, ...] | None = None
    ) -> tuple[LogitRows, LogitRows]:
        """Both sides as rows."""
        samplings = self.target_sampling, self.draft_sampling
        return paired_rows(target, draft, *samplings, self.pad, origin)

    def rates(self, target: LogitRows, draft: LogitRows) -> NDArray[np.float64]:
        """Rates of all rows, shape (..., len(num_drafts))."""
        return self.run(self.row_function(), len(self.num_drafts), target, draft)

    def run(
        self, function: RowFunction, num_columns: int, target: LogitRows, draft: LogitRows
    ) -> NDArray[np.float64]:
        """What a function finds for each row, shape (..., num_columns)."""
        rates = np.empty((math.prod(target.index_shape), num_columns))
        one_by_one = getattr(function, "is_slow", False)
        size = 1 if one_by_one else self._rows_at_once(len(rates), target, draft)
        tasks = [range(i, min(i + size, len(rates))) for i in range(0, len(rates), size)]
        dtype, vocab_size = common_dtype(target, draft), max(target.vocab_size, draft.vocab_size)
        scales = self.target_sampling.scale, self.draft_sampling.scale
        counts = np.array(self.num_drafts, dtype=np.int64)

        def run(rows: range) -> int:
            start, stop = rows.start, rows.stop
            p, q = (side.read(start, stop, dtype, vocab_size) for side in (target, draft))
            totals = np.empty((len(rows), 2))
            try:
                function(p, q, *scales, counts, rates[start:stop], totals)
            except MdsdError as error:
                if not one_by_one or isinstance(error, InvalidDistribution):
                    raise
                raise type(error)(f"row {target.name_of(start)}: {error}") from error
            bad = ~np.isfinite(totals)
            if bad.any():
                row, side = np.argwhere(bad)[0]
                raise (target, draft)[side].bad_row(start + int(row))
            return len(rows)

        with progress_bar("acceptance rates", rates.shape[0], self.progress) as advance:
            for done in threaded(run, tasks, self.threads, "acceptance_rates"):
                advance(done)
        return rates.reshape(*target.index_shape, num_columns)

    def _rows_at_once(self, num_rows: int, target: LogitRows, draft: LogitRows) -> int:
        vocab_size = max(target.vocab_size, draft.vocab_size)
        size = max(1, _TOKENS_PER_TASK // vocab_size)
        if self.threads > 1:
            evenly = math.ceil(num_rows / (4 * self.threads))
            at_least = max(1, _TOKENS_PER_THREAD // vocab_size)
            size = max(min(size, evenly), at_least)
        return size
