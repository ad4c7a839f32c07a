"""The known answers hold: each optimum against enumeration, each quoted value against the exact."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from support import oracles
from support.known_problems import KnownProblem, known_problems, matches


def law_of(known: KnownProblem) -> oracles.Law:
    """Draft sets of the problem, as tuples (the schemes themselves are tested elsewhere)."""
    return dict(known.problem.drafts.law(True).support_law().masses())


@pytest.mark.parametrize("name", known_problems())
def test_optimum(name: str) -> None:
    known = known_problems()[name]
    law = law_of(known)
    optimum = oracles.optimum_over_subsets(known.problem.exact_target, law)
    assert oracles.optimum_by_flow(known.problem.exact_target, law) == optimum
    assert known.optimum == optimum
    if "optimal" in known.known:
        assert matches(optimum, known.known["optimal"])


def test_quoted_values_match_to_their_digits() -> None:
    assert matches(0.82585, Decimal("0.8258"))
    assert not matches(0.82586, Decimal("0.8258"))
    assert matches(Fraction(1, 3), Fraction(1, 3))
    assert not matches(0.3333333, Fraction(1, 3))
