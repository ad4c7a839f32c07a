"""Optimal rates of rows of logits, computed by kernels in room that is made here.

Every function is a `row_functions.RowFunction`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.prefix_search.bucket_kernels import CELLS, bucket_grid
from mdsd_opt.prefix_search.race_budget import require_race
from mdsd_opt.prefix_search.race_group_kernels import COLUMNS
from mdsd_opt.prefix_search.sum_kernels import BLOCK

Integers = NDArray[np.int64]
Matrix = NDArray[np.float64]

#: First bucket for drafts without replacement, and octaves that the buckets cover.
_FIRST = -22.0
_OCTAVES = 34


def with_replacement_rates(
    target: NDArray[Any],
    draft: NDArray[Any],
    target_scale: float,
    draft_scale: float,
    num_drafts: Integers,
    rates: Matrix,
    totals: Matrix,
) -> None:
    """Acceptance rates of rows of logits.

    The last bucket holds only ratios p/q of at least K, which are never in the optimal prefix: a
    row's weights sum to between 1 and V times the largest, so the log-ratio of weights and that of
    probabilities differ by at most log2(V).
    """
    from mdsd_opt.batch import with_replacement_kernels as kernels

    vocab_size = target.shape[1]
    margin = np.log2(vocab_size) + 1.0
    first = -22.37 - margin  # no bucket edge at equal logits
    per_octave = min(32.0, max(4.0, np.sqrt(vocab_size) / 11.0))
    size = int(np.ceil((np.log2(num_drafts.max()) + margin - first) * per_octave)) + 1
    grid, edges = bucket_grid(first, per_octave, size, target.dtype)
    ratio_error, slack = kernels.SINGLE if target.itemsize < 8 else kernels.DOUBLE
    columns, grouped = np.empty((2, 3, vocab_size))
    kernels.rates_of_rows(
        target, draft, target_scale, draft_scale, num_drafts, grid, edges, ratio_error, slack,
        rates, totals,
        np.empty((4, BLOCK), target.dtype),
        np.empty(vocab_size, np.uint16),
        np.empty(vocab_size + 1, np.int32),
        columns,
        grouped,
        np.zeros((size, 2)),
        np.empty((size, 4)),
        np.empty((CELLS, 6)),
        np.empty((2, max(size, CELLS) + 2), np.int64),
        np.empty(size, np.bool_),
        np.empty(num_drafts.size),
    )  # fmt: skip


def without_replacement_rates(
    target: NDArray[Any],
    draft: NDArray[Any],
    target_scale: float,
    draft_scale: float,
    num_drafts: Integers,
    rates: Matrix,
    totals: Matrix,
) -> None:
    """Acceptance rates of rows of logits.

    Raises
    ------
    ProblemTooLarge
        Too many drafts for so many tokens.
    """
    from mdsd_opt.batch import without_replacement_kernels as kernels

    vocab_size = target.shape[1]
    counts, places = np.unique(num_drafts, return_inverse=True)
    per_octave = min(4.0, max(2.0, vocab_size / 8192.0))
    num_buckets = int(_OCTAVES * per_octave)
    grid, edges = bucket_grid(_FIRST, per_octave, num_buckets, np.float64)
    most = min(vocab_size, int(counts[-1]))
    room = max(num_buckets, CELLS)
    heavy = min(vocab_size, 128 * max(8, most) + most)
    columns, opened, spare = np.empty((3, 3, vocab_size))
    found = np.empty((len(target), counts.size))
    refused = kernels.rates_of_rows(
        target, draft, target_scale, draft_scale, counts, grid, edges, found, totals,
        columns,
        opened,
        spare,
        np.empty(vocab_size, np.uint16),
        np.empty(vocab_size + 1, np.int32),
        np.empty((3, room, COLUMNS)),
        np.empty((5, room + 1)),
        np.empty((2, room + 1, counts.size)),
        np.empty((4, room + 2), np.int64),
        np.empty((2, heavy)),
        np.empty((2, heavy), np.int64),
        np.empty((5, counts.size), np.int64),
        np.empty(most, np.int64),
        np.empty(num_buckets, np.bool_),
        np.empty((2, counts.size)),
    )  # fmt: skip
    if refused[0] > 0:
        require_race(*refused)
    rates[...] = found[:, places]


def greedy_rates(
    target: NDArray[Any],
    draft: NDArray[Any],
    target_scale: float,
    draft_scale: float,
    num_drafts: Integers,
    rates: Matrix,
    totals: Matrix,
) -> None:
    """Acceptance rates of rows of logits."""
    _deterministic_rates(target, draft, target_scale, draft_scale, num_drafts, rates, totals, True)


def top_k_rates(
    target: NDArray[Any],
    draft: NDArray[Any],
    target_scale: float,
    draft_scale: float,
    num_drafts: Integers,
    rates: Matrix,
    totals: Matrix,
) -> None:
    """Acceptance rates of rows of logits."""
    _deterministic_rates(target, draft, target_scale, draft_scale, num_drafts, rates, totals, False)


def _deterministic_rates(
    target: NDArray[Any],
    draft: NDArray[Any],
    target_scale: float,
    draft_scale: float,
    num_drafts: Integers,
    rates: Matrix,
    totals: Matrix,
    last_is_drawn: bool,
) -> None:
    from mdsd_opt.batch import deterministic_kernels as kernels

    vocab_size = target.shape[1]
    kernels.rates_of_rows(
        target, draft, target_scale, draft_scale, num_drafts, rates, totals, last_is_drawn,
        np.empty((3, vocab_size)),
        np.empty(min(vocab_size, num_drafts.max()), np.int64),
    )  # fmt: skip
