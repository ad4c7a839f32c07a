"""Rates of batches: functions of rows of logits, and what declares them, with how exact they are.

Kernels take rows of logits; formulas are asked row by row, after softmax. NumPy releases the GIL
for all that takes time there, so that rows run in parallel as those of kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Floats, Integers, Matrix, Vector
from mdsd_opt.base.distributions import SMALLEST_PROBABILITY
from mdsd_opt.base.foreign import foreign
from mdsd_opt.errors import InvalidInput
from mdsd_opt.prefix_search.random_draws import require_race

#: Function that computes the rates of rows of logits, without the GIL: called as
#: ``function(target, draft, target_scale, draft_scale, num_drafts, rates, totals)``.
#:
#: target, draft : (n, V), contiguous and read-only, both float32 or both float64.
#: target_scale, draft_scale : log2(e) divided by the temperature.
#: num_drafts : (k,) int64, every K that is wanted; they share the passes over the row.
#: rates : (n, k) float64, written.
#: totals : (n, 2) float64, written: sum of the weights of either side, not finite where the row is
#:     no distribution (NaN, +inf, all -inf); the row's rates mean nothing then.
RowFunction = Callable[
    [
        NDArray[Any],
        NDArray[Any],
        float,
        float,
        Integers,
        Floats,
        Floats,
    ],
    None,
]

#: Maps (p, q, every K, seed) to the rates of one row, for these K.
RowFormula = Callable[[Vector, Vector, list[int], int], Sequence[float]]


@dataclass(frozen=True, slots=True)
class BatchRates:
    """Formula or kernel for the rates of a verifier with the drafts of one scheme.

    Attributes
    ----------
    formula : callable, optional
        ``formula(p, q, num_drafts, seed)`` gives the rates of one row for every K of a list.
    kernel : callable, optional
        Instead of a formula: the `RowFunction` that computes the rates; it imports numba.
    device : str
        Name of the device kernels that compute them; empty if there are none.
    decides_on_device : bool
        Whether device kernels decide as this verifier.
    is_bound : bool
        Whether the rates are lower bounds.
    estimated_from : int, optional
        Least K at which rates may come from a simulation of each row.
    is_slow : bool
        Whether a row takes so long that it is a task of its own.
    """

    formula: RowFormula | None = None
    kernel: RowFunction | None = None
    device: str = ""
    decides_on_device: bool = False
    is_bound: bool = False
    estimated_from: int | None = None
    is_slow: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.kernel, str):
            raise InvalidInput(f"kernel is {self.kernel!r}: give the function itself")

    def is_estimated(self, num_drafts: int) -> bool:
        """Whether rates at this K may come from a simulation of each row."""
        return self.estimated_from is not None and num_drafts >= self.estimated_from

    def row_function(self, seed: int) -> RowFunction:
        """Function that computes the rates on the CPU."""
        if self.kernel is not None:
            return self.kernel
        assert self.formula is not None
        return FormulaRows(self.formula, seed, self.is_slow)


@dataclass(frozen=True, slots=True)
class FormulaRows:
    """Rates of rows of logits by a formula; called as a `RowFunction`."""

    formula: RowFormula
    seed: int
    is_slow: bool = False  # a position takes so long that it is a task of its own

    @foreign("the verifier")
    def __call__(
        self,
        target: NDArray[Any],
        draft: NDArray[Any],
        target_scale: float,
        draft_scale: float,
        num_drafts: Integers,
        rates: Floats,
        totals: Floats,
    ) -> None:
        counts = num_drafts.tolist()
        for row in range(len(target)):
            p, totals[row, 0] = _probabilities(target[row], target_scale)
            q, totals[row, 1] = _probabilities(draft[row], draft_scale)
            if np.isfinite(totals[row]).all():
                values = np.array(self.formula(p, q, counts, self.seed))
                rates[row] = np.clip(values, 0.0, 1.0)


def _probabilities(stored: NDArray[Any], scale: float) -> tuple[Vector, float]:
    """Softmax of one stored row and the sum of its weights, NaN where there is no distribution."""
    logits = stored.astype(np.float64)
    largest = logits.max()
    if not math.isfinite(largest):  # a NaN, +inf, or nothing but -inf
        return logits, math.nan
    with np.errstate(over="ignore"):  # far below the largest: exp2 gives zero
        weights = np.exp2((logits - largest) * scale)
    total = float(weights.sum())
    weights /= total
    weights[weights < SMALLEST_PROBABILITY] = 0.0
    return weights, total


#: Logarithm of the first bucket for drafts without replacement, and octaves of all buckets.
_FIRST = -22.0
_OCTAVES = 34


def with_replacement_rates(
    target: NDArray[Any], draft: NDArray[Any], target_scale: float, draft_scale: float,
    num_drafts: Integers, rates: Matrix, totals: Matrix,
) -> None:  # fmt: skip
    """Write acceptance rates of rows of logits, for drafts with replacement."""
    from mdsd_opt.prefix_search import rates_with_replacement_kernels as kernels
    from mdsd_opt.prefix_search.bucket_kernels import CELLS, even_buckets
    from mdsd_opt.prefix_search.sum_kernels import BLOCK

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
    from mdsd_opt.prefix_search.bucket_kernels import CELLS, bucket_grid
    from mdsd_opt.prefix_search.race_group_kernels import COLUMNS
    from mdsd_opt.prefix_search.sum_kernels import BLOCK

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
