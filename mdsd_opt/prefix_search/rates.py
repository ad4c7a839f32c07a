"""Optimal rates of rows of logits, for many K at once, with buffers that are made here.

Every function is a `batch_rates.RowFunction`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Integers, Matrix
from mdsd_opt.prefix_search.bucket_kernels import CELLS, bucket_grid, even_buckets
from mdsd_opt.prefix_search.race_group_kernels import COLUMNS
from mdsd_opt.prefix_search.random_draws import require_race
from mdsd_opt.prefix_search.sum_kernels import BLOCK

#: Logarithm of the first bucket for drafts without replacement, and octaves of all buckets.
_FIRST = -22.0
_OCTAVES = 34


def with_replacement_rates(
    target: NDArray[Any], draft: NDArray[Any], target_scale: float, draft_scale: float,
    num_drafts: Integers, rates: Matrix, totals: Matrix,
) -> None:  # fmt: skip
    """Write acceptance rates of rows of logits, for drafts with replacement."""
    from mdsd_opt.prefix_search import rates_with_replacement_kernels as kernels

    vocab_size = target.shape[1]
    # An opened bucket shall have few tokens, and the sums shall stay in the first-level cache.
    size = int(min(1024.0, max(64.0, 6.0 * np.sqrt(vocab_size))))
    error, slack, largest_weight = kernels.SINGLE if target.itemsize < 8 else kernels.DOUBLE
    block_of_weights = np.empty((4, BLOCK), target.dtype)
    bucket_of_token = np.empty(vocab_size, np.uint16)
    opened_tokens = np.empty(vocab_size + 1, np.int32)
    opened, opened_by_bucket = np.empty((2, 3, vocab_size))
    running_sums, bucket_sums = np.zeros((size, 2)), np.empty((kernels.GROUP_ROWS, size))
    cell_sums = np.empty((kernels.GROUP_ROWS, CELLS))
    group_ends = np.empty((2, max(size, CELLS) + 2), np.int64)
    is_open, best = np.empty(size, np.bool_), np.empty(num_drafts.size)
    kernels.rates_of_rows(
        target, draft, target_scale, draft_scale, num_drafts, even_buckets(size, error),
        slack, largest_weight, rates, totals, block_of_weights, bucket_of_token, opened_tokens,
        opened, opened_by_bucket, running_sums, bucket_sums, cell_sums, group_ends, is_open,
        np.empty(BLOCK, np.uint8), best,
    )  # fmt: skip


def without_replacement_rates(
    target: NDArray[Any], draft: NDArray[Any], target_scale: float, draft_scale: float,
    num_drafts: Integers, rates: Matrix, totals: Matrix,
) -> None:  # fmt: skip
    """Write acceptance rates of rows of logits; `ProblemTooLarge` for too large ones."""
    from mdsd_opt.prefix_search import rates_without_replacement_kernels as kernels

    vocab_size = target.shape[1]
    counts, places = np.unique(num_drafts, return_inverse=True)
    per_octave = min(4.0, max(2.0, vocab_size / 8192.0))
    num_buckets = int(_OCTAVES * per_octave)
    grid, edges = bucket_grid(_FIRST, per_octave, num_buckets, np.float64)
    most = min(vocab_size, int(counts[-1]))
    room = max(num_buckets, CELLS)
    heavy = min(vocab_size, 128 * max(8, most) + most)
    by_token, opened, spare = np.empty((3, 3, vocab_size))
    bucket_of_token = np.empty(vocab_size, np.uint16)
    opened_tokens = np.empty(vocab_size + 1, np.int32)
    group_sums = np.empty((3, room, COLUMNS))
    group_masses = np.empty((5, room + 1))
    escapes = np.empty((2, room + 1, counts.size))
    group_ends = np.empty((4, room + 2), np.int64)
    heavy_tokens, heavy_chains = np.empty((2, heavy)), np.empty((2, heavy), np.int64)
    drafts_open = np.empty((5, counts.size), np.int64)
    likeliest = np.empty(most, np.int64)
    is_open = np.empty(num_buckets, np.bool_)
    best_and_values = np.empty((2, counts.size))
    by_count = np.empty((len(target), counts.size))
    refused = kernels.rates_of_rows(
        target, draft, target_scale, draft_scale, counts, grid, edges, by_count, totals, by_token,
        opened, spare, bucket_of_token, opened_tokens, group_sums, group_masses, escapes,
        group_ends, heavy_tokens, heavy_chains, drafts_open, likeliest, is_open,
        np.empty(BLOCK, np.uint8), best_and_values,
    )  # fmt: skip
    if refused[0] > 0:
        require_race(*refused)
    rates[...] = by_count[:, places]


def _deterministic_rates(
    target: NDArray[Any], draft: NDArray[Any], target_scale: float, draft_scale: float,
    num_drafts: Integers, rates: Matrix, totals: Matrix, last_is_drawn: bool,
) -> None:  # fmt: skip
    """Write acceptance rates of rows of logits whose first drafts are the likeliest tokens."""
    from mdsd_opt.prefix_search import rates_deterministic_kernels as kernels

    vocab_size = target.shape[1]
    by_token = np.empty((3, vocab_size))
    likeliest = np.empty(min(vocab_size, num_drafts.max()), np.int64)
    kernels.rates_of_rows(
        target, draft, target_scale, draft_scale, num_drafts, rates, totals, last_is_drawn,
        by_token, likeliest,
    )  # fmt: skip


greedy_rates = partial(_deterministic_rates, last_is_drawn=True)
top_k_rates = partial(_deterministic_rates, last_is_drawn=False)
