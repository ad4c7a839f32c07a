"""Every verification algorithm: exactly lossless, with the acceptance rate it claims."""

from __future__ import annotations

import pickle
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import oracles
from support.known_problems import known_problems, matches
from support.strategies import PREFIX_SCHEMES, Case, cases, problems
from support.verifier_table import EXAMPLES, TABLE, P

from mdsd_opt import (
    DraftSetLaw,
    FixedPlusDrafts,
    GreedyDrafts,
    IndependentDrafts,
    MixtureDrafts,
    TopKDrafts,
    TransportProblem,
    WithoutReplacement,
    WithReplacement,
    solve,
    verifiers,
)
from mdsd_opt.drafts import PrefixDraftScheme
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.solvers import exact_optimum
from mdsd_opt.verifiers import Verifier
from mdsd_opt.verifiers.importance_sampling import ImportanceSampling
from mdsd_opt.verifiers.lp import LinearProgramme

#: These accept as often as is possible wherever they are lossless.
OPTIMAL = ("optimal", "lp", "greedy", "spechub")


def test_the_table_holds_every_verifier() -> None:
    assert [*TABLE] == [*verifiers.names()]
    for name in verifiers.names():
        assert verifiers.get(name).name == name


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


def test_another_number_of_drafts_than_the_only_one_is_an_error() -> None:
    verifier = verifiers.get("spechub")
    for k in (1, 3):
        with pytest.raises(UnsupportedScheme, match="K = 2"):
            verifier.acceptance_rate(TransportProblem(P, GreedyDrafts(P, k)))


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


# --- fixed problems of six tokens: zeros on both sides, a tie, a token that is hardly drafted ---

P6 = [Fraction(n, 97) for n in (31, 1, 7, 19, 0, 39)]
Q6 = [Fraction(n, 101) for n in (11, 23, 0, 29, 31, 7)]
R6 = [Fraction(n, 50) for n in (0, 20, 5, 5, 13, 7)]
SIX = {
    "with replacement, K=3": (WithReplacement(Q6, 3), TABLE),
    "with replacement, K=4": (WithReplacement(Q6, 4), ("optimal", "rrs", "kseq", "single_draft")),
    "without replacement, K=3": (WithoutReplacement(Q6, 3), TABLE),
    "without replacement, K=4": (WithoutReplacement(Q6, 4), TABLE),
    "greedy, K=4": (GreedyDrafts(Q6, 4), TABLE),
    "top-K, K=4": (TopKDrafts(Q6, 4), TABLE),
    "different models, K=3": (IndependentDrafts([Q6, R6, P6]), TABLE),
    "set law": (DraftSetLaw(6, {(0, 4): Fraction(1, 3), (1, 2, 3, 5): Fraction(2, 3)}), TABLE),
    "fixed beside K=3": (FixedPlusDrafts([2], WithoutReplacement(Q6, 3)), TABLE),
    "mixture": (
        MixtureDrafts(
            [(Fraction(1, 4), WithReplacement(Q6, 3)), (Fraction(3, 4), WithoutReplacement(Q6, 2))]
        ),
        TABLE,
    ),
}
SIX_CASES = [
    pytest.param(drafts, name, id=f"{label}, {name}")
    for label, (drafts, names) in SIX.items()
    for name in names
    if verifiers.get(name).supports(drafts) and name != "gumbel"
]


@pytest.mark.parametrize(("drafts", "name"), SIX_CASES)
def test_six_tokens(drafts, name: str) -> None:
    problem, verifier = TransportProblem(P6, drafts), verifiers.get(name)
    np.testing.assert_allclose(
        verifier.output_law(problem), [float(x) for x in P6], rtol=0, atol=1e-12
    )
    claimed = verifier.acceptance_rate(problem)
    if not verifier.rational:
        assert claimed == pytest.approx(verifier.enumerated_acceptance_rate(problem), abs=1e-12)
        return
    assert list(verifier.output_law(problem, exact=True)) == P6
    accepted = verifier.enumerated_acceptance_rate(problem, exact=True)
    assert claimed == pytest.approx(float(accepted), abs=1e-12)
    law = drafts.exact_support_law()
    optimum = oracles.optimum_over_subsets(P6, law)
    if name == "optimal" and not isinstance(drafts, PrefixDraftScheme):
        assert optimum - Fraction(1, 10**6) <= accepted <= optimum
    elif name in OPTIMAL or (name == "naive_target" and drafts.scheme == "top_k"):
        assert accepted == optimum
    else:
        assert accepted < optimum


# --- figures from elsewhere ---


@pytest.mark.parametrize("name", sorted(known_problems()))
def test_figures_known_from_elsewhere(name: str) -> None:
    known = known_problems()[name]
    for verifier, value in known.known.items():
        assert matches(verifiers.get(verifier).acceptance_rate(known.problem), value)
    assert known.optimum is not None
    if known.problem.drafts.count_tuples() <= 1000:
        reached = verifiers.get("lp").enumerated_acceptance_rate(known.problem, exact=True)
        assert reached == known.optimum


@pytest.mark.parametrize("name", ["three_tokens_two_drafts", "three_tokens_three_drafts"])
def test_exact_figures_of_recursive_rejection(name: str) -> None:
    known = known_problems()[name]
    rate = verifiers.get("rrs").enumerated_acceptance_rate(known.problem, exact=True)
    assert rate == known.known["rrs"]


@given(problem=problems(("with_replacement",), max_vocab=5, max_drafts=5))
def test_kseq_keeps_its_promise(problem: TransportProblem) -> None:
    k = problem.num_drafts
    promised = (1 - (1 - 1 / k) ** k) * float(exact_optimum(problem)[0])
    assert verifiers.get("kseq").acceptance_rate(problem) >= promised - 1e-12


@given(problem=problems(PREFIX_SCHEMES, max_vocab=5))
def test_optimal_reaches_the_optimum_exactly(problem: TransportProblem) -> None:
    reached = verifiers.get("optimal").enumerated_acceptance_rate(problem, exact=True)
    assert reached == exact_optimum(problem)[0]


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
