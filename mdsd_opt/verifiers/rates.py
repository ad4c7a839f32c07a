"""Rates of a verifier: those of the optimum in batches, and floats that know how exact they are."""

from __future__ import annotations

from collections.abc import Iterable

from mdsd_opt.drafts import SingleModelDrafts
from mdsd_opt.prefix_search import BatchRates


def optimal_rates(kinds: Iterable[type[SingleModelDrafts]]) -> dict[str, BatchRates]:
    """Rates of the optimum by scheme, for those that declare kernels for it."""
    declared = {kind.scheme: kind.optimal_kernels for kind in kinds}
    return {scheme: kernels for scheme, kernels in declared.items() if kernels is not None}


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
