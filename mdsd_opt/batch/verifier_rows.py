"""Rates of the published verifiers, row by row: softmax, then the formula of each verifier.

NumPy releases the GIL for all that takes time here, so rows run in parallel as those of compiled
kernels do.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.distributions import SMALLEST_PROBABILITY
from mdsd_opt.drafts import TopKDrafts, WithReplacement
from mdsd_opt.drafts.drafted_masses import drafted_masses
from mdsd_opt.verifiers.gumbel import gumbel_bounds
from mdsd_opt.verifiers.importance_sampling import selection_bounds
from mdsd_opt.verifiers.kseq import kseq_rates
from mdsd_opt.verifiers.rrs_rates import independent_rates, without_replacement_rates
from mdsd_opt.verifiers.single_draft import single_draft_rate

Vector = NDArray[np.float64]
Counts = list[int]

#: Sequences of rejections in an estimate; visits up to which a row is computed exactly instead.
_SAMPLES = 256
_MAX_VISITS = 50_000

#: (p, q, every K, seed) -> rates of one row.
RowFormula = Callable[[Vector, Vector, Counts, int], Sequence[float]]


@dataclass(frozen=True, slots=True)
class FormulaRows:
    """Rates of rows of logits by a formula; called as a `row_functions.RowFunction`."""

    formula: RowFormula
    seed: int

    def __call__(
        self,
        target: NDArray[Any],
        draft: NDArray[Any],
        target_scale: float,
        draft_scale: float,
        num_drafts: NDArray[np.int64],
        rates: NDArray[np.float64],
        totals: NDArray[np.float64],
    ) -> None:
        counts = num_drafts.tolist()
        for row in range(len(target)):
            p, totals[row, 0] = _probabilities(target[row], target_scale)
            q, totals[row, 1] = _probabilities(draft[row], draft_scale)
            if np.isfinite(totals[row]).all():
                found = np.array(self.formula(p, q, counts, self.seed))
                rates[row] = np.clip(found, 0.0, 1.0)


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


def rrs_with_replacement(p: Vector, q: Vector, counts: Counts, seed: int) -> Sequence[float]:
    """Recursive rejection sampling, drafts with replacement."""
    rates = independent_rates(p, [q] * max(counts))
    return [rates[k - 1] for k in counts]


def rrs_without_replacement(p: Vector, q: Vector, counts: Counts, seed: int) -> Sequence[float]:
    """Recursive rejection sampling, drafts without replacement; K >= 3 is an estimate.

    The random numbers depend on the seed and on the row itself: rows are independent, and none
    depends on its place in the batch.
    """
    seeds = [seed, zlib.crc32(p.tobytes()), zlib.crc32(q.tobytes())]
    return without_replacement_rates(p, q, counts, _SAMPLES, seeds, _MAX_VISITS)[0]


def kseq(p: Vector, q: Vector, counts: Counts, seed: int) -> Sequence[float]:
    """K-SEQ."""
    return kseq_rates(p, q, counts)


def single_draft(p: Vector, q: Vector, counts: Counts, seed: int) -> Sequence[float]:
    """Speculative sampling of the first draft, with the residual's hits."""
    return [single_draft_rate(p, q, k) for k in counts]


def importance_sampling(p: Vector, q: Vector, counts: Counts, seed: int) -> Sequence[float]:
    """Lower bound of importance-weighted sampling."""
    bounds = selection_bounds(p, q, max(counts))
    return [bounds[k - 1] for k in counts]


def gumbel(p: Vector, q: Vector, counts: Counts, seed: int) -> Sequence[float]:
    """Lower bound of Gumbel list sampling."""
    return gumbel_bounds(p, q, counts)


def naive_target_with_replacement(
    p: Vector, q: Vector, counts: Counts, seed: int
) -> Sequence[float]:
    """Target mass of K independent drafts."""
    return [WithReplacement(q, k).drafted_mass(p) for k in counts]


def naive_target_without_replacement(
    p: Vector, q: Vector, counts: Counts, seed: int
) -> Sequence[float]:
    """Target mass of K successive drafts."""
    return drafted_masses(q, p, counts)


def naive_target_greedy(p: Vector, q: Vector, counts: Counts, seed: int) -> Sequence[float]:
    """Target mass of the K - 1 likeliest tokens and one of the rest."""
    likeliest = TopKDrafts(q, max(counts)).always_drafted
    rates = []
    for k in counts:
        fixed = likeliest[: k - 1]
        rest = q.copy()
        rest[fixed] = 0.0
        total = rest.sum()
        drawn = float(p @ rest) / total if total > 0 else 0.0
        rates.append(float(p[fixed].sum()) + drawn)
    return rates
