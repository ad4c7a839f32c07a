"""Every verification algorithm: exactly lossless, with the acceptance rate it claims."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import chi_square
from support.strategies import PREFIX_SCHEMES, SCHEMES, problems

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
from mdsd_opt.errors import InvalidInput, UnknownName, UnsupportedScheme
from mdsd_opt.problems import known_problems, matches
from mdsd_opt.solvers import exact_optimum
from mdsd_opt.verifiers import Uniforms, Verifier
from mdsd_opt.verifiers.importance_sampling import ImportanceSampling
from mdsd_opt.verifiers.lp import LinearProgramme

#: Verifiers with a verdict for given drafts, and the schemes they are lossless for.
TABLE = {
    "optimal": PREFIX_SCHEMES,
    "naive_target": SCHEMES,
    "single_draft": ("with_replacement",),
    "rrs": ("with_replacement", "without_replacement", "independent"),
    "kseq": ("with_replacement",),
    "greedy": ("greedy", "top_k"),
    "importance_sampling": ("with_replacement", "independent"),
    "lp": SCHEMES,
}


def check_exactly(verifier: Verifier, problem: TransportProblem) -> None:
    """Output law equal to the target; acceptance as claimed, and never above the optimum."""
    target = list(problem.exact_target)
    if verifier.rational:
        assert list(verifier.output_law(problem, exact=True)) == target
    floats = verifier.output_law(problem)
    np.testing.assert_allclose(floats, [float(x) for x in target], rtol=0, atol=1e-12)
    enumerated = verifier.enumerated_acceptance_rate(problem)
    assert verifier.acceptance_rate(problem) == pytest.approx(enumerated, abs=1e-11)
    assert enumerated <= solve(problem).upper_bound + 1e-9


@pytest.mark.parametrize("name", TABLE)
@given(data=st.data())
def test_lossless_with_the_rate_it_claims(name, data):
    check_exactly(verifiers.get(name), data.draw(problems(TABLE[name])))


@given(problem=problems(("greedy",), max_drafts=2))
def test_spechub(problem):
    verifier = verifiers.get("spechub")
    if problem.num_drafts != 2:
        with pytest.raises(UnsupportedScheme, match="K = 2"):
            verifier.acceptance_rate(problem)
        return
    check_exactly(verifier, problem)
    assert verifier.acceptance_rate(problem) == pytest.approx(float(exact_optimum(problem)[0]))


@given(problem=problems(PREFIX_SCHEMES))
def test_optimal_reaches_the_optimum_exactly(problem):
    reached = verifiers.get("optimal").enumerated_acceptance_rate(problem, exact=True)
    assert reached == exact_optimum(problem)[0]


@pytest.mark.parametrize(
    "drafts",
    [
        lambda q: WithReplacement(q, 3),
        lambda q: WithReplacement(q, 4),
        lambda q: WithoutReplacement(q, 3),
        lambda q: WithoutReplacement(q, 4),
        lambda q: GreedyDrafts(q, 4),
        lambda q: FixedPlusDrafts([2], WithoutReplacement(q, 3)),
        lambda q: MixtureDrafts([(0.5, WithReplacement(q, 3)), (0.5, WithoutReplacement(q, 2))]),
    ],
)
def test_optimal_on_six_tokens(drafts):
    p = [Fraction(n, 97) for n in (31, 1, 7, 19, 0, 39)]
    q = [Fraction(n, 101) for n in (11, 23, 2, 29, 31, 5)]
    problem = TransportProblem(p, drafts(q))
    verifier = verifiers.get("optimal")
    assert list(verifier.output_law(problem, exact=True)) == p
    reached = verifier.enumerated_acceptance_rate(problem, exact=True)
    assert reached == exact_optimum(problem)[0]


@pytest.mark.parametrize("name", sorted(known_problems()))
def test_figures_known_from_elsewhere(name):
    known = known_problems()[name]
    compared = 0
    for verifier, value in known.known.items():
        if verifier in ("optimal", *TABLE):
            rate = verifiers.get(verifier).acceptance_rate(known.problem)
            assert matches(rate, value)
            compared += 1
    assert compared or not set(known.known) & {*TABLE}


def test_rates_of_the_first_golden_problem_are_exact():
    p = [Fraction(309, 500), Fraction(177, 500), Fraction(7, 250)]
    q = [Fraction(373, 1000), Fraction(29, 50), Fraction(47, 1000)]
    problem = TransportProblem(p, WithReplacement(q, 2))
    rate = verifiers.get("rrs").enumerated_acceptance_rate(problem, exact=True)
    assert rate == Fraction(169277, 200000)


@given(problem=problems(("with_replacement",), max_vocab=5, max_drafts=5))
def test_kseq_keeps_its_promise(problem):
    k = problem.num_drafts
    promised = (1 - (1 - 1 / k) ** k) * float(exact_optimum(problem)[0])
    assert verifiers.get("kseq").acceptance_rate(problem) >= promised - 1e-12


def test_gumbel_drafts_and_outputs_follow_their_laws():
    p, q = np.array([0.25, 0.25, 0.2, 0.3]), np.array([0.5, 0.3, 0.15, 0.05])
    problem = TransportProblem(p, WithReplacement(q, 2))
    verifier = verifiers.get("gumbel")
    drafts, tokens = verifier.simulate(problem, np.random.default_rng(0), 40_000)
    assert chi_square.p_value(tokens.tolist(), dict(enumerate(p))) > 1e-6
    pairs = {(i, j): q[i] * q[j] for i in range(4) for j in range(4)}
    assert chi_square.p_value(map(tuple, drafts.tolist()), pairs) > 1e-6


def test_importance_sampling_over_the_whole_alphabet_is_optimal_for_two_drafts():
    rng = np.random.default_rng(0)
    for _ in range(10):
        problem = TransportProblem(
            rng.dirichlet(np.ones(6)), WithReplacement(rng.dirichlet(np.ones(6)), 2)
        )
        whole = ImportanceSampling(size=6)
        assert whole.acceptance_rate(problem) == pytest.approx(solve(problem).acceptance_rate)
        part = ImportanceSampling(size=2)
        assert part.acceptance_bound(problem) <= part.acceptance_rate(problem) + 1e-12


def test_lp_uses_a_given_plan_and_refuses_a_solution_without_one():
    problem = TransportProblem([0.5, 0.3, 0.2], WithReplacement([0.2, 0.2, 0.6], 2))
    flow = LinearProgramme(solution=solve(problem, "max_flow"))
    assert flow.acceptance_rate(problem) == pytest.approx(solve(problem).acceptance_rate)
    np.testing.assert_allclose(flow.output_law(problem), problem.target, atol=1e-12)
    with pytest.raises(InvalidInput, match="has no plan"):
        LinearProgramme(solution=solve(problem))


# --- verdicts ---

P = np.array([0.45, 0.25, 0.2, 0.1, 0.0])
Q = np.array([0.15, 0.3, 0.1, 0.2, 0.25])
EXAMPLES = {
    "with_replacement": WithReplacement(Q, 2),
    "without_replacement": WithoutReplacement(Q, 3),
    "greedy": GreedyDrafts(Q, 2),
    "top_k": TopKDrafts(Q, 2),
    "independent": IndependentDrafts([Q, P]),
    "set_law": DraftSetLaw(5, {(0, 4): 0.5, (1, 2, 3): 0.5}),
    "mixture": MixtureDrafts([(0.4, WithReplacement(Q, 3)), (0.6, WithoutReplacement(Q, 2))]),
    "fixed_plus": FixedPlusDrafts([1], WithReplacement(Q, 2)),
}
PAIRS = [(name, scheme) for name, schemes in TABLE.items() for scheme in schemes]


@pytest.mark.parametrize(("name", "scheme"), PAIRS)
def test_verdicts_follow_the_target(name, scheme):
    # False-alarm rate 1e-6 for each pair, at a fixed seed.
    problem = TransportProblem(P, EXAMPLES[scheme])
    verifier, rng = verifiers.get(name), np.random.default_rng(1)
    verdicts = [
        (verifier.verify(problem, drafts, rng), drafts)
        for drafts in problem.drafts.sample(rng, 3000)
    ]
    assert chi_square.p_value([v.token for v, _ in verdicts], dict(enumerate(P))) > 1e-6
    for v, drafts in verdicts:
        assert v.accepted == (v.token in drafts)
        assert v.draft_index is None or drafts[v.draft_index] == v.token
    rate = np.mean([v.accepted for v, _ in verdicts])
    assert rate == pytest.approx(verifier.acceptance_rate(problem), abs=5 * 0.5 / np.sqrt(3000))


def test_the_test_of_verdicts_rejects_drafts_from_another_law():
    problem, rng = TransportProblem(P, WithReplacement(Q, 2)), np.random.default_rng(1)
    skewed = WithReplacement([0.15, 0.2, 0.1, 0.2, 0.35], 2)
    tokens = [
        verifiers.get("optimal").verify(problem, drafts, rng).token
        for drafts in skewed.sample(rng, 3000)
    ]
    assert chi_square.p_value(tokens, dict(enumerate(P))) < 1e-6


@pytest.mark.parametrize(("name", "scheme"), PAIRS)
def test_impossible_tokens_never_come_out(name, scheme):
    problem, verifier = TransportProblem(P, EXAMPLES[scheme]), verifiers.get(name)
    last = np.nextafter(1.0, 0.0)
    tuples, mass = problem.drafts.tuple_law()
    for drafts in tuples[mass > 0]:
        for bits in range(16):
            uniforms = Uniforms(*(last if bits >> k & 1 else 0.0 for k in range(4)))
            assert P[verifier.verify(problem, drafts, uniforms).token] > 0


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement", "greedy", "top_k"])
@pytest.mark.parametrize("name", ["optimal", "rrs", "kseq", "greedy", "naive_target"])
def test_batches_decide_as_single_verdicts(name, scheme, seed):
    if scheme not in TABLE[name]:
        return
    rng = np.random.default_rng(seed)
    target, draft = rng.dirichlet(np.ones(7), 5), rng.dirichlet(np.ones(7), 5)
    make = {
        "with_replacement": WithReplacement,
        "without_replacement": WithoutReplacement,
        "greedy": GreedyDrafts,
        "top_k": TopKDrafts,
    }[scheme]
    schemes = [make(q, 2) for q in draft]
    drafts = np.stack([s.sample(rng) for s in schemes])
    uniforms = rng.random((5, 4))
    batch = verifiers.get(name).verify_batch(target, draft, drafts, uniforms, scheme=scheme)
    for n in range(5):
        single = verifiers.get(name).verify(
            TransportProblem(target[n], schemes[n]), drafts[n], Uniforms(*uniforms[n])
        )
        assert batch.tokens[n] == single.token
        assert batch.accepted[n] == single.accepted
        assert batch.draft_index[n] == (-1 if single.draft_index is None else single.draft_index)


# --- refusals ---


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_it_is_not_lossless_for_is_an_error(name, scheme):
    problem, verifier = TransportProblem(P, EXAMPLES[scheme]), verifiers.get(name)
    if scheme in TABLE[name]:
        assert verifier.supports(problem.drafts)
        return
    drafts = problem.drafts.sample(np.random.default_rng(0))
    for use in (
        lambda: verifier.acceptance_rate(problem),
        lambda: verifier.conditional_law(problem, drafts),
        lambda: verifier.verify(problem, drafts, np.random.default_rng(0)),
    ):
        with pytest.raises(UnsupportedScheme, match="is not lossless for"):
            use()


def test_bad_drafts_and_names_are_kind_errors():
    problem, rng = TransportProblem(P, WithReplacement(Q, 2)), np.random.default_rng(0)
    verifier = verifiers.get("optimal")
    with pytest.raises(InvalidInput, match="2 token ids"):
        verifier.verify(problem, [0], rng)
    with pytest.raises(InvalidInput, match="outside"):
        verifier.verify(problem, [0, 9], rng)
    with pytest.raises(InvalidInput, match="2 token ids"):
        verifier.verify(problem, [0.0, 1.0], rng)
    one_sided = TransportProblem(P, WithReplacement([0.5, 0.5, 0, 0, 0], 2))
    with pytest.raises(InvalidInput, match="cannot be drawn"):
        verifier.verify(one_sided, [0, 3], rng)
    with pytest.raises(UnknownName, match="'optimal'"):
        verifiers.get("optimum")
    with pytest.raises(InvalidInput, match="not rational"):
        verifiers.get("importance_sampling").output_law(problem, exact=True)
    with pytest.raises(InvalidInput, match="four for each"):
        verifier.verify_batch(P[None], Q[None], [[0, 1]], np.zeros((1, 3)))
