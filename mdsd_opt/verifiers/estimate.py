"""Numbers that know how far they may be from what is asked."""

from __future__ import annotations


class Estimate(float):
    """A float that remembers its standard error; arithmetic gives plain floats.

    Attributes
    ----------
    standard_error : float
    """

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
    """The acceptance rate of a rule that is not quite optimal; arithmetic gives plain floats.

    Attributes
    ----------
    gap : float
        The optimum is at most this much higher.
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
