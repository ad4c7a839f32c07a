"""Transport problems with known answers.

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

_ENUMERATED = "minimum over all subsets by hand or by enumeration in exact arithmetic"


@dataclass(frozen=True, slots=True, eq=False)
class KnownProblem:
    """A problem whose answers were obtained without any solver.

    Attributes
    ----------
    name : str
    problem : TransportProblem
        In Fractions.
    optimum : Fraction or None
        alpha*, if it is known exactly.
    known : mapping of str to Fraction or Decimal
        Acceptance rates by verifier name; "optimal" where a paper quotes alpha* itself.
    origin : str
        Where the answers come from.
    """

    name: str
    problem: TransportProblem
    optimum: Fraction | None
    origin: str
    known: Mapping[str, KnownValue] = field(default_factory=dict)


def matches(value: float | Fraction, known: KnownValue, tolerance: float = 1e-9) -> bool:
    """Whether `value` agrees with a known one: to `tolerance`, or to the digits quoted."""
    if isinstance(known, Decimal):
        exponent = known.as_tuple().exponent
        assert isinstance(exponent, int)  # no quoted value is infinite or NaN
        half_a_digit = Fraction(10) ** exponent / 2
        return abs(Fraction(value) - Fraction(known)) <= half_a_digit + Fraction(tolerance)
    return abs(Fraction(value) - known) <= tolerance


@cache
def known_problems() -> Mapping[str, KnownProblem]:
    """Every known problem by name."""
    problems = [*_published(), *_corners(), *_other_schemes()]
    return MappingProxyType({known.name: known for known in problems})


def _fractions(*values: str) -> list[Fraction]:
    return [Fraction(value) for value in values]


def _published() -> Iterator[KnownProblem]:
    """Instances with exact values, and the worked examples of papers."""
    p, q = _fractions("309/500", "177/500", "7/250"), _fractions("373/1000", "29/50", "47/1000")
    yield KnownProblem(
        "three_tokens_two_drafts",
        TransportProblem(p, WithReplacement(q, 2)),
        Fraction(988871, 1000000),
        _ENUMERATED,
        {"rrs": Fraction(169277, 200000)},
    )
    p, q = _fractions(".469", ".124", ".407"), _fractions(".201", ".275", ".524")
    yield KnownProblem(
        "three_tokens_three_drafts",
        TransportProblem(p, WithReplacement(q, 3)),
        Fraction(1),
        _ENUMERATED,
        {"rrs": Fraction(207227133, 250000000)},
    )
    for side, (first, quoted) in FIGURE_2.items():
        yield from _uniform_draft(side, first, quoted)

    p, q = _fractions(".25", ".25", ".2", ".3"), _fractions(".5", ".3", ".15", ".05")
    # K=2: the three likeliest drafts hold .95^2 of the drafts and .7 of the target
    yield KnownProblem(
        "four_tokens_two_drafts",
        TransportProblem(p, WithReplacement(q, 2)),
        1 + Fraction(7, 10) - Fraction(95, 100) ** 2,
        "worked example of [GLS]; optimum " + _ENUMERATED,
        {"rrs": Decimal("0.7600"), "kseq": Decimal("0.7738"), "optimal": Decimal("0.7975")},
    )
    yield KnownProblem(
        "four_tokens_eight_drafts",
        TransportProblem(p, WithReplacement(q, 8)),
        Fraction(1),
        "worked example of [GLS]; optimum " + _ENUMERATED,
        {"rrs": Decimal("0.8274"), "kseq": Decimal("0.8862")},
    )


def _uniform_draft(
    side: str, first: Fraction, quoted: Mapping[str, tuple[str, str, str]]
) -> Iterator[KnownProblem]:
    """Two uniform drafts of three tokens against (first, x, 1 - first - x), Fig. 2 of [Khisti25].

    One token is drafted alone with probability 1/9, a pair holds both drafts with 4/9, so
    alpha* = 1 + min(0, least target - 1/9, sum of the two least targets - 4/9).
    """
    for x, (optimal, kseq, rrs) in quoted.items():
        p = [first, Fraction(x), 1 - first - Fraction(x)]
        least = sorted(p)
        yield KnownProblem(
            f"uniform_draft_{side}_{x.replace('/', '_')}",
            TransportProblem(p, WithReplacement([Fraction(1, 3)] * 3, 2)),
            1 + min(Fraction(0), least[0] - Fraction(1, 9), least[0] + least[1] - Fraction(4, 9)),
            "Fig. 2 of [Khisti25]",
            {"optimal": Decimal(optimal), "kseq": Decimal(kseq), "rrs": Decimal(rrs)},
        )


def _corner(name: str, p: list[Fraction], drafts: DraftScheme, optimum: Fraction) -> KnownProblem:
    return KnownProblem(name, TransportProblem(p, drafts), optimum, _ENUMERATED)


def _corners() -> Iterator[KnownProblem]:
    """Zeros, ties, certainty, tiny masses: where careless code breaks. Both plain schemes."""
    third, half = Fraction(1, 3), Fraction(1, 2)

    p = _fractions("0", "1/2", "1/2")
    yield _corner("zero_in_target", p, WithReplacement([third] * 3, 2), Fraction(8, 9))
    # Pairs of distinct tokens, each 1/3: {0, 1} may give its mass to 1, {0, 2} to 2.
    yield _corner("zero_in_target_without", p, WithoutReplacement([third] * 3, 2), Fraction(1))
    p, q = _fractions("1/2", "1/4", "1/4"), _fractions("0", "1/2", "1/2")
    yield _corner("zero_in_draft", p, WithReplacement(q, 2), half)
    yield _corner("zero_in_draft_without", p, WithoutReplacement(q, 2), half)

    p, q = _fractions(".1", ".2", ".3", ".4"), _fractions(".2", ".4", ".3", ".1")
    # The first two ratios are tied; H = {0, 1, 2} holds .9^2 of the drafts and .6 of the target.
    yield _corner("tied_ratios", p, WithReplacement(q, 2), Fraction(79, 100))

    q = _fractions("1/7", "4/7", "2/7")
    yield _corner("target_is_draft", q, WithReplacement(q, 2), Fraction(1))
    yield _corner("target_is_draft_without", q, WithoutReplacement(q, 2), Fraction(1))
    yield _corner("target_is_draft_single", q, WithReplacement(q, 1), Fraction(1))

    p, q = _fractions("0", "1", "0"), _fractions("1/2", "1/4", "1/4")
    yield _corner("one_hot_target", p, WithReplacement(q, 2), Fraction(7, 16))
    # 1 - Pr(drafts are 0 and 2) = 1 - (1/2 * 1/2 + 1/4 * 2/3)
    yield _corner("one_hot_target_without", p, WithoutReplacement(q, 2), Fraction(7, 12))

    p, q = _fractions("1/2", "1/3", "1/6"), _fractions("0", "1", "0")
    yield _corner("one_hot_draft", p, WithReplacement(q, 3), third)
    yield _corner("one_hot_draft_without", p, WithoutReplacement(q, 3), third)

    p, q = _fractions("1/2", "1/2", "0", "0"), _fractions("0", "0", "1/4", "3/4")
    yield _corner("disjoint_supports", p, WithReplacement(q, 2), Fraction(0))
    yield _corner("disjoint_supports_without", p, WithoutReplacement(q, 2), Fraction(0))

    yield _corner("single_token", [Fraction(1)], WithReplacement([Fraction(1)], 3), Fraction(1))
    yield _corner(
        "single_token_without", [Fraction(1)], WithoutReplacement([Fraction(1)], 3), Fraction(1)
    )
    p = _fractions("1/100", "99/100")
    yield _corner(
        "more_drafts_than_tokens", p, WithReplacement([half, half], 5), Fraction(783, 800)
    )
    yield _corner(
        "more_drafts_than_tokens_without", p, WithoutReplacement([half, half], 5), Fraction(1)
    )

    tiny = Fraction(1, 10**12)
    p, q = _fractions("1/10", "1/10", "4/5"), [1 - 2 * tiny, tiny, tiny]
    yield _corner(
        "dominating_token", p, WithReplacement(q, 2), Fraction(1, 10) + 1 - (1 - 2 * tiny) ** 2
    )
    # Half of the pairs with token 0 are {0, 1}; the pair {1, 2} has mass 2 tiny^2 / (1 - tiny).
    yield _corner(
        "dominating_token_without",
        p,
        WithoutReplacement(q, 2),
        Fraction(7, 10) + tiny**2 / (1 - tiny),
    )
    tiny = Fraction(1, 10**15)
    yield _corner(
        "opposite_certainties",
        [1 - tiny, tiny],
        WithReplacement([tiny, 1 - tiny], 2),
        3 * tiny - tiny**2,
    )

    uniform = [Fraction(1, 4)] * 4
    yield _corner("uniform", uniform, WithReplacement(uniform, 3), Fraction(1))
    yield _corner("uniform_without", uniform, WithoutReplacement(uniform, 3), Fraction(1))


def _other_schemes() -> Iterator[KnownProblem]:
    p, q = _fractions("1/5", "1/5", "3/5"), _fractions("3/5", "3/10", "1/10")
    # Token 0 surely, then 1 or 2 with probability 3/4 and 1/4.
    yield _corner("greedy", p, GreedyDrafts(q, 2), Fraction(13, 20))
    yield _corner("top_k", p, TopKDrafts(q, 2), Fraction(2, 5))
    yield _corner("greedy_without_rest", p, GreedyDrafts(_fractions("0", "1", "0"), 3), p[1])

    first, second = _fractions("1/2", "1/2", "0"), _fractions("0", "1/2", "1/2")
    p = _fractions("1/8", "1/8", "3/4")
    yield _corner("independent", p, IndependentDrafts([first, second]), Fraction(3, 4))

    p = _fractions("1/2", "1/4", "1/4")
    law = {(0, 2): Fraction(1, 4), (1,): Fraction(3, 4)}
    yield _corner("set_law", p, DraftSetLaw(3, law), Fraction(1, 2))
    nothing = {(): Fraction(1, 4), (0,): Fraction(3, 4)}
    yield _corner(
        "sometimes_no_draft", _fractions("1", "0"), DraftSetLaw(2, nothing), Fraction(3, 4)
    )

    half = Fraction(1, 2)
    one_or_two = [(half, WithReplacement([half, half], k)) for k in (1, 2)]
    p = _fractions("1/4", "3/4")
    yield _corner("one_or_two_drafts", p, MixtureDrafts(one_or_two), Fraction(7, 8))

    p, q = _fractions("1/5", "1/5", "3/5"), _fractions("1/2", "1/4", "1/4")
    fixed = FixedPlusDrafts([0], WithReplacement(q, 1))
    yield _corner("fixed_plus_one", p, fixed, Fraction(13, 20))
