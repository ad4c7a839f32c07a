"""Optima in fractions, and claims about them that are searched for counterexamples."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from support import oracles
from support.strategies import Case, cases

import mdsd_opt as mo
from mdsd_opt.cddlib_checks import law_search, optimum, search_laws
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, SolverError


@given(cases())
def test_the_optimum_is_exact_for_every_scheme(case: Case) -> None:
    assert optimum(case.problem) == oracles.optimum_by_flow(case.target, case.law)


def test_an_optimum_that_cut_and_flow_disagree_on_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = mo.TransportProblem([0.5, 0.5], mo.WithReplacement([0.25, 0.75], 2))
    plan = [((0,), 0, Fraction(1, 3))]
    monkeypatch.setattr(law_search, "exact_plan", lambda p, law: plan)
    with pytest.raises(SolverError, match="flow 1/3 differ"):
        optimum(problem)


def test_too_many_tokens_are_refused() -> None:
    p = np.full(13, 1 / 13)
    with pytest.raises(ProblemTooLarge, match="13 tokens"):
        optimum(mo.TransportProblem(p, mo.WithReplacement(p, 2)))


def curvature(scheme: Any) -> Any:
    def fails_by(p: Any, q: Any) -> Fraction:
        one, two, three = (optimum(mo.TransportProblem(p, scheme(q, k))) for k in (1, 2, 3))
        return (three - two) - (two - one)

    return fails_by


def test_a_false_claim_is_refuted_by_simple_laws() -> None:
    claim = curvature(mo.WithoutReplacement)
    found = search_laws(claim, 3, trials=200)
    assert found is not None
    p, q = found.laws
    assert sum(p) == sum(q) == 1
    assert claim(p, q) == found.excess > 0
    assert max(x.denominator for x in (*p, *q)) <= 4
    assert f"fails by {found.excess}" in str(found)


def test_no_weight_of_a_counterexample_can_be_lowered() -> None:
    def fails_by(p: Any, q: Any) -> Fraction:
        return p[0] - q[0] - Fraction(1, 3)

    found = search_laws(fails_by, 3, trials=200, rng=1)
    assert found is not None
    assert found.laws[0] == (1, 0, 0)
    assert sorted(found.laws[1]) == [0, 0, 1]
    assert found.excess == Fraction(2, 3)


def test_a_true_claim_stays_and_trials_are_repeatable() -> None:
    assert search_laws(curvature(mo.WithReplacement), 3, trials=60) is None
    claim = curvature(mo.GreedyDrafts)
    assert search_laws(claim, 4, rng=5) == search_laws(claim, 4, rng=5)


def test_three_laws_and_bad_input() -> None:
    found = search_laws(lambda p, q, r: p[0] + q[0] + r[0] - 2, 2, num_laws=3)
    assert found is not None
    assert len(found.laws) == 3
    with pytest.raises(InvalidInput, match="vocab_size is 0: give an integer of at least 1"):
        search_laws(lambda p, q: Fraction(0), 0)
