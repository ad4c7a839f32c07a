"""Checks of numbers, seeds, and arrays of a kind, that many functions take.

Random numbers come from `rng`: a seed, 0 if it is None, or a generator of NumPy.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from math import inf, nan
from numbers import Real
from operator import index
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Floats, to_numpy
from mdsd_opt.errors import InvalidInput

T = TypeVar("T")

#: Most draft tokens of one sample, which takes up to 16 bytes for each.
MAX_SAMPLED = 200_000_000


def real(value: Any) -> float:
    """A real number as a float, infinite beyond its range; NaN for anything else."""
    try:
        return float(value) if isinstance(value, Real) else nan
    except OverflowError:
        return inf if value > 0 else -inf


def checked_tolerance(name: str, value: Any, *, or_zero: bool = False) -> float:
    """Finite number above 0, else `InvalidInput`: up to a NaN, everything would be as claimed."""
    number = real(value)
    if 0 <= number < inf and (number > 0 or or_zero):
        return number
    least = "of at least 0" if or_zero else "above 0"
    raise InvalidInput(f"{name} is {value!r}: give a finite number {least}, such as 1e-9")


def checked_amount(name: str, value: Any) -> Any:
    """Number of at least 0, or infinity for no limit; `InvalidInput` for anything else."""
    number = real(value)
    if 0 <= number < inf or number == inf == value:
        return value
    raise InvalidInput(f"{name} is {value!r}: give a number of at least 0")


def checked_integer(value: Any, name: str, least: int = 1, most: float = inf) -> int:
    """Value as an int; `InvalidInput` for anything else, truth values too, or beyond its ends."""
    try:
        number = least - 1 if isinstance(value, bool) else index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InvalidInput(f"{name} is {value!r}: give an integer of at least {least}")
    if number > most:
        raise InvalidInput(f"{name} is {number:.3g}: give an integer of at most {most:,}")
    return number


def check_counts(**counts: int) -> None:
    """Raise `InvalidInput` unless each of some counts, by their names, is an integer from 1."""
    for name, count in counts.items():
        checked_integer(count, name)


def of_kind(value: Any, kind: type[T], name: str, wanted: str) -> T:
    """Value that is of a class; `InvalidInput`, which says what is wanted, for any other."""
    if isinstance(value, kind):
        return value
    raise InvalidInput(f"{name} is a {type(value).__name__}: give {wanted}")


def is_among(value: Any, known: Container[str]) -> bool:
    """Whether an option is left out, as None, or one of some words."""
    return value is None or (isinstance(value, str) and value in known)


def check_function(wanted: str = "a function", /, **functions: Any) -> None:
    """Raise `InvalidInput`, which says what is wanted, unless each argument can be called."""
    for name, value in functions.items():
        if not callable(value):
            raise InvalidInput(f"{name} is {value!r:.60}: give {wanted}")


def check_truth(**options: Any) -> None:
    """Raise `InvalidInput` unless each of some options, by their names, is True or False."""
    for name, value in options.items():
        if not isinstance(value, bool | np.bool_):
            raise InvalidInput(f"{name} is {value!r:.60}: give True or False")


def checked_names(values: Any, name: str) -> list[str]:
    """One name or several as a list; `InvalidInput` for anything else."""
    several = [values] if isinstance(values, str) else values
    if not isinstance(several, Iterable) or not all(isinstance(x, str) for x in several):
        raise InvalidInput(f"{name} is {values!r:.60}: give a name, or several in a list")
    return [*several]


def check_confidence(confidence: Any, name: str = "confidence") -> None:
    """Raise `InvalidInput` unless the confidence of an interval lies between 0 and 1."""
    if not 0 < real(confidence) < 1:
        raise InvalidInput(f"{name} is {confidence!r}: give a number between 0 and 1")


def floats(array: Any, name: str) -> Floats:
    """Real numbers of any precision, in float64: those beyond its range become infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(to_numpy(array, name), dtype=np.float64, order="C")


def integers(array: Any, name: str) -> NDArray[Any]:
    """Integers of any width, in int64; int32 as they are; `InvalidInput` for others."""
    values = to_numpy(array, name)
    fits = values.dtype != np.uint64 or values.max(initial=0) <= np.iinfo(np.int64).max
    if values.dtype.kind not in "iu" or not fits:
        raise InvalidInput(f"{name} has dtype {values.dtype}: give integers that int64 holds")
    return values if values.dtype == np.int32 else values.astype(np.int64, copy=False)


def mask(array: Any, name: str, size: int, of: str) -> Flags:
    """Booleans of shape (size,); `InvalidInput` for anything else."""
    values = to_numpy(array, name)
    if values.shape != (size,) or values.dtype != np.bool_:
        raise InvalidInput(
            f"{name} has shape {values.shape} and dtype {values.dtype}: give a boolean mask of "
            f"shape ({size},), one entry for each of the {of}"
        )
    return np.asarray(values, order="C")


#: What a function takes as `rng`.
Rng = np.random.Generator | int | None


def generator_of(rng: Any) -> np.random.Generator:
    """The given generator, or a fresh one from a seed."""
    return rng if isinstance(rng, np.random.Generator) else np.random.default_rng(seed_of(rng))


def checked_generator(rng: Any) -> np.random.Generator:
    """The generator; `InvalidInput` for a seed, of which each call would draw the same numbers."""
    if hasattr(rng, "standard_exponential"):
        return rng
    raise InvalidInput(
        f"rng is {rng!r:.60}: give a generator, numpy.random.default_rng(seed), the same in all "
        "calls, whose numbers go on"
    )


def seed_of(rng: Any) -> int | None:
    """The seed; None where a generator was given instead."""
    return None if isinstance(rng, np.random.Generator) else drawn_seed(rng)


def drawn_seed(rng: Any, bits: int | None = None) -> int:
    """The seed, of so many bits at most; a generator draws one of 63."""
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(1 << 63))
    seed = 0 if rng is None else rng
    fits = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool) and seed >= 0
    if not fits or (bits is not None and seed >= 1 << bits):
        size = "" if bits is None else f" of {bits} bits at most"
        raise InvalidInput(
            f"the seed is {rng!r}: give an integer from 0{size}, or as rng "
            "numpy.random.default_rng(seed), so that the same can be had again"
        )
    return int(seed)
