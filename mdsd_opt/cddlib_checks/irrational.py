"""Rational bounds of x**(num/den), decided in integers."""

from __future__ import annotations

from fractions import Fraction

#: The bounds differ by about this relative amount.
_WIDTH = Fraction(1, 2**40)


def power_below(x: Fraction, exponent: Fraction) -> Fraction:
    """A rational at most x**exponent, within about 1e-12 of it, relatively; x in [0, 1]."""
    return _bound(x, exponent, below=True)


def power_above(x: Fraction, exponent: Fraction) -> Fraction:
    """A rational at least x**exponent, within about 1e-12 of it, relatively; x in [0, 1]."""
    return _bound(x, exponent, below=False)


def _bound(x: Fraction, exponent: Fraction, below: bool) -> Fraction:
    if x in (0, 1):
        return x
    if exponent.denominator == 1:
        return x**exponent.numerator
    guess = Fraction(float(x) ** float(exponent))
    width = _WIDTH
    while True:  # floating point proposes, integers decide
        proposal = _short(guess * (1 - width if below else 1 + width), below)
        if _at_most(proposal, x, exponent) if below else _at_least(proposal, x, exponent):
            return proposal
        width *= 2


def _short(value: Fraction, down: bool) -> Fraction:
    """`value` rounded to 50 significant bits."""
    scale = 1 << (50 + max(0, value.denominator.bit_length() - value.numerator.bit_length()))
    scaled = value * scale
    whole = scaled.numerator // scaled.denominator
    return Fraction(whole if down else whole + 1, scale)


def _at_most(y: Fraction, x: Fraction, exponent: Fraction) -> bool:
    """y <= x**(a/b), that is y**b <= x**a."""
    a, b = exponent.numerator, exponent.denominator
    left = y.numerator**b * x.denominator**a
    return left <= x.numerator**a * y.denominator**b


def _at_least(y: Fraction, x: Fraction, exponent: Fraction) -> bool:
    a, b = exponent.numerator, exponent.denominator
    left = y.numerator**b * x.denominator**a
    return left >= x.numerator**a * y.denominator**b
