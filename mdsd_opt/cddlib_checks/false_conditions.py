"""Wrong conditions for acceptance one, each close to the right one; the checks must refute them.

Irrational thresholds are rounded in favour of the claim (down where it asks too much, up where it
asks too little), so a counterexample to the rounded claim refutes the claim itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mdsd_opt.cddlib_checks.condition import claimed_condition, subset_inequalities
from mdsd_opt.cddlib_checks.draft_laws import exact_models, mean_model, set_law
from mdsd_opt.cddlib_checks.result import Evidence, Inequality
from mdsd_opt.cddlib_checks.subsets import (
    containment_table,
    masses_of_subsets,
    members,
    proper_subsets,
)
from mdsd_opt.drafts import DraftScheme

Threshold = Callable[[int], Fraction]

#: Relative difference, about, of the bounds of powers.
_WIDTH = Fraction(1, 2**40)


def _with_thresholds(drafts: DraftScheme, threshold: Threshold) -> list[Inequality]:
    size = drafts.vocab_size
    return [
        Inequality.on_subset(size, members(mask), threshold(mask)) for mask in proper_subsets(size)
    ]


def _power(drafts: DraftScheme, change: Fraction) -> list[Inequality]:
    mass = masses_of_subsets(exact_models(drafts)[0])
    exponent = drafts.num_drafts + change
    bound = power_below if change < 0 else power_above
    return _with_thresholds(drafts, lambda mask: bound(mass[mask], exponent))


def _scaled(drafts: DraftScheme, factor: Fraction) -> list[Inequality]:
    table = containment_table(set_law(drafts), drafts.vocab_size)
    return _with_thresholds(drafts, lambda mask: factor * table[mask])


def _kept(drafts: DraftScheme, keep: Callable[[int], bool]) -> list[Inequality]:
    table = containment_table(set_law(drafts), drafts.vocab_size)
    every = subset_inequalities(table, drafts.vocab_size)
    return [x for mask, x in zip(proper_subsets(drafts.vocab_size), every, strict=True)
            if keep(mask)]  # fmt: skip


def _of_one_model(drafts: DraftScheme, model: Sequence[Fraction]) -> list[Inequality]:
    mass = masses_of_subsets(model)
    return _with_thresholds(drafts, lambda mask: mass[mask] ** drafts.num_drafts)


def _dropped_subset(vocab_size: int) -> int:
    """Mask of the first half of the tokens."""
    return (1 << max(1, vocab_size // 2)) - 1


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A wrong condition, for the drafts of one scheme."""

    scheme: str
    statement: str
    condition: Callable[[DraftScheme], list[Inequality]]


_WITH, _WITHOUT = "with_replacement", "without_replacement"

NEAR_MISSES = {
    "exponent_minus_tenth": NearMiss(
        _WITH, "acceptance one iff P(S) >= q(S)^(K - 1/10)",
        lambda d: _power(d, Fraction(-1, 10))),
    "exponent_plus_tenth": NearMiss(
        _WITH, "acceptance one iff P(S) >= q(S)^(K + 1/10)",
        lambda d: _power(d, Fraction(1, 10))),
    "exponent_plus_1e_4": NearMiss(
        _WITH, "acceptance one iff P(S) >= q(S)^(K + 1/10000)",
        lambda d: _power(d, Fraction(1, 10**4))),
    "thresholds_raised": NearMiss(
        _WITH, "acceptance one iff P(S) >= (1 + 1e-9) q(S)^K",
        lambda d: _scaled(d, 1 + Fraction(1, 10**9))),
    "thresholds_lowered": NearMiss(
        _WITH, "acceptance one iff P(S) >= (1 - 1e-9) q(S)^K",
        lambda d: _scaled(d, 1 - Fraction(1, 10**9))),
    "one_subset_dropped": NearMiss(
        _WITH, "the set of the first V/2 tokens may be left out of the condition",
        lambda d: _kept(d, lambda m: m != _dropped_subset(d.vocab_size))),
    "one_size_dropped": NearMiss(
        _WITH, "the sets of V/2 tokens may be left out of the condition",
        lambda d: _kept(d, lambda m: m.bit_count() != max(1, d.vocab_size // 2))),
    "prefixes_only": NearMiss(
        _WITH, "acceptance one iff P(S) >= q(S)^K for the prefixes S of one fixed order",
        lambda d: _kept(d, lambda m: m & (m + 1) == 0)),
    "mean_draft_power": NearMiss(
        "independent", "for different drafts, acceptance one iff P(S) >= (mean q)(S)^K",
        lambda d: _of_one_model(d, mean_model(d))),
    "with_replacement_formula_without_replacement": NearMiss(
        _WITHOUT, "without replacement, acceptance one iff P(S) >= q(S)^K",
        lambda d: _of_one_model(d, exact_models(d)[0])),
}  # fmt: skip


def near_miss(drafts: DraftScheme, name: str) -> Evidence:
    """Check the named wrong condition for these drafts."""
    return claimed_condition(drafts, NEAR_MISSES[name].condition(drafts))


def power_below(x: Fraction, exponent: Fraction) -> Fraction:
    """Rational at most x**exponent, within about 1e-12 of it, relatively; x in [0, 1]."""
    return _bound(x, exponent, below=True)


def power_above(x: Fraction, exponent: Fraction) -> Fraction:
    """Rational at least x**exponent, within about 1e-12 of it, relatively; x in [0, 1]."""
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
        if _is_bound(proposal, x, exponent, below):
            return proposal
        width *= 2


def _short(value: Fraction, down: bool) -> Fraction:
    """Given `value` rounded to 50 significant bits."""
    scale = 1 << (50 + max(0, value.denominator.bit_length() - value.numerator.bit_length()))
    scaled = value * scale
    whole = scaled.numerator // scaled.denominator
    return Fraction(whole if down else whole + 1, scale)


def _is_bound(y: Fraction, x: Fraction, exponent: Fraction, below: bool) -> bool:
    """Whether y <= x**(a/b), that is y**b <= x**a; or >= for bounds from above."""
    a, b = exponent.numerator, exponent.denominator
    left, right = y.numerator**b * x.denominator**a, x.numerator**a * y.denominator**b
    return left <= right if below else left >= right
