"""Closed formulas of acceptance rates against enumeration and sampling; full vocabulary."""

from __future__ import annotations

import pickle
from fractions import Fraction
from functools import cache
from itertools import repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import chi_square
from support.strategies import SCHEMES, Case, cases, problems
from support.verifier_table import PAIRS, SINGLE_MODEL, P, Q, counts_for

from mdsd_opt import (
    IndependentDrafts,
    ProblemTooLarge,
    TransportProblem,
    WithoutReplacement,
    WithReplacement,
    solve,
    verifiers,
)
from mdsd_opt.verifiers.gumbel import joint_masses
from mdsd_opt.verifiers.importance_sampling import ImportanceSampling
from mdsd_opt.verifiers.rejection import RatioSums
from mdsd_opt.verifiers.rrs import RecursiveRejection, independent_rates
from mdsd_opt.verifiers.verdicts import Estimate

V = 131_072


def random_row(rng: np.random.Generator, size: int, spread: float = 1.0) -> np.ndarray:
    """Probabilities from almost uniform to almost one-hot, some of them zero."""
    weights = np.exp(10 ** rng.uniform(-1, 1) * spread * rng.standard_normal(size))
    weights[rng.random(size) < 0.15] = 0.0
    return weights / weights.sum() if weights.sum() > 0 else np.eye(size)[0]


# --- target mass of the drafted tokens ---


@given(cases(SCHEMES))
def test_drafted_mass(case: Case) -> None:
    expected = sum(m * sum(case.target[i] for i in {*drafts}) for drafts, m in case.law.items())
    mass = case.problem.drafts.drafted_mass(case.problem.target)
    assert mass == pytest.approx(float(expected), abs=1e-14)


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(2, 8), num_drafts=st.integers(2, 9))
def test_drafted_mass_without_replacement_keeps_its_digits(
    seed: int, size: int, num_drafts: int
) -> None:
    rng = np.random.default_rng(seed)
    p, q = random_row(rng, size), random_row(rng, size, spread=2.0)
    drafts = WithoutReplacement(q, num_drafts)
    law = drafts.support_law()
    expected = float(p[law.tokens] @ law.mass[law.arc_support])
    assert drafts.drafted_mass(p) == pytest.approx(expected, rel=1e-13)


# --- recursive rejection sampling ---


def rate_by_definition(p: np.ndarray, q: np.ndarray, num_drafts: int) -> float:
    """Overlap, and for every rejected token the rate of what is left without it."""
    overlap, rest = np.minimum(p, q).sum(), np.maximum(p - q, 0)
    if num_drafts == 1:
        return float(overlap)
    for x in np.flatnonzero(q > p):
        others = q.copy()
        others[x] = 0
        left = rate_by_definition(rest / rest.sum(), others / others.sum(), num_drafts - 1)
        overlap += (q[x] - p[x]) * left
    return float(overlap)


def test_two_drafts_by_one_sort_agree_with_the_definition() -> None:
    rng = np.random.default_rng(0)
    p, q = random_row(rng, 500), random_row(rng, 500)
    rate = verifiers.get("rrs").acceptance_rate(TransportProblem(p, WithoutReplacement(q, 2)))
    assert rate == pytest.approx(rate_by_definition(p, q, 2), abs=1e-14)


def test_the_estimate_agrees_with_the_definition() -> None:
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.full(120, 0.5))
    q = 0.4 * p
    q[:12] += 0.6 * rng.dirichlet(np.ones(12))  # few tokens can be rejected
    problem, verifier = TransportProblem(p, WithoutReplacement(q, 4)), RecursiveRejection()
    exact = rate_by_definition(problem.target, problem.drafts.weights, 4)  # type: ignore[attr-defined]
    estimate = verifier.acceptance_rate(problem, num_samples=2000)
    assert isinstance(estimate, Estimate)
    assert 0 < estimate.standard_error < 2e-3
    assert abs(estimate - exact) < 5 * estimate.standard_error
    assert verifier.acceptance_rate(problem, num_samples=2000) == estimate
    other = verifier.acceptance_rate(problem, num_samples=2000, seed=1)
    assert other != estimate
    assert abs(other - exact) < 5 * estimate.standard_error


# --- one curve: phi(s) = sum (p - s q)_+ ---


def in_fractions(weights: np.ndarray) -> list[Fraction]:
    rational = [Fraction(float(x)) for x in weights]
    return [x / sum(rational) for x in rational]


def pairs_of_edges() -> dict[str, tuple[list[Fraction], list[Fraction]]]:
    """Targets and drafts with ties, zeros and one token, and as float32 and bfloat16 have them."""
    rng = np.random.default_rng(4)
    rows = rng.dirichlet(np.full(6, 0.5), 2)
    coarse = [(x.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32) for x in rows]
    weights: dict[str, tuple[Any, Any]] = {
        "ties": ([1, 2, 3, 6], [2, 4, 1, 2]),
        "zeros of p": ([0, 0, 1, 2], [3, 1, 1, 1]),
        "zeros of q": ([3, 1, 1, 1], [0, 0, 1, 2]),
        "p = q": ([1, 2, 4], [1, 2, 4]),
        "one-hot p": ([0, 1, 0], [1, 1, 2]),
        "one-hot q": ([1, 1, 2], [0, 1, 0]),
        "disjoint": ([1, 0], [0, 1]),
        "one token": ([1], [1]),
        "float64": tuple(rows),
        "float32": tuple(rows.astype(np.float32)),
        "bfloat16": tuple(coarse),
    }
    return {name: (in_fractions(p), in_fractions(q)) for name, (p, q) in weights.items()}


EDGES = pairs_of_edges()


def curve(p: list[Fraction], q: list[Fraction], s: Fraction) -> Fraction:
    return sum((max(x - s * y, Fraction(0)) for x, y in zip(p, q, strict=True)), Fraction(0))


@pytest.mark.parametrize("name", EDGES)
def test_rrs_by_the_curve_and_by_its_residuals(name: str) -> None:
    p, q = EDGES[name]
    floats = np.array(p, dtype=np.float64), np.array(q, dtype=np.float64)
    rates = independent_rates(floats[0], repeat(floats[1]), 31)
    target, undecided, scale = p, Fraction(1), Fraction(0)
    for rate in rates[:8]:
        refused = curve(target, q, Fraction(1))
        scale, undecided = scale + undecided, undecided * refused
        assert curve(p, q, scale) == undecided  # the curve against the rule
        if refused:
            left = zip(target, q, strict=True)
            target = [max(x - y, Fraction(0)) / refused for x, y in left]
        assert rate == pytest.approx(float(1 - undecided), rel=1e-13, abs=1e-15)
    s = 0.0
    for rate in rates:  # the same curve by one sort
        s += 1.0 if s == 0 else float(RatioSums(*floats).surplus(s))
        assert rate == pytest.approx(1.0 - float(RatioSums(*floats).surplus(s)), abs=1e-14)


@pytest.mark.parametrize("num_drafts", [1, 2, 4, 8, 31])
@pytest.mark.parametrize("name", EDGES)
def test_kseq_is_where_the_curve_is_a_power(name: str, num_drafts: int) -> None:
    """One minus the rate is u^K for the root u of phi(1 + u + ... + u^(K - 1)) = u^K."""
    p, q = EDGES[name]
    problem = TransportProblem(p, WithReplacement(q, num_drafts))
    refused = 1.0 - verifiers.get("kseq").acceptance_rate(problem)

    def above(u: float) -> Fraction:
        root = Fraction(u)
        powers = sum((root**k for k in range(num_drafts)), Fraction(0))
        return curve(p, q, powers) - root**num_drafts

    higher, lower = refused + 1e-13, max(refused - 1e-13, 0.0)
    assert above(higher ** (1 / num_drafts)) <= 0 <= above(lower ** (1 / num_drafts))


# --- K-SEQ ---


def test_kseq_keeps_the_digits_of_tiny_rates() -> None:
    problem = TransportProblem([1e-13, 1 - 1e-13, 0.0], WithReplacement([0.5, 0.0, 0.5], 3))
    # p/q is so small on the only common token that each draft of it is accepted with p / (rho q)
    rate = verifiers.get("kseq").acceptance_rate(problem)
    exact = verifiers.get("kseq").enumerated_acceptance_rate(problem, exact=True)
    assert rate == pytest.approx(float(exact), rel=1e-9)
    assert rate == pytest.approx(1e-13, rel=1e-9)


# --- importance sampling ---


def test_a_tournament_is_estimated_where_there_are_many_tuples() -> None:
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.full(16, 0.5), 2)  # 4096 tuples
    problem, verifier = TransportProblem(p, WithReplacement(q, 3)), ImportanceSampling()
    rate = verifier.acceptance_rate(problem)
    assert isinstance(rate, Estimate)
    exact = verifier.enumerated_acceptance_rate(problem)
    assert abs(rate - exact) < 5 * rate.standard_error
    assert verifier.acceptance_bound(problem) <= exact <= solve(problem).acceptance_rate


# --- Gumbel-max list sampling ---


@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_simulated_races_follow_the_joint_law(num_drafts: int) -> None:
    problem = TransportProblem(P, WithReplacement(Q, num_drafts))
    verifier: Any = verifiers.get("gumbel")
    drafts, tokens = verifier.simulate(problem, np.random.default_rng(0), 40_000)
    joint = {}
    for row in np.unique(drafts, axis=0).tolist():
        for j, mass in enumerate(joint_masses(P.tolist(), Q.tolist(), row)):
            joint[(*row, j)] = mass
    drawn = [(*row, j) for row, j in zip(drafts.tolist(), tokens.tolist(), strict=True)]
    assert chi_square.p_value(drawn, joint) > 1e-6
    exchanged = [(*row[::-1], j) for *row, j in drawn]
    assert chi_square.p_value(exchanged, joint) > 1e-6
    if num_drafts > 1:
        others = np.roll(tokens, 1).tolist()
        apart = [(*row, j) for row, j in zip(drafts.tolist(), others, strict=True)]
        assert chi_square.p_value(apart, joint) < 1e-6  # as if nothing were shared


@settings(max_examples=60)
@given(problem=problems(("with_replacement",)))
def test_the_bound_on_gumbel_races(problem: TransportProblem) -> None:
    verifier: Any = verifiers.get("gumbel")
    rate, bound = verifier.acceptance_rate(problem), verifier.acceptance_bound(problem)
    assert bound <= rate + 1e-12
    if problem.num_drafts == 1:
        enumerated = verifier.enumerated_acceptance_rate(problem, exact=True)
        assert bound == pytest.approx(float(enumerated), abs=1e-12)


@pytest.mark.parametrize(
    ("name", "scheme", "size", "num_drafts"),
    [("gumbel", WithReplacement, 150, 2), ("race", WithoutReplacement, 3000, 3)],
)
def test_races_of_many_tokens_are_simulated_and_say_so(
    name: str, scheme: Any, size: int, num_drafts: int
) -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(size), 2)
    problem, verifier = TransportProblem(p, scheme(q, num_drafts)), verifiers.get(name)
    rate = verifier.acceptance_rate(problem)
    assert isinstance(rate, Estimate)
    assert 0 < rate.standard_error < 0.02
    bound = verifier.acceptance_bound(problem)  # type: ignore[attr-defined]
    assert bound - 5 * rate.standard_error < rate < solve(problem).acceptance_rate
    with pytest.raises(ProblemTooLarge, match="simulate"):
        verifier.verify(problem, list(range(num_drafts)), rng)


# --- estimates ---


def test_an_estimate_is_a_float_with_an_error() -> None:
    estimate = Estimate(0.25, 0.01)
    assert estimate == 0.25
    assert estimate + 1 == 1.25
    assert repr(estimate) == "0.25 ± 0.01"
    copied = pickle.loads(pickle.dumps(estimate))
    assert (copied, copied.standard_error) == (0.25, 0.01)


# --- full vocabulary ---

LARGE = [
    (name, scheme, num_drafts)
    for num_drafts in (2, 3)
    for name, scheme in PAIRS
    if num_drafts in counts_for(verifiers.get(name), num_drafts)
    if (scheme in SINGLE_MODEL or scheme == "independent") and name not in ("lp", "gumbel", "race")
]


@cache
def large_problem(scheme: str, num_drafts: int) -> TransportProblem:
    rng = np.random.default_rng(7)
    target = (2.5 * rng.standard_normal(V)).astype(np.float32)
    draft = (target + rng.standard_normal(V)).astype(np.float32)
    if scheme != "independent":
        return TransportProblem.from_logits(target, draft, num_drafts, scheme)
    from mdsd_opt import softmax

    models = [softmax(draft + 0.1 * k * rng.standard_normal(V)) for k in range(num_drafts)]
    return TransportProblem(softmax(target), IndependentDrafts(models))


@cache
def large_optimum(scheme: str, num_drafts: int) -> float:
    return solve(large_problem(scheme, num_drafts)).acceptance_rate


@pytest.mark.parametrize(("name", "scheme", "num_drafts"), LARGE)
def test_full_vocabulary(name: str, scheme: str, num_drafts: int) -> None:
    problem, verifier = large_problem(scheme, num_drafts), verifiers.get(name)
    sampled = name == "ratio_hull" or num_drafts == 3
    if name in ("rrs", "importance_sampling", "ratio_hull") and sampled:
        rate = verifier.acceptance_rate(problem, num_samples=20)  # type: ignore[call-arg]
    else:
        rate = verifier.acceptance_rate(problem)
    slack = 1e-12 + 6 * getattr(rate, "standard_error", 0.0)
    assert 0 < rate < 1
    assert rate <= large_optimum(scheme, num_drafts) + slack
    rng = np.random.default_rng(0)
    for drafts in problem.drafts.sample(rng, 3):
        law = verifier.conditional_law(problem, drafts)
        assert np.isfinite(law).all()
        assert law.min() >= -1e-15
        assert law.sum() == pytest.approx(1.0, abs=1e-9)
        assert problem.target[verifier.verify(problem, drafts, rng).token] > 0


def test_gumbel_at_full_vocabulary() -> None:
    problem, verifier = large_problem("with_replacement", 2), verifiers.get("gumbel")
    rate = verifier.acceptance_rate(problem, num_samples=50)  # type: ignore[call-arg]
    bound = verifier.acceptance_bound(problem)  # type: ignore[attr-defined]
    assert isinstance(rate, Estimate)
    assert 0 < bound < rate + 6 * rate.standard_error
    assert bound < large_optimum("with_replacement", 2)


def test_lp_at_full_vocabulary_says_what_it_can_do() -> None:
    with pytest.raises(ProblemTooLarge, match="subset_selection"):
        verifiers.get("lp").acceptance_rate(large_problem("with_replacement", 2))
