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


def checked_time_limit(value: Any, name: str = "time_limit") -> Any:
    """Seconds, 0 or more, or None for no limit, which infinitely many are, too.

    Raises
    ------
    InvalidInput
        Neither.
    """
    number: Any = value if isinstance(value, Real) else -1
    if value is None or 0 <= number <= inf:
        return value
    raise InvalidInput(f"{name} is {value!r}: give seconds, 0 or more, or None for no limit")
