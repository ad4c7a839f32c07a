"""Claimed inequalities, also as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mdsd_opt.cddlib_checks.subsets import mask_of
from mdsd_opt.errors import InvalidInput

_NUMBER = r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?:\s*/\s*\d+)?"
_TERM = re.compile(
    rf"\s*(?P<sign>[-+])?\s*(?:(?P<factor>{_NUMBER})\s*\*?\s*)?(?P<token>p\s*_?\s*(?P<id>\d+))?\s*"
)


@dataclass(frozen=True, slots=True)
class Inequality:
    """sum_i c_i p_i >= bound, a claim about targets.

    Attributes
    ----------
    coefficients : tuple of Fraction, shape (V,)
    bound : Fraction
    """

    coefficients: tuple[Fraction, ...]
    bound: Fraction

    @classmethod
    def on_subset(cls, vocab_size: int, tokens: Sequence[int], bound: Fraction) -> Inequality:
        """P(tokens) >= bound."""
        mask = mask_of(tokens)
        return cls(tuple(Fraction(mask >> i & 1) for i in range(vocab_size)), bound)

    def slack(self, p: Sequence[Fraction]) -> Fraction:
        """Left side minus right side: negative where the inequality is violated."""
        total = -self.bound
        for c, x in zip(self.coefficients, p, strict=True):
            if c:
                total += c * x
        return total

    def __str__(self) -> str:
        text = ""
        for i, c in enumerate(self.coefficients):
            if c:
                sign = ("-" if c < 0 else "") if not text else (" - " if c < 0 else " + ")
                factor = "" if abs(c) == 1 else f"{abs(c)} "
                text += f"{sign}{factor}p{i}"
        return f"{text or '0'} >= {self.bound}"


def parse_inequalities(inequalities: Sequence[Any], vocab_size: int) -> tuple[Inequality, ...]:
    """Validated inequalities, each sum_i c_i p_i >= bound."""
    if isinstance(inequalities, str):
        inequalities = [inequalities]
    return tuple(_parsed(entry, vocab_size) for entry in inequalities)


def _parsed(entry: Any, vocab_size: int) -> Inequality:
    if isinstance(entry, Inequality):
        if len(entry.coefficients) != vocab_size:
            raise InvalidInput(f"inequality {entry} is not about {vocab_size} tokens")
        return entry
    if isinstance(entry, str):
        return _from_text(entry, vocab_size)
    try:
        left, bound = entry
        items = left.items() if isinstance(left, Mapping) else [(i, 1) for i in left]
        coefficients = {int(i): Fraction(c) for i, c in items}
        threshold = Fraction(bound)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise InvalidInput(
            f"inequality {entry!r} is not readable: give 'p0 + p2 >= 8/27', ((0, 2), '8/27') or "
            "({0: 1, 2: 1}, '8/27')"
        ) from error
    return _checked(coefficients, threshold, vocab_size, entry)


def _from_text(text: str, vocab_size: int) -> Inequality:
    match = re.fullmatch(r"(.*?)(>=|<=|≥|≤)(.*)", text.strip())
    if match is None:
        raise InvalidInput(
            f"inequality {text!r} has no >= or <=: give for instance p0 + p2 >= 8/27"
        )
    sign = 1 if match[2] in (">=", "≥") else -1
    coefficients: dict[int, Fraction] = {}
    constant = Fraction(0)
    for side, factor in ((match[1], sign), (match[3], -sign)):
        for token, number in _terms(side, text):
            if token is None:
                constant += factor * number
            else:
                coefficients[token] = coefficients.get(token, Fraction(0)) + factor * number
    return _checked(coefficients, -constant, vocab_size, text)


def _terms(side: str, text: str) -> list[tuple[int | None, Fraction]]:
    terms: list[tuple[int | None, Fraction]] = []
    place = 0
    while place < len(side.rstrip()) or not terms:
        match = _TERM.match(side, place)
        if (
            match is None
            or not (match["factor"] or match["token"])
            or (terms and not match["sign"])
        ):
            raise InvalidInput(
                f"inequality {text!r} is not readable at {side[place:].strip() or 'its end'!r}: "
                "write terms such as p0, 2 p1 or 3/4, joined by + and -"
            )
        number = Fraction((match["factor"] or "1").replace(" ", ""))
        token = None if match["id"] is None else int(match["id"])
        terms.append((token, -number if match["sign"] == "-" else number))
        place = match.end()
    return terms


def _checked(
    coefficients: Mapping[int, Fraction], bound: Fraction, vocab_size: int, given: Any
) -> Inequality:
    for i in coefficients:
        if not 0 <= i < vocab_size:
            raise InvalidInput(
                f"inequality {given!r} names token {i}: tokens are 0 to {vocab_size - 1}"
            )
    row = tuple(coefficients.get(i, Fraction(0)) for i in range(vocab_size))
    return Inequality(row, bound)
