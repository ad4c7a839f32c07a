"""How likely tokens are to be drafted, and the bound on the optimum that follows from that."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from support import oracles
from support.strategies import Case, cases

import mdsd_opt as mo
from mdsd_opt.drafts import inclusion_probabilities


def exact_inclusion(case: Case) -> list[Fraction]:
    found = [Fraction(0)] * len(case.target)
    for drafts, mass in case.law.items():
        for token in {*drafts} - {-1}:
            found[token] += mass
    return found


@given(cases())
def test_inclusion_probabilities_are_those_of_the_listed_law(case: Case) -> None:
    exact = [float(x) for x in exact_inclusion(case)]
    assert inclusion_probabilities(case.drafts) == pytest.approx(np.array(exact), abs=1e-12)


@given(cases())
def test_the_optimum_is_below_the_bound(case: Case) -> None:
    least = [min(p, x) for p, x in zip(case.target, exact_inclusion(case), strict=True)]
    bound = min(sum(least, Fraction(0)), Fraction(1))
    assert oracles.optimum_by_flow(case.target, case.law) <= bound
    assert mo.inclusion_bound(case.problem) == pytest.approx(float(bound), abs=1e-12)


def by_containment(drafts: mo.WithoutReplacement) -> np.ndarray:
    found = []
    for i in range(drafts.vocab_size):
        others = np.arange(drafts.vocab_size) != i
        found.append(1.0 - drafts.containment(others))
    return np.array(found)


@pytest.mark.parametrize("num_drafts", [3, 4, 9])
@pytest.mark.parametrize("spread", [0.5, 3.0, 12.0])
def test_without_replacement_agrees_with_containment(num_drafts: int, spread: float) -> None:
    """Light tokens by a series, heavy ones without themselves; from flat laws to steep ones."""
    q = mo.softmax(spread * np.random.default_rng(1).standard_normal(60))
    drafts = mo.WithoutReplacement(q, num_drafts)
    found = inclusion_probabilities(drafts)
    assert found == pytest.approx(by_containment(drafts), abs=2e-12)
    assert found.sum() == pytest.approx(num_drafts, abs=1e-10)


def test_many_rare_tokens_beside_few_likely_ones() -> None:
    rng = np.random.default_rng(2)
    q = mo.softmax(np.concatenate([8.0 + rng.standard_normal(5), rng.standard_normal(20_000)]))
    drafts = mo.WithoutReplacement(q, 4)
    found = inclusion_probabilities(drafts)
    assert found.sum() == pytest.approx(4.0, abs=1e-9)
    some = [0, 3, 4, 5, 700, 20_004]
    for i in some:
        assert found[i] == pytest.approx(
            1.0 - drafts.containment(np.arange(q.size) != i), abs=2e-12
        )
    flat = mo.WithoutReplacement(np.full(20_000, 1 / 20_000), 5)
    assert inclusion_probabilities(flat) == pytest.approx(np.full(20_000, 5 / 20_000), rel=1e-9)
