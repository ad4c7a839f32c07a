"""The two water levels: the marginal is feasible and reaches the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import oracles
from support.strategies import PREFIX_SCHEMES, Case, cases, distributions

from mdsd_opt.drafts import FixedPlusDrafts, PrefixDraftScheme, WithReplacement
from mdsd_opt.problem import water_filling
from mdsd_opt.problem.water_filling import water_fill
from mdsd_opt.solvers import exact_optimum


def exact_water_fill(p: Sequence[Fraction], *given: Any) -> list[Fraction]:
    return water_fill(np.array(p, dtype=object), *given).values.tolist()


def drafts_of(case: Case) -> PrefixDraftScheme:
    assert isinstance(case.drafts, PrefixDraftScheme)
    return case.drafts


@given(cases(PREFIX_SCHEMES))
def test_exact_marginal_of_the_optimal_subset(case: Case) -> None:
    optimum, subset = exact_optimum(case.problem)
    inside = oracles.containment(case.law, np.flatnonzero(subset).tolist())
    x = exact_water_fill(case.target, drafts_of(case), subset, inside)

    assert sum(x) == 1
    assert sum((x[i] for i in np.flatnonzero(subset)), Fraction(0)) == inside
    assert sum(map(min, case.target, x)) == optimum
    # Hall's condition: some rule that always returns a draft has this marginal
    for members in oracles.subsets(len(x)):
        assert sum((x[i] for i in members), Fraction(0)) >= oracles.containment(case.law, members)


@given(cases(PREFIX_SCHEMES))
def test_float_marginal_is_the_exact_one(case: Case) -> None:
    _, subset = exact_optimum(case.problem)
    drafts = drafts_of(case)
    inside = drafts.law(True).containment(subset)
    exact = exact_water_fill(case.target, drafts, subset, inside)
    found = water_fill(case.problem.target, drafts, subset, float(inside))
    np.testing.assert_allclose(found.values, [float(x) for x in exact], atol=1e-14)


@given(cases(["with_replacement", "without_replacement", "mixture"]))
def test_levels(case: Case) -> None:
    """max(p, c w) inside H, min(p, c' w) outside; c <= c'."""
    drafts = drafts_of(case)
    assume(not drafts.always_drafted.size)
    _, subset = exact_optimum(case.problem)
    p, w = case.problem.target, drafts.weights
    found = water_fill(p, drafts, subset, drafts.containment(subset))
    raised, capped = found.raise_level, found.cap_level
    expected = np.maximum(p, raised * w)
    outside = ~subset & (w > 0)
    expected[outside] = p[outside] if np.isinf(capped) else np.minimum(p, capped * w)[outside]
    expected[w == 0] = 0.0
    np.testing.assert_allclose(found.values, expected, atol=1e-14)
    assert raised <= capped * (1 + 1e-12)


def test_fixed_tokens_that_are_drafted_again() -> None:
    """Half of the draft sets are {2} alone: its mass must be at least a half."""
    drafts = FixedPlusDrafts([2], WithReplacement([0.0, 0.0, 0.5, 0.5], 1))
    subset = np.array([False, False, True, True])
    found = water_fill(np.array([0.0, 1.0, 0.0, 0.0]), drafts, subset, 1.0)
    assert found.values[2] >= 0.5
    assert found.values.sum() == 1.0


def test_the_target_is_left_as_it_is() -> None:
    p = np.array([0.9, 0.1])
    water_fill(p, WithReplacement([0.1, 0.9], 2), np.array([False, True]), 0.81)
    np.testing.assert_array_equal(p, [0.9, 0.1])


@given(st.data())
def test_sub_normalised_targets(data: st.DataObject) -> None:
    """With some mass of p set aside (tokens drafted anyway), the marginal still sums to one."""
    size = data.draw(st.integers(2, 5))
    p = data.draw(distributions(size))
    q = data.draw(distributions(size))
    aside = data.draw(st.integers(0, size - 1))
    p = [Fraction(0) if i == aside else x for i, x in enumerate(p)]
    law = oracles.with_replacement(q, 2)
    members = min(
        oracles.subsets(size),
        key=lambda h: sum((p[i] for i in h), Fraction(0)) - oracles.containment(law, h),
    )
    inside = oracles.containment(law, members)
    subset = np.isin(np.arange(size), members)
    drafts = WithReplacement(q, 2)
    x = exact_water_fill(p, drafts, subset, inside)
    assert sum(x) == 1
    assert sum(map(min, p, x)) == 1 + sum((p[i] for i in members), Fraction(0)) - inside
    for group in oracles.subsets(size):
        assert sum((x[i] for i in group), Fraction(0)) >= oracles.containment(law, group)


@pytest.mark.parametrize("seed", range(60))
def test_levels_without_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any subset and any mass on it: what a sort gives, with ties, zeros and tiny weights."""
    rng = np.random.default_rng(seed)
    size = int(rng.choice([1, 5, 60, 3000]))
    weights = [
        rng.dirichlet(np.full(size, 0.5)) + 1e-300,
        rng.integers(1, 4, size).astype(float),
        2.0 ** rng.integers(-60, 1, size),
    ]
    p, q = (x / x.sum() for x in (weights[rng.integers(3)], weights[rng.integers(3)]))
    p[rng.random(size) < 0.2] = 0.0
    if seed % 5 == 0:
        p = q.copy()
    drafts = WithReplacement(q, 2)
    for share in (0.0, 0.5, 1.0):
        subset = rng.random(size) < share
        inside = float(rng.choice([0.0, 1.0, rng.random(), p[subset].sum()]))
        ordered = water_fill(p, drafts, subset, inside)
        with monkeypatch.context() as change:
            change.setattr(water_filling, "_MANY_TOKENS", 0)
            found = water_fill(p, drafts, subset, inside)
        np.testing.assert_allclose(found.values, ordered.values, rtol=0, atol=1e-12)
