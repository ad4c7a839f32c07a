"""Rational drafts for the checks: given by the user, or chosen to be generic and readable."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import lcm, prod
from numbers import Rational
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts import (
    DraftScheme,
    DraftSetLaw,
    IndependentDrafts,
    MixtureDrafts,
    WithoutReplacement,
    WithReplacement,
    batch_maker,
)
from mdsd_opt.errors import InvalidInput, UnsupportedScheme

#: Schemes that claims are about.
SCHEMES = (WithReplacement.scheme, WithoutReplacement.scheme, IndependentDrafts.scheme)


def drafts_for(scheme: str, vocab_size: int, num_drafts: int, draft: Any = None) -> DraftScheme:
    """Drafts of a scheme that a check is about.

    `draft` is q, shape (V,), of what `exact_number` takes; for independent drafts K of them; or a
    `DraftScheme` of that vocabulary and number of drafts. By default q is (1, 2, .., V) divided by
    its sum, rotated by one place for each further model.
    """
    if isinstance(draft, DraftScheme):  # or laws
        if (draft.vocab_size, draft.num_drafts) != (vocab_size, num_drafts):
            raise InvalidInput(
                f"the drafts have V = {draft.vocab_size} and K = {draft.num_drafts}, the check "
                f"V = {vocab_size} and K = {num_drafts}: they must agree"
            )
        require_written(None, draft)
        return draft
    make, has_many_models = batch_maker(scheme)
    if has_many_models:
        if draft is None:
            weights = list(range(1, vocab_size + 1))
            rotated = [weights[-k % vocab_size :] + weights[: -k % vocab_size]
                       for k in range(num_drafts)]  # fmt: skip
            return make([_normalised(row) for row in rotated], num_drafts)
        rows = list(draft)
        if len(rows) != num_drafts or any(isinstance(row, (str, Rational, float)) for row in rows):
            raise InvalidInput(
                f"this claim is about {num_drafts} different draft models: give {num_drafts} "
                "distributions, one for each"
            )
        return make([rational_distribution(row, vocab_size) for row in rows], num_drafts)
    if draft is None:
        return make(_normalised(range(1, vocab_size + 1)), num_drafts)
    return make(rational_distribution(draft, vocab_size), num_drafts)


def battery(scheme: str, vocab_size: int, num_drafts: int) -> list[DraftScheme]:
    """Several q that differ in kind: graded, uniform, geometric, and two of mixed magnitudes."""
    rows = [
        range(1, vocab_size + 1),
        [1] * vocab_size,
        [2**i for i in range(vocab_size)],
        [(3 * i * i + 1) % 17 + 1 for i in range(vocab_size)],
        [10 ** (i % 3) + i for i in range(vocab_size)],
    ]
    make, _ = batch_maker(scheme)
    return [make(_normalised(row), num_drafts) for row in rows]


def conditional_poisson(odds: Sequence[Fraction], num_drafts: int) -> DraftSetLaw:
    """Law of K distinct drafts, each set with a probability in proportion to its odds' product."""
    drafted = [i for i, x in enumerate(odds) if x]
    sets = combinations(drafted, min(num_drafts, len(drafted)))
    masses = {s: prod((odds[i] for i in s), start=Fraction(1)) for s in sets}
    total = sum(masses.values(), Fraction(0))
    return DraftSetLaw(len(odds), {s: mass / total for s, mass in masses.items()})


def mixed_numbers(q: Sequence[Fraction], num_drafts: int) -> MixtureDrafts:
    """Mixture of 1 to K drafts, with or without replacement, all with the same probability."""
    drafted = sum(x > 0 for x in q)
    parts: list[DraftScheme] = [WithReplacement(q, k) for k in range(1, num_drafts + 1)]
    parts += [WithoutReplacement(q, k) for k in range(2, min(num_drafts, drafted - 1) + 1)]
    return MixtureDrafts([(Fraction(1, len(parts)), part) for part in parts])


def rational_distribution(values: Any, vocab_size: int) -> list[Fraction]:
    """Validated q as Fractions that sum to one exactly."""
    if isinstance(values, str):
        values = values.split(",")
    listed = list(values) if isinstance(values, (list, tuple)) else to_numpy(values, "draft")
    try:
        numbers = [exact_number(x) for x in listed]
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"draft {values!r}: {error}. Give fractions such as 1/2,1/4,1/4"
        ) from error
    if len(numbers) != vocab_size:
        raise InvalidInput(
            f"draft has {len(numbers)} probabilities, vocab_size is {vocab_size}: give one for "
            "each token"
        )
    law = list(Distribution.of(numbers, "draft").exact())
    if law != numbers:
        raise InvalidInput(
            f"draft {values!r} sums to {sum(numbers, Fraction(0))}, not 1: exact checks take "
            "numbers as they are written, so give fractions that sum to one"
        )
    return law


def exact_number(x: Any) -> Fraction:
    """Number as written; `ValueError` for none, and for a float that rounds another.

    Text such as "0.1", "1/3" and ".5/2", Decimals and Fractions mean what they say. So does a float
    that is the decimal it prints, as 0.25; of 0.1 the bits hold another number.
    """
    if isinstance(x, str):
        above, _, below = x.partition("/")
        try:
            return Fraction(above.strip()) / Fraction(below.strip() or 1)
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"{x!r} is no number") from None
    try:
        number = Fraction(float(x) if isinstance(x, np.floating) else x)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{x!r} is no number") from None
    if isinstance(x, (float, np.floating)) and Fraction(repr(float(x))) != number:
        raise ValueError(
            f"{float(x)!r} is a float, whose bits hold {number}: write {str(float(x))!r} or a "
            "Fraction for the number that is meant, Fraction(x) for the bits"
        )
    return number


def require_written(target: Distribution | None, drafts: DraftScheme) -> None:
    """Raise `InvalidInput` unless the numbers of target and drafts are those that were written."""
    laws: list[Distribution] = []
    try:
        drafts.to_entry(laws.append)
    except UnsupportedScheme:  # a law of somebody's own
        laws = [*drafts.models]
    named = [(repr(drafts), law) for law in laws]
    for name, law in named if target is None else [("the target", target), *named]:
        try:
            numbers = tuple(exact_number(x) for x in law.given)
        except ValueError as error:
            raise InvalidInput(f"{name}: {error}") from error
        if law.exact() != numbers:
            raise InvalidInput(f"{name}: numbers that do not sum to one: give Fractions")


def _normalised(weights: Sequence[int]) -> list[Fraction]:
    total = sum(weights)
    return [Fraction(w, total) for w in weights]


def exact_models(drafts: DraftScheme) -> list[tuple[Fraction, ...]]:
    """Law q of each draft model: K of them for independent drafts, otherwise one."""
    return [model.exact() for model in drafts.models]


def set_law(drafts: DraftScheme) -> dict[tuple[int, ...], Fraction]:
    """Draft sets with their probabilities."""
    return drafts.law(exact=True).support_law().masses()


def mean_model(drafts: DraftScheme) -> list[Fraction]:
    """Average of the draft models."""
    models = exact_models(drafts)
    return [sum(column, Fraction(0)) / len(models) for column in zip(*models, strict=True)]


def document(drafts: DraftScheme) -> dict[str, Any]:
    """Drafts in the form of problem files."""
    if drafts.models:
        return drafts.to_entry(lambda model: [str(x) for x in model.exact()])
    law = set_law(drafts)
    return {
        "scheme": "set_law",
        "vocab_size": drafts.vocab_size,
        "sets": [list(s) for s in law],
        "masses": [str(mass) for mass in law.values()],
    }


def readable(drafts: DraftScheme) -> str:
    """Phrase for scopes: "q = (1, 2, 3)/6 with replacement"."""
    if not drafts.models:
        return repr(drafts)
    texts = [_over_common_denominator(q) for q in exact_models(drafts)]
    if len(texts) == 1:
        return f"q = {texts[0]} {drafts.title}"
    return ", ".join(f"q{k + 1} = {text}" for k, text in enumerate(texts)) + f" {drafts.title}"


def scope_of(drafts: DraftScheme, targets: str = "every target") -> str:
    """Scope for which a claim about given drafts was settled, in words."""
    return f"V = {drafts.vocab_size}, K = {drafts.num_drafts}, {readable(drafts)}, {targets}"


def _over_common_denominator(q: Sequence[Fraction]) -> str:
    scale = lcm(*(x.denominator for x in q))
    return f"({', '.join(str(int(x * scale)) for x in q)})/{scale}"
