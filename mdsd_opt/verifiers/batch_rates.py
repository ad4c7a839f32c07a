"""What a verifier declares about its rates in batches of logits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts.single_model import SingleModelDrafts

Vector = NDArray[np.float64]

#: (p, q, every K, seed) -> rates of one row, for these K.
RowFormula = Callable[[Vector, Vector, list[int], int], Sequence[float]]


@dataclass(frozen=True, slots=True)
class BatchRates:
    """What computes the rates of a verifier for the drafts of one scheme: a formula or a kernel.

    Attributes
    ----------
    formula : callable, optional
        ``formula(p, q, num_drafts, seed)`` gives the rates of one row for every K of a list.
    kernel : str
        Instead of a formula: a function of `mdsd_opt.prefix_search.rates` by its name, or
        ``"module:function"``, as it imports numba.
    device : str
        Function of `mdsd_opt.gpu.rates` that computes them on a CUDA device; empty if none does.
    decides_on_device : bool
        Whether the kernels of `mdsd_opt.gpu.verification` decide as this verifier.
    is_bound : bool
        Whether the rates are lower bounds.
    estimated_from : int, optional
        Least K at which rates may come from a simulation of each row.
    """

    formula: RowFormula | None = None
    kernel: str = ""
    device: str = ""
    decides_on_device: bool = False
    is_bound: bool = False
    estimated_from: int | None = None


def optimal_rates(kinds: Iterable[type[SingleModelDrafts]]) -> dict[str, BatchRates]:
    """The rates of the optimum by the names of schemes, of those that declare kernels for it."""
    return {
        kind.scheme: BatchRates(
            kernel=kind.optimal_kernels.rates,
            device=kind.optimal_kernels.device,
            decides_on_device=kind.optimal_kernels.decides_on_device,
        )
        for kind in kinds
        if kind.optimal_kernels is not None
    }
