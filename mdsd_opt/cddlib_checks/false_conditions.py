"""Wrong conditions for acceptance one, each close to the right one; the checks must refute them.

Irrational thresholds are rounded in favour of the claim (down where it asks too much, up where it
asks too little), so a counterexample to the rounded claim refutes the claim itself.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from mdsd_opt.cddlib_checks.condition import claimed_condition, subset_inequalities
from mdsd_opt.cddlib_checks.draft_laws import exact_models, mean_model
from mdsd_opt.cddlib_checks.irrational import power_above, power_below
from mdsd_opt.cddlib_checks.result import Evidence, Inequality
from mdsd_opt.cddlib_checks.subsets import (
    containment_table,
    masses_of_subsets,
    members,
    proper_subsets,
)
from mdsd_opt.drafts import DraftScheme

Threshold = Callable[[int], Fraction]


def false_condition(drafts: DraftScheme, name: str) -> Evidence:
    """Check the named wrong condition for these drafts."""
    return claimed_condition(drafts, CONDITIONS[name](drafts))


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
    table = containment_table(drafts.exact_support_law(), drafts.vocab_size)
    return _with_thresholds(drafts, lambda mask: factor * table[mask])


def _kept(drafts: DraftScheme, keep: Callable[[int], bool]) -> list[Inequality]:
    table = containment_table(drafts.exact_support_law(), drafts.vocab_size)
    every = subset_inequalities(table, drafts.vocab_size)
    return [x for mask, x in zip(proper_subsets(drafts.vocab_size), every, strict=True)
            if keep(mask)]  # fmt: skip


def _mean_power(drafts: DraftScheme) -> list[Inequality]:
    mass = masses_of_subsets(mean_model(drafts))
    return _with_thresholds(drafts, lambda mask: mass[mask] ** drafts.num_drafts)


def _single_power(drafts: DraftScheme) -> list[Inequality]:
    mass = masses_of_subsets(exact_models(drafts)[0])
    return _with_thresholds(drafts, lambda mask: mass[mask] ** drafts.num_drafts)


def _dropped_subset(vocab_size: int) -> int:
    """The first half of the tokens."""
    return (1 << max(1, vocab_size // 2)) - 1


CONDITIONS: dict[str, Callable[[DraftScheme], list[Inequality]]] = {
    "exponent_minus_tenth": lambda d: _power(d, Fraction(-1, 10)),
    "exponent_plus_tenth": lambda d: _power(d, Fraction(1, 10)),
    "exponent_plus_1e_4": lambda d: _power(d, Fraction(1, 10**4)),
    "thresholds_raised": lambda d: _scaled(d, 1 + Fraction(1, 10**9)),
    "thresholds_lowered": lambda d: _scaled(d, 1 - Fraction(1, 10**9)),
    "one_subset_dropped": lambda d: _kept(d, lambda m: m != _dropped_subset(d.vocab_size)),
    "one_size_dropped": lambda d: _kept(d, lambda m: m.bit_count() != max(1, d.vocab_size // 2)),
    "prefixes_only": lambda d: _kept(d, lambda m: m & (m + 1) == 0),
    "mean_draft_power": _mean_power,
    "with_replacement_formula_without_replacement": _single_power,
}
