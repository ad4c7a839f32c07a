"""Every verification algorithm: exactly lossless, with the acceptance rate it claims."""

from __future__ import annotations

import pickle
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import oracles
from support.known_problems import known_problems, matches
from support.strategies import Case, cases, problems
from support.verifier_table import EXAMPLES, TABLE, P

from mdsd_opt import (
    TransportProblem,
    WithoutReplacement,
    WithReplacement,
    solve,
    verifiers,
)
from mdsd_opt.drafts import PrefixDraftScheme
from mdsd_opt.solvers import exact_optimum
from mdsd_opt.verifiers import Verifier
from mdsd_opt.verifiers.importance_sampling import ImportanceSampling
from mdsd_opt.verifiers.lp import LinearProgramme

#: These accept as often as is possible wherever they are lossless.
OPTIMAL = ("optimal", "lp", "greedy", "spechub")


def check_exactly(verifier: Verifier, problem: TransportProblem) -> None:
    """Output law equal to the target, and acceptance as claimed."""
    target = [float(x) for x in problem.exact_target]
    np.testing.assert_allclose(verifier.output_law(problem), target, rtol=0, atol=1e-12)
    enumerated = verifier.enumerated_acceptance_rate(problem)
    assert verifier.acceptance_rate(problem) == pytest.approx(enumerated, abs=1e-12)
    if verifier.rational:
        assert list(verifier.output_law(problem, exact=True)) == list(problem.exact_target)
        exact = verifier.enumerated_acceptance_rate(problem, exact=True)
        assert enumerated == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_what_was_sent_to_another_process_decides_alike(name: str) -> None:
    verifier, drafts = verifiers.get(name), EXAMPLES[TABLE[name][0]]
    problem = TransportProblem(P, drafts)
    tokens = drafts.sample(np.random.default_rng(0), 1)[0]
    here = verifier.decide(problem, tokens)  # by then something is remembered
    there = pickle.loads(pickle.dumps(verifier)).decide(problem, tokens)
    np.testing.assert_array_equal(here.accept, there.accept)
    np.testing.assert_array_equal(here.residual, there.residual)


@pytest.mark.parametrize("name", TABLE)
@settings(max_examples=60)
@given(data=st.data())
def test_lossless_with_the_rate_it_claims(name: str, data: st.DataObject) -> None:
    verifier, problem = verifiers.get(name), data.draw(problems(TABLE[name]))
    assume(verifier.supports(problem.drafts))
    check_exactly(verifier, problem)


@pytest.mark.parametrize("name", TABLE)
@settings(max_examples=60)
@given(data=st.data())
def test_no_verifier_beats_the_optimum(name: str, data: st.DataObject) -> None:
    """Against laws of drafts and an optimum that come from definitions, not from the package."""
    verifier, case = verifiers.get(name), data.draw(cases(TABLE[name], max_vocab=4))
    assume(verifier.supports(case.drafts))
    optimum = oracles.optimum_over_subsets(case.target, case.law)
    if not verifier.rational:
        assert verifier.acceptance_rate(case.problem) <= optimum + Fraction(1, 10**12)
        return
    output, accepted = law_and_acceptance(verifier, case)
    assert output == case.target
    if name == "optimal" and not isinstance(case.drafts, PrefixDraftScheme):
        assert optimum - Fraction(1, 10**6) <= accepted <= optimum  # by fitted potentials
        return
    assert accepted == optimum if name in OPTIMAL else accepted <= optimum


def law_and_acceptance(verifier: Verifier, case: Case) -> tuple[list[Fraction], Fraction]:
    """Output law and acceptance rate over the case's own law of draft tuples."""
    problem = case.problem
    output, accepted = [Fraction(0)] * len(case.target), Fraction(0)
    for drafts, mass in case.law.items():
        row = np.full(problem.num_drafts, -1)
        row[: len(drafts)] = drafts
        law = verifier.conditional_law(problem, row, exact=True)
        output = [x + mass * y for x, y in zip(output, law, strict=True)]
        accepted += mass * sum((law[i] for i in {*drafts}), Fraction(0))
    return output, accepted


# --- figures from elsewhere ---


@pytest.mark.parametrize("name", sorted(known_problems()))
def test_figures_known_from_elsewhere(name: str) -> None:
    known = known_problems()[name]
    sets = known.problem.drafts.law(True).support_law().masses()
    assert known.optimum == oracles.optimum_over_subsets(known.problem.exact_target, dict(sets))
    for verifier, value in known.known.items():
        assert matches(verifiers.get(verifier).acceptance_rate(known.problem), value)
    if known.problem.drafts.count_tuples() <= 1000:
        reached = verifiers.get("lp").enumerated_acceptance_rate(known.problem, exact=True)
        assert reached == known.optimum


def test_quoted_values_match_to_their_digits() -> None:
    assert matches(0.82585, Decimal("0.8258"))
    assert not matches(0.82586, Decimal("0.8258"))
    assert matches(Fraction(1, 3), Fraction(1, 3))
    assert not matches(0.3333333, Fraction(1, 3))


@given(problem=problems(("with_replacement",), max_vocab=5, max_drafts=5))
def test_kseq_keeps_its_promise(problem: TransportProblem) -> None:
    k = problem.num_drafts
    promised = (1 - (1 - 1 / k) ** k) * float(exact_optimum(problem)[0])
    assert verifiers.get("kseq").acceptance_rate(problem) >= promised - 1e-12


# --- options ---


@pytest.mark.parametrize(("size", "rule"), [*product([1, 3, 99], ["published", "ratio"])])
@pytest.mark.parametrize("order", ["surplus", "mass"])
@settings(max_examples=15)
@given(problem=problems(("with_replacement", "independent")))
def test_importance_sampling_with_options(
    size: int, rule: str, order: str, problem: TransportProblem
) -> None:
    verifier = ImportanceSampling(size=size, rule=rule, order=order)
    check_exactly(verifier, problem)
    rate = verifier.acceptance_rate(problem)
    assert verifier.acceptance_bound(problem) <= rate + 1e-12
    if size >= problem.vocab_size and problem.num_drafts <= 2:
        assert rate == pytest.approx(verifiers.get("lp").acceptance_rate(problem), abs=1e-9)


@pytest.mark.parametrize("method", ["full_lp", "dual_lp", "max_flow", "truncated_lp"])
@settings(max_examples=15)
@given(problem=problems(("independent",), max_drafts=2))
def test_lp_with_the_plan_of_any_solver(method: str, problem: TransportProblem) -> None:
    assume(method != "truncated_lp" or problem.num_drafts == 2)
    check_exactly(LinearProgramme(method=method), problem)


def test_lp_takes_plans_that_are_not_feasible_or_not_optimal() -> None:
    problem = TransportProblem([0.5, 0.3, 0.2], WithReplacement([0.2, 0.2, 0.6], 2))
    other = TransportProblem([0.1, 0.1, 0.8], WithoutReplacement([0.2, 0.2, 0.6], 2))
    rate = 0.0
    for plan_of in (other, problem):
        verifier = LinearProgramme(solution=solve(plan_of, "max_flow"))
        check_exactly(verifier, problem)
        assert verifier.acceptance_rate(problem) > rate
        rate = verifier.acceptance_rate(problem)
    assert rate == pytest.approx(solve(problem).acceptance_rate, abs=1e-12)
