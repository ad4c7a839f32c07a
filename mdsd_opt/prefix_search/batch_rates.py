"""Declarations of the rates of a batch: the kernel or formula, and how exact they are.

Kernels take rows of logits; formulas are asked row by row, after softmax. NumPy releases the GIL
for all that takes time there, so that rows run in parallel as those of kernels do.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Floats, Integers, Vector
from mdsd_opt.base.distributions import SMALLEST_PROBABILITY
from mdsd_opt.base.foreign import foreign
from mdsd_opt.base.installed import loaded

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
    kernel : str
        Instead of a formula: a function of `mdsd_opt.prefix_search.rates` by its name, or
        ``"module:function"``, as it imports numba.
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
    kernel: str = ""
    device: str = ""
    decides_on_device: bool = False
    is_bound: bool = False
    estimated_from: int | None = None
    is_slow: bool = False

    def is_estimated(self, num_drafts: int) -> bool:
        """Whether rates at this K may come from a simulation of each row."""
        return self.estimated_from is not None and num_drafts >= self.estimated_from

    def row_function(self, seed: int) -> RowFunction:
        """Function that computes the rates on the CPU; a kernel is imported here, with numba."""
        if self.formula is not None:
            return FormulaRows(self.formula, seed, self.is_slow)
        if ":" in self.kernel:
            kernel: RowFunction = loaded(self.kernel)
            return kernel
        return getattr(importlib.import_module("mdsd_opt.prefix_search.rates"), self.kernel)


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
