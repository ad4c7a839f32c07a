r"""Validated probabilities, made from logits and weights only here.

Filters apply in a fixed order: temperature, then top-k, then top-p, then min-p, each to the
distribution the previous one left. Tokens tied with the last kept token are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Floats, Integers
from mdsd_opt.base.arrays import SUM_TOLERANCE, Opened, frozen, refuse_bits, to_numpy
from mdsd_opt.errors import InvalidDistribution, InvalidInput

#: Smallest probability: smaller ones count as zero. They mean nothing, and near the end of the
#: floating-point range ratios and exponential clocks would overflow.
SMALLEST_PROBABILITY = 1e-300


def softmax(
    logits: Any,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Any:
    r"""Probabilities of logits, :math:`p_i \propto \exp(\ell_i / T)`, filtered.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        Any float or integer dtype, bfloat16 included; ``-inf`` marks an impossible token.
    temperature : float
        0 gives the one-hot of the largest logit (the lowest id of several).
    top_k : int, optional
        Keep the `top_k` likeliest tokens, and those tied with the last of them; all for 0 and -1.
    top_p : float, optional
        Keep the fewest likeliest tokens that together hold at least `top_p`, and ties.
    min_p : float, optional
        Keep tokens with at least `min_p` times the largest probability.

    Returns
    -------
    array, shape (..., V)
        float64, each row summing to one, in the library of the input.

    Raises
    ------
    InvalidDistribution
        A row is all ``-inf`` or has a NaN or ``+inf``; the message names the row.
    InvalidInput
        A parameter is out of range, or there is no token at all.
    """
    check_sampling_parameters(temperature, top_k, top_p, min_p)
    opened = Opened.of(logits, "logits")
    return opened.like(checked_softmax(opened.numpy(), temperature, top_k, top_p, min_p))


def checked_softmax(
    logits: NDArray[Any],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Floats:
    """Same as `softmax` for an array of NumPy, with parameters that have been checked."""
    return filter_tokens(_softmax_rows(*_checked_logits(logits), temperature), top_k, top_p, min_p)


def check_sampling_parameters(
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> None:
    """Raise `InvalidInput` unless the sampling parameters are in range."""
    if not (isinstance(temperature, Real) and 0 <= temperature < np.inf):
        raise InvalidInput(f"temperature is {temperature!r}: give a finite number, 0 or larger")
    if top_k is not None and not (isinstance(top_k, Real) and top_k >= -1 and top_k % 1 == 0):
        raise InvalidInput(
            f"top_k is {top_k!r}: give an integer of at least 1; None, 0 or -1 for no such filter"
        )
    if top_p is not None and not (isinstance(top_p, Real) and 0 < top_p <= 1):
        raise InvalidInput(f"top_p is {top_p!r}: give a number in (0, 1], or None")
    if min_p is not None and not (isinstance(min_p, Real) and 0 <= min_p <= 1):
        raise InvalidInput(f"min_p is {min_p!r}: give a number in [0, 1], or None")


def _checked_logits(logits: NDArray[Any]) -> tuple[Floats, Floats]:
    """Logits in float64 and the largest of each row, or an error that names the first bad row."""
    refuse_bits(logits, "logits")
    values = logits.astype(np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise InvalidInput(f"logits has shape {values.shape}: the last axis must hold the tokens")
    if values.size == 0:
        return values, values[..., 0]
    best: Floats = values.max(axis=-1)  # NaN if the row holds one
    finite = np.isfinite(best)
    if not finite.all():
        row = np.argwhere(~finite)[0]
        raise bad_row_error("logits", row, values[tuple(row)])
    return values, best


def bad_row_error(name: str, row: Sequence[int] | NDArray[Any], values: Any) -> InvalidDistribution:
    """Error that says what is wrong with one row of logits."""
    values = np.asarray(values, dtype=np.float64)
    where = "" if len(row) == 0 else f" row {', '.join(str(int(i)) for i in row)}"
    if np.isnan(values).any():
        problem = f"has a NaN (first at token {int(np.flatnonzero(np.isnan(values))[0])})"
    elif (values == np.inf).any():
        problem = f"has a +inf (first at token {int(np.flatnonzero(values == np.inf)[0])})"
    else:
        problem = "is all -inf, so no token is possible"
    return InvalidDistribution(f"{name}{where} {problem}. Check the model's output or its mask.")


def _softmax_rows(values: Floats, best: Floats, temperature: float) -> Floats:
    """Softmax of rows, in place: the memory of large arrays costs as much as the computation."""
    if temperature == 0:
        first = values.argmax(axis=-1).reshape(-1)
        values[...] = 0.0
        values.reshape(-1, values.shape[-1])[np.arange(first.size), first] = 1.0
        return values
    with np.errstate(over="ignore"):  # huge gaps and tiny temperatures end at -inf: exp gives 0
        values -= best[..., None]
        if temperature != 1:
            values /= temperature
    np.exp(values, out=values)
    values /= values.sum(axis=-1, keepdims=True)
    return values


def filter_tokens(
    probabilities: Floats,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Floats:
    """Apply top-k, top-p and min-p, in that order, and renormalise. Ties are kept."""
    result = probabilities
    if top_k is not None and 0 < top_k < result.shape[-1]:
        last = np.partition(result, -top_k, axis=-1)[..., -top_k, None]
        result = _renormalised(np.where(result >= last, result, 0.0))
    if top_p is not None and top_p < 1:
        descending = -np.sort(-result, axis=-1)
        mass_before = np.cumsum(descending, axis=-1) - descending
        kept = (mass_before < top_p).sum(axis=-1, keepdims=True)
        last = np.take_along_axis(descending, kept - 1, axis=-1)
        result = _renormalised(np.where(result >= last, result, 0.0))
    if min_p is not None and min_p > 0:
        floor = min_p * result.max(axis=-1, keepdims=True)
        result = _renormalised(np.where(result >= floor, result, 0.0))
    return result


def _renormalised(weights: Floats) -> Floats:
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


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

    @classmethod
    def as_it_is(cls, values: Floats) -> Distribution:
        """Distribution of unchecked floats that sum to one, none NaN, negative or below 1e-300."""
        return cls(frozen(values), values)

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
    if not values.min() >= 0:  # NaN is neither; and what is left has a sum without a warning
        raise _bad_number(values, name)
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
