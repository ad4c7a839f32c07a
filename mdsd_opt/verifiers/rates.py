"""Declarations of a verifier's rates: how batches compute them, and how exact they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mdsd_opt.base.array_types import Vector
from mdsd_opt.drafts.single_model import SingleModelDrafts

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
    """

    formula: RowFormula | None = None
    kernel: str = ""
    device: str = ""
    decides_on_device: bool = False
    is_bound: bool = False
    estimated_from: int | None = None


def optimal_rates(kinds: Iterable[type[SingleModelDrafts]]) -> dict[str, BatchRates]:
    """Rates of the optimum by scheme, for those that declare kernels for it."""
    return {
        kind.scheme: BatchRates(
            kernel=kind.optimal_kernels.rates,
            device=kind.optimal_kernels.device,
            decides_on_device=kind.optimal_kernels.decides_on_device,
        )
        for kind in kinds
        if kind.optimal_kernels is not None
    }


class Estimate(float):
    """A float that remembers its `standard_error`; arithmetic gives plain floats."""

    standard_error: float

    def __new__(cls, value: float, standard_error: float) -> Estimate:
        estimate = super().__new__(cls, value)
        estimate.standard_error = standard_error
        return estimate

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]  # for pickle
        return float(self), self.standard_error

    def __repr__(self) -> str:
        return f"{float(self):.6g} ± {self.standard_error:.1g}"


class CertifiedRate(float):
    """Acceptance rate of a rule that is not quite optimal; arithmetic gives plain floats.

    The optimum is at most `gap` higher.
    """

    gap: float

    def __new__(cls, value: float, gap: float) -> CertifiedRate:
        rate = super().__new__(cls, value)
        rate.gap = gap
        return rate

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]  # for pickle
        return float(self), self.gap

    def __repr__(self) -> str:
        return f"{float(self):.6g} (optimum at most {self.gap:.1g} higher)"
