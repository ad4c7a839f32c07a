"""The transport problem: its value, its cuts, and the duality between them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from support import oracles
from support.strategies import Case, cases

from mdsd_opt import TransportProblem, WithReplacement
from mdsd_opt.errors import InvalidDistribution, InvalidInput


def masks(vocab_size: int) -> list[np.ndarray]:
    return [
        np.array([(h >> i) & 1 == 1 for i in range(vocab_size)]) for h in range(1 << vocab_size)
    ]


@given(cases())
def test_the_best_transport_is_the_smallest_cut(case: Case) -> None:
    """alpha* = 1 + min_H P(H) - Q(H) for every law of the drafts [Hu25]."""
    assert oracles.optimum_by_flow(case.target, case.law) == oracles.optimum_over_subsets(
        case.target, case.law
    )


@given(cases())
def test_cut_values(case: Case) -> None:
    problem = case.problem
    optimum = oracles.optimum_by_flow(case.target, case.law)
    values = [problem.law(True).cut_value(h) for h in masks(problem.vocab_size)]
    assert min(values) == optimum
    for subset, exact in zip(masks(problem.vocab_size), values, strict=True):
        assert problem.cut_value(subset) == pytest.approx(float(exact), abs=1e-14)


def test_a_cut_needs_a_mask() -> None:
    problem = TransportProblem([0.5, 0.5], WithReplacement([0.5, 0.5], 2))
    for cut in (problem.cut_value, problem.law(True).cut_value):
        for bad in ([True], [0, 1], "HT"):
            with pytest.raises(InvalidInput):
                cut(bad)


def test_facts() -> None:
    problem = TransportProblem([Fraction(1, 3), Fraction(2, 3)], WithReplacement([0.5, 0.5], 4))
    assert (problem.vocab_size, problem.num_drafts) == (2, 4)
    assert problem.exact_target == (Fraction(1, 3), Fraction(2, 3))
    assert "vocab_size=2" in repr(problem)
    assert "WithReplacement" in repr(problem)
    with pytest.raises(ValueError, match="read-only"):
        problem.target[0] = 1.0


def test_vocabularies_must_agree() -> None:
    with pytest.raises(InvalidInput, match=r"target has 3 tokens and the drafts have 2"):
        TransportProblem([0.5, 0.25, 0.25], WithReplacement([0.5, 0.5], 2))


def test_the_target_must_be_a_distribution() -> None:
    with pytest.raises(InvalidDistribution, match=r"target\[1\] is -0\.5, negative"):
        TransportProblem([1.5, -0.5], WithReplacement([0.5, 0.5], 2))
