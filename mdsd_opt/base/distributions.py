"""Validated probabilities, made from weights only here."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import SUM_TOLERANCE, Floats, Integers, Numbers, frozen, to_numpy
from mdsd_opt.errors import InvalidDistribution

#: Smallest probability: smaller ones count as zero. They mean nothing, and near the end of the
#: floating-point range ratios and exponential clocks would overflow.
SMALLEST_PROBABILITY = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """One validated distribution over tokens.

    `values`, shape (V,), are read-only and sum to one; `exact` starts from the numbers as `given`.
    """

    values: Floats
    given: tuple[Fraction, ...] | Floats

    @classmethod
    def of(cls, weights: Any, name: str) -> Distribution:
        """Validate probabilities; sums within 1e-3 of one are renormalised in float64.

        Floats below 1e-300 are taken as zero. Raises `InvalidDistribution` for what is no vector,
        empty, NaN, infinite, negative, of a sum off by more than 1e-3, or a Fraction so small that
        floating point cannot follow.
        """
        if isinstance(weights, Distribution):
            return weights
        if is_rational(weights):
            rational = tuple(Fraction(x) for x in weights)
            values = _nearest_floats(rational, name)
            total = _checked_sum(values, name)
            if sum(rational) == 1:  # then the float of each Fraction is the nearest one
                return cls(frozen(values), rational)
            return cls(frozen(values / total), rational)
        values = np.array(to_numpy(weights, name), dtype=np.float64)
        total = _checked_sum(values, name)
        values[values < SMALLEST_PROBABILITY] = 0.0
        return cls(frozen(values / total), frozen(values))

    @classmethod
    def computed(cls, rational: tuple[Fraction, ...]) -> Distribution:
        """Distribution of Fractions that sum to one, however small; floats < 1e-300 are zero."""
        tiny = Fraction(SMALLEST_PROBABILITY)
        values = np.array([float(x) if x >= tiny else 0.0 for x in rational], dtype=np.float64)
        return cls(frozen(values), rational)

    @property
    def vocab_size(self) -> int:
        return self.values.size

    @property
    def is_rational(self) -> bool:
        """Whether the numbers were given as Fractions."""
        return isinstance(self.given, tuple)

    def same_as(self, other: Distribution) -> bool:
        """Whether neither float64 nor Fractions tell the two apart."""
        if not np.array_equal(self.values, other.values):
            return False
        if isinstance(self.given, tuple) or isinstance(other.given, tuple):
            return self.exact() == other.exact()
        return np.array_equal(self.given, other.given) or self.exact() == other.exact()

    def numbers(self, exact: bool) -> Numbers:
        """Probabilities, shape (V,), as float64, or as Fractions in an object array."""
        return frozen(np.array(self.exact(), dtype=object)) if exact else self.values

    def without(self, tokens: Integers) -> Distribution | None:
        """Law given that none of these tokens is drawn; None if nothing else can be."""
        rest = self.values.copy()
        rest[tokens] = 0.0
        total = rest.sum()  # the mass outside as a sum, not as a difference
        if not total > 0:
            return None
        held = set(tokens.tolist())
        if isinstance(self.given, tuple):
            given = tuple(Fraction(0) if i in held else x for i, x in enumerate(self.given))
            return Distribution(frozen(rest / total), given)
        outside = self.given.copy()
        outside[tokens] = 0.0
        return Distribution(frozen(rest / total), outside)

    def exact(self) -> tuple[Fraction, ...]:
        """Given numbers as Fractions (a float is an exact dyadic), divided by their sum."""
        if isinstance(self.given, tuple):
            rational = self.given
        else:
            rational = tuple(Fraction(x) for x in self.given.tolist())
        total = sum(rational, Fraction(0))
        return rational if total == 1 else tuple(x / total for x in rational)


def _nearest_floats(rational: tuple[Fraction, ...], name: str) -> Floats:
    """Fractions as nearest floats; those that only Fractions can tell from 0 are refused."""
    for i, x in enumerate(rational):
        if 0 < x < SMALLEST_PROBABILITY:
            raise InvalidDistribution(
                f"{name}[{i}] is a positive fraction below {SMALLEST_PROBABILITY:g}, too small for "
                "floating point: give 0 or a larger one"
            )
        if abs(x) > 1e300:
            raise InvalidDistribution(f"{name}[{i}] is far above 1: give probabilities")
    return np.array([float(x) for x in rational], dtype=np.float64)


def _checked_sum(values: Floats, name: str) -> float:
    """Sum of possible probabilities, or an error that says why they are none."""
    if values.ndim != 1 or values.size == 0:
        raise InvalidDistribution(
            f"{name} has shape {values.shape}: give one probability for each token, shape (V,)"
        )
    if not values.min() >= 0:  # NaN is neither
        raise _bad_number(values, name)
    with np.errstate(over="ignore"):
        total = float(values.sum())
    if total == np.inf and values.max() == np.inf:
        raise _bad_number(values, name)
    if abs(total - 1) > SUM_TOLERANCE:
        raise InvalidDistribution(
            f"{name} sums to {total:.6g}, not 1. Were these logits or counts? For logits use "
            "TransportProblem.from_logits or mdsd_opt.softmax; divide counts by their sum."
        )
    return total


def _bad_number(values: Floats, name: str) -> InvalidDistribution:
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        return InvalidDistribution(f"{name}[{bad[0]}] is {values[bad[0]]}: give finite numbers")
    bad = np.flatnonzero(values < 0)
    return InvalidDistribution(
        f"{name}[{bad[0]}] is {values[bad[0]]:.6g}, negative. Were these logits? "
        "Pass them through mdsd_opt.softmax first."
    )


def is_rational(weights: Any) -> bool:
    """Whether the weights hold `Fraction` values, which are then kept exactly."""
    if isinstance(weights, np.ndarray) and weights.dtype != object:
        return False
    if not isinstance(weights, (list, tuple, np.ndarray)):
        return False
    return all(isinstance(x, (Fraction, int)) for x in weights) and any(
        isinstance(x, Fraction) for x in weights
    )


def mass_of_others(masses: NDArray[Any], tokens: Integers) -> Any:
    """Sum of all masses but those of some tokens, without a difference, which loses small rests."""
    total, start = masses[:0].sum(), 0
    for token in sorted(set(tokens.tolist())):
        total = total + masses[start:token].sum()
        start = token + 1
    return total + masses[start:].sum()
