"""Transport problems with known answers, which no solver found.

Exact values are `Fraction`. Values that a paper quotes rounded are `Decimal`, which keeps the
number of digits they were quoted with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cache
from types import MappingProxyType

from mdsd_opt.corpora.reproduce.khisti2025 import FIGURE_2
from mdsd_opt.drafts import (
    DraftScheme,
    DraftSetLaw,
    FixedPlusDrafts,
    GreedyDrafts,
    IndependentDrafts,
    MixtureDrafts,
    TopKDrafts,
    WithoutReplacement,
    WithReplacement,
)
from mdsd_opt.problem import TransportProblem

KnownValue = Fraction | Decimal


@dataclass(frozen=True, slots=True, eq=False)
class KnownProblem:
    """A problem in Fractions, alpha*, and acceptance rates by verifier; "optimal" as it is quoted.

    alpha* is the minimum over all subsets, by hand or by enumeration.
    """

    problem: TransportProblem
    optimum: Fraction
    known: Mapping[str, KnownValue] = field(default_factory=dict)


def matches(value: float | Fraction, known: KnownValue, tolerance: float = 1e-9) -> bool:
    """Whether `value` agrees with a known one: to `tolerance`, or to the digits quoted."""
    if isinstance(known, Decimal):
        exponent = known.as_tuple().exponent
        assert isinstance(exponent, int)  # no quoted value is infinite or NaN
        half_a_digit = Fraction(10) ** exponent / 2
        return abs(Fraction(value) - Fraction(known)) <= half_a_digit + Fraction(tolerance)
    return abs(Fraction(value) - known) <= tolerance


def law(text: str) -> list[Fraction]:
    return [Fraction(x) for x in text.split()]


TINY, TINIER = Fraction(1, 10**12), Fraction(1, 10**15)
THIRDS, HALVES, QUARTERS = law("1/3 1/3 1/3"), law("1/2 1/2"), law("1/4 1/4 1/4 1/4")
ONLY, SEVENTHS, DOMINATING = law("0 1 0"), law("1/7 4/7 2/7"), [1 - 2 * TINY, TINY, TINY]
FIRST, APART = law("1/2 1/4 1/4"), law("0 0 1/4 3/4")
GLS = "1/4 1/4 1/5 3/10", law("1/2 3/10 3/20 1/20")

#: Instances with exact values, and the worked examples of [GLS].
PUBLISHED: dict[str, tuple[str, DraftScheme, str, dict[str, KnownValue]]] = {
    "three_tokens_two_drafts": (
        "309/500 177/500 7/250", WithReplacement(law("373/1000 29/50 47/1000"), 2),
        "988871/1000000", {"rrs": Fraction(169277, 200000)},
    ),
    "three_tokens_three_drafts": (
        ".469 .124 .407", WithReplacement(law(".201 .275 .524"), 3),
        "1", {"rrs": Fraction(207227133, 250000000)},
    ),
    # K=2: the three likeliest drafts hold .95^2 of the drafts and .7 of the target
    "four_tokens_two_drafts": (
        GLS[0], WithReplacement(GLS[1], 2), ".7975",
        {"rrs": Decimal("0.7600"), "kseq": Decimal("0.7738"), "optimal": Decimal("0.7975")},
    ),
    "four_tokens_eight_drafts": (
        GLS[0], WithReplacement(GLS[1], 8), "1",
        {"rrs": Decimal("0.8274"), "kseq": Decimal("0.8862")},
    ),
}  # fmt: skip

#: Zeros, ties, certainty, tiny masses, where careless code breaks, and all schemes.
CORNERS: dict[str, tuple[str, DraftScheme, str | Fraction]] = {
    "zero_in_target": ("0 1/2 1/2", WithReplacement(THIRDS, 2), "8/9"),
    # Pairs of distinct tokens, each 1/3: {0, 1} may give its mass to 1, {0, 2} to 2.
    "zero_in_target_without": ("0 1/2 1/2", WithoutReplacement(THIRDS, 2), "1"),
    "zero_in_draft": ("1/2 1/4 1/4", WithReplacement(law("0 1/2 1/2"), 2), "1/2"),
    "zero_in_draft_without": ("1/2 1/4 1/4", WithoutReplacement(law("0 1/2 1/2"), 2), "1/2"),
    # The first two ratios are tied; H = {0, 1, 2} holds .9^2 of the drafts and .6 of the target.
    "tied_ratios": (".1 .2 .3 .4", WithReplacement(law(".2 .4 .3 .1"), 2), ".79"),
    "target_is_draft": ("1/7 4/7 2/7", WithReplacement(SEVENTHS, 2), "1"),
    "target_is_draft_without": ("1/7 4/7 2/7", WithoutReplacement(SEVENTHS, 2), "1"),
    "target_is_draft_single": ("1/7 4/7 2/7", WithReplacement(SEVENTHS, 1), "1"),
    "one_hot_target": ("0 1 0", WithReplacement(FIRST, 2), "7/16"),
    # 1 - Pr(drafts are 0 and 2) = 1 - (1/2 * 1/2 + 1/4 * 2/3)
    "one_hot_target_without": ("0 1 0", WithoutReplacement(FIRST, 2), "7/12"),
    "one_hot_draft": ("1/2 1/3 1/6", WithReplacement(ONLY, 3), "1/3"),
    "one_hot_draft_without": ("1/2 1/3 1/6", WithoutReplacement(ONLY, 3), "1/3"),
    "disjoint_supports": ("1/2 1/2 0 0", WithReplacement(APART, 2), "0"),
    "disjoint_supports_without": ("1/2 1/2 0 0", WithoutReplacement(APART, 2), "0"),
    "single_token": ("1", WithReplacement(law("1"), 3), "1"),
    "single_token_without": ("1", WithoutReplacement(law("1"), 3), "1"),
    "more_drafts_than_tokens": (".01 .99", WithReplacement(HALVES, 5), "783/800"),
    "more_drafts_than_tokens_without": (".01 .99", WithoutReplacement(HALVES, 5), "1"),
    "dominating_token": (
        ".1 .1 .8", WithReplacement(DOMINATING, 2), Fraction(11, 10) - (1 - 2 * TINY) ** 2
    ),
    # Half of the pairs with token 0 are {0, 1}; the pair {1, 2} has mass 2 tiny^2 / (1 - tiny).
    "dominating_token_without": (
        ".1 .1 .8", WithoutReplacement(DOMINATING, 2), Fraction(7, 10) + TINY**2 / (1 - TINY)
    ),
    "opposite_certainties": (
        f"{1 - TINIER} {TINIER}", WithReplacement([TINIER, 1 - TINIER], 2), 3 * TINIER - TINIER**2
    ),
    "uniform": ("1/4 1/4 1/4 1/4", WithReplacement(QUARTERS, 3), "1"),
    "uniform_without": ("1/4 1/4 1/4 1/4", WithoutReplacement(QUARTERS, 3), "1"),
    # Token 0 surely, then 1 or 2 with probability 3/4 and 1/4.
    "greedy": (".2 .2 .6", GreedyDrafts(law(".6 .3 .1"), 2), "13/20"),
    "top_k": (".2 .2 .6", TopKDrafts(law(".6 .3 .1"), 2), "2/5"),
    "greedy_without_rest": (".2 .2 .6", GreedyDrafts(ONLY, 3), "1/5"),
    "independent": (
        "1/8 1/8 3/4", IndependentDrafts([law("1/2 1/2 0"), law("0 1/2 1/2")]), "3/4"
    ),
    "set_law": (
        "1/2 1/4 1/4", DraftSetLaw(3, {(0, 2): Fraction(1, 4), (1,): Fraction(3, 4)}), "1/2"
    ),
    "sometimes_no_draft": (
        "1 0", DraftSetLaw(2, {(): Fraction(1, 4), (0,): Fraction(3, 4)}), "3/4"
    ),
    "one_or_two_drafts": (
        "1/4 3/4", MixtureDrafts([(Fraction(1, 2), WithReplacement(HALVES, k)) for k in (1, 2)]),
        "7/8",
    ),
    "fixed_plus_one": (".2 .2 .6", FixedPlusDrafts([0], WithReplacement(FIRST, 1)), "13/20"),
}  # fmt: skip


def _of_figure_2() -> Iterator[tuple[str, KnownProblem]]:
    """Two uniform drafts of three tokens against (first, x, 1 - first - x), Fig. 2 of [Khisti25].

    One token is drafted alone with probability 1/9, a pair holds both drafts with 4/9, so
    alpha* = 1 + min(0, least target - 1/9, sum of the two least targets - 4/9).
    """
    for side, (first, quoted) in FIGURE_2.items():
        for x, rates in quoted.items():
            p = [first, Fraction(x), 1 - first - Fraction(x)]
            least, second, _ = sorted(p)
            yield (
                f"uniform_draft_{side}_{x.replace('/', '_')}",
                KnownProblem(
                    TransportProblem(p, WithReplacement(THIRDS, 2)),
                    1 + min(Fraction(0), least - Fraction(1, 9), least + second - Fraction(4, 9)),
                    dict(zip(("optimal", "kseq", "rrs"), map(Decimal, rates), strict=True)),
                ),
            )


@cache
def known_problems() -> Mapping[str, KnownProblem]:
    """Every known problem by name."""
    listed = {
        name: KnownProblem(TransportProblem(law(p), drafts), Fraction(optimum), *known)
        for name, (p, drafts, optimum, *known) in (PUBLISHED | CORNERS).items()
    }
    return MappingProxyType({**dict(_of_figure_2()), **listed})
