"""Numbers that many functions take to know when to stop, validated once."""

from __future__ import annotations

from math import inf
from numbers import Real
from sys import float_info
from typing import Any

from mdsd_opt.errors import InvalidInput


def checked_tolerance(name: str, value: Any, *, or_zero: bool = False) -> float:
    """A finite number above 0: up to a NaN or to infinity, everything would be as claimed.

    Raises
    ------
    InvalidInput
        It is none.
    """
    number: Any = value if isinstance(value, Real) else -1
    if 0 <= number <= float_info.max and (number > 0 or or_zero):
        return float(number)
    least = "of at least 0" if or_zero else "above 0"
    raise InvalidInput(f"{name} is {value!r}: give a finite number {least}, such as 1e-9")


def checked_amount(name: str, value: Any) -> Any:
    """A number of at least 0, or infinity for no limit.

    Raises
    ------
    InvalidInput
        It is none.
    """
    number: Any = value if isinstance(value, Real) else -1
    if not number >= 0:
        raise InvalidInput(f"{name} is {value!r}: give a number of at least 0")
    return value if number <= float_info.max else inf
