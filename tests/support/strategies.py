"""Hypothesis strategies: integer weights normalised to Fractions, so that zeros and ties are common
and failures shrink to small numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from hypothesis import strategies as st
from support import oracles

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


@dataclass(frozen=True)
class Case:
    """A problem of the package beside the same problem in plain numbers.

    `law` is the law of the ordered draft tuples, enumerated from the definition of the scheme.
    """

    target: list[Fraction]
    drafts: DraftScheme
    law: oracles.Law

    @cached_property
    def problem(self) -> TransportProblem:
        return TransportProblem(self.target, self.drafts)


@st.composite
def distributions(draw: st.DrawFn, size: int) -> list[Fraction]:
    """Probabilities n_i / sum(n), n_i in 0..9."""
    weights = draw(
        st.lists(st.integers(0, 9), min_size=size, max_size=size).filter(lambda n: sum(n) > 0)
    )
    total = sum(weights)
    return [Fraction(n, total) for n in weights]


Drawn = tuple[DraftScheme, oracles.Law]


def _single_model(
    scheme: Callable[[Any, int], DraftScheme],
    law: Callable[[Sequence[Fraction], int], oracles.Law],
) -> Callable[[st.DrawFn, int, int], Drawn]:
    def build(draw: st.DrawFn, size: int, max_drafts: int) -> Drawn:
        q, k = draw(distributions(size)), draw(st.integers(1, max_drafts))
        return scheme(q, k), law(q, k)

    return build


def _independent(draw: st.DrawFn, size: int, max_drafts: int) -> Drawn:
    models = [draw(distributions(size)) for _ in range(draw(st.integers(1, max_drafts)))]
    return IndependentDrafts(models), oracles.independent(models)


def _set_law(draw: st.DrawFn, size: int, max_drafts: int) -> Drawn:
    sets = draw(
        st.lists(
            st.frozensets(st.integers(0, size - 1), max_size=max_drafts),
            min_size=1,
            max_size=5,
            unique=True,
        )
    )
    masses = draw(distributions(len(sets)))
    keys = [tuple(sorted(members)) for members in sets]
    law = {key: mass for key, mass in zip(keys, masses, strict=True) if mass}
    return DraftSetLaw(size, dict(zip(keys, masses, strict=True))), law


def _mixture(draw: st.DrawFn, size: int, max_drafts: int) -> Drawn:
    q = draw(distributions(size))
    positive = sum(x > 0 for x in q)
    # a component that drafts its whole support has no prefix order in common with the others
    components: list[WithReplacement | WithoutReplacement] = []
    laws = []
    for _ in range(draw(st.integers(1, 3))):
        k = draw(st.integers(1, max_drafts))
        if k < positive and draw(st.booleans()):
            components.append(WithoutReplacement(q, k))
            laws.append(oracles.without_replacement(q, k))
        else:
            components.append(WithReplacement(q, k))
            laws.append(oracles.with_replacement(q, k))
    masses = draw(distributions(len(components)))
    drafts = MixtureDrafts(list(zip(masses, components, strict=True)))
    return drafts, oracles.mixture(masses, laws)


def _fixed_plus(draw: st.DrawFn, size: int, max_drafts: int) -> Drawn:
    fixed = draw(st.lists(st.integers(0, size - 1), max_size=2, unique=True))
    q, k = draw(distributions(size)), draw(st.integers(1, max(1, max_drafts - len(fixed))))
    without = k < sum(x > 0 for x in q) and draw(st.booleans())
    inner = WithoutReplacement(q, k) if without else WithReplacement(q, k)
    law = (oracles.without_replacement if without else oracles.with_replacement)(q, k)
    return FixedPlusDrafts(fixed, inner), {(*fixed, *drafts): m for drafts, m in law.items()}


#: Kinds of schemes that a mixture or a fixed set is given in tests; their law lists them as drawn.
_MIXABLE = (
    _single_model(WithReplacement, oracles.with_replacement),
    _single_model(WithoutReplacement, oracles.without_replacement),
    _independent,
    _set_law,
)


def _mixed_models(draw: st.DrawFn, size: int, max_drafts: int) -> Drawn:
    """Components of different models and kinds."""
    drawn = [
        draw(st.sampled_from(_MIXABLE))(draw, size, max_drafts)
        for _ in range(draw(st.integers(2, 3)))
    ]
    masses = draw(distributions(len(drawn)))
    drafts = MixtureDrafts(list(zip(masses, [scheme for scheme, _ in drawn], strict=True)))
    return drafts, oracles.mixture(masses, [law for _, law in drawn])


def _fixed_beside_any(draw: st.DrawFn, size: int, max_drafts: int) -> Drawn:
    fixed = draw(st.lists(st.integers(0, size - 1), max_size=2, unique=True))
    builder = draw(st.sampled_from((*_MIXABLE, _mixed_models)))
    inner, law = builder(draw, size, max(1, max_drafts - len(fixed)))
    return FixedPlusDrafts(fixed, inner), {(*fixed, *drafts): m for drafts, m in law.items()}


_BUILDERS: dict[str, Callable[[st.DrawFn, int, int], Drawn]] = {
    "with_replacement": _single_model(WithReplacement, oracles.with_replacement),
    "without_replacement": _single_model(WithoutReplacement, oracles.without_replacement),
    "greedy": _single_model(GreedyDrafts, oracles.greedy),
    "top_k": _single_model(TopKDrafts, oracles.top_k),
    "independent": _independent,
    "set_law": _set_law,
    "mixture": _mixture,
    "fixed_plus": _fixed_plus,
    "mixed_models": _mixed_models,
    "fixed_beside_any": _fixed_beside_any,
}

SCHEMES = tuple(_BUILDERS)
#: These have no prefix order, or not always.
UNSORTED_SCHEMES = ("independent", "set_law", "mixed_models", "fixed_beside_any")
PREFIX_SCHEMES = tuple(name for name in SCHEMES if name not in UNSORTED_SCHEMES)


@st.composite
def cases(
    draw: st.DrawFn,
    schemes: Sequence[str] = SCHEMES,
    max_vocab: int = 5,
    max_drafts: int = 3,
) -> Case:
    """A target and drafts of any of the schemes over 1..max_vocab tokens, K > V included."""
    size = draw(st.integers(1, max_vocab))
    scheme = draw(st.sampled_from(list(schemes)))
    drafts, law = _BUILDERS[scheme](draw, size, max_drafts)
    return Case(draw(distributions(size)), drafts, law)


@st.composite
def problems(
    draw: st.DrawFn, schemes: Sequence[str] = SCHEMES, max_vocab: int = 4, max_drafts: int = 3
) -> TransportProblem:
    """As `cases`, or with p = q where one draft model is shared."""
    case = draw(cases(schemes, max_vocab, max_drafts))
    q = getattr(case.drafts.law(True), "q", None)
    same = q is not None and q.ndim == 1 and draw(st.integers(0, 4)) == 0
    return TransportProblem(q if same else case.target, case.drafts)
