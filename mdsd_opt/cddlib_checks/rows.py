"""Rows of inequalities in one canonical form, so that sets of rows can be compared.

A row ``(b, a_1..a_d)`` says b + a.x >= 0. Double description returns rows up to a positive factor;
divided by the greatest common divisor of their integer multiples they are unique.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import gcd, lcm

Row = tuple[int, ...]
Point = tuple[Fraction, ...]


def primitive(row: Iterable[Fraction | int]) -> Row:
    """The positive multiple with coprime integer entries; the zero row stays zero."""
    entries = [Fraction(x) for x in row]
    scale = lcm(*(x.denominator for x in entries))
    integers = [x.numerator * (scale // x.denominator) for x in entries]
    divisor = gcd(*integers)
    return tuple(x // divisor for x in integers) if divisor else tuple(integers)


def without_last_token(bound: Fraction, coefficients: Sequence[Fraction | int]) -> Row:
    """c.p >= bound in the coordinates p_0..p_{V-2}, with p_{V-1} = 1 - the rest.

    Keeping the equality sum p = 1 instead would leave every row defined only up to a multiple of
    it, and sets of rows could not be compared.
    """
    last = coefficients[-1]
    return primitive([last - bound, *(c - last for c in coefficients[:-1])])


def with_last_token(point: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """p from its first V - 1 coordinates."""
    return (*point, 1 - sum(point, Fraction(0)))
