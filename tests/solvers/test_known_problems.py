"""The known answers hold: each optimum against enumeration, each quoted value against the exact."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from support import oracles
from support.known_problems import KnownProblem, known_problems, matches


def law_of(known: KnownProblem) -> oracles.Law:
    """Draft sets of the problem, as tuples (the schemes themselves are tested elsewhere)."""
    return dict(known.problem.drafts.exact_support_law())


@pytest.mark.parametrize("name", known_problems())
def test_optimum(name: str) -> None:
    known = known_problems()[name]
    law = law_of(known)
    optimum = oracles.optimum_over_subsets(known.problem.exact_target, law)
    assert oracles.optimum_by_flow(known.problem.exact_target, law) == optimum
    assert known.optimum == optimum
    if "optimal" in known.known:
        assert matches(optimum, known.known["optimal"])


@pytest.mark.parametrize("name", known_problems())
def test_no_verifier_beats_the_optimum(name: str) -> None:
    known = known_problems()[name]
    assert known.optimum is not None
    for value in known.known.values():
        assert Fraction(value) <= known.optimum + Fraction(1, 20000)


def test_names_and_origins() -> None:
    for name, known in known_problems().items():
        assert known.name == name
        assert known.origin


def test_quoted_values_match_to_their_digits() -> None:
    assert matches(0.82585, Decimal("0.8258"))
    assert not matches(0.82586, Decimal("0.8258"))
    assert matches(Fraction(1, 3), Fraction(1, 3))
    assert not matches(0.3333333, Fraction(1, 3))


def test_recursive_rejection_sampling() -> None:
    """rrs accepts 1 - prod (1 - r_k), r_k = sum min(p_k, q), p_k the residual so far."""
    for known in known_problems().values():
        if "rrs" not in known.known:
            continue
        p, q = known.problem.exact_target, known.problem.drafts.exact_q  # type: ignore[attr-defined]
        rejected = Fraction(1)
        for _ in range(known.problem.num_drafts):
            accepted = sum(map(min, p, q))
            rejected *= 1 - accepted
            if accepted < 1:
                p = [max(a - b, Fraction(0)) / (1 - accepted) for a, b in zip(p, q, strict=True)]
        assert matches(1 - rejected, known.known["rrs"]), known.name
