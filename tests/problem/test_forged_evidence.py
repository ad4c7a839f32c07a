"""Whatever evidence it gets, a certificate believes nothing false and raises no foreign error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, make_dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from support import forging
from support.known_problems import known_problems

import mdsd_opt as mo
from mdsd_opt.problem import (
    BoxCover,
    OrderMixture,
    PlanBasis,
    Solution,
    Status,
    TransportPlan,
    certificate,
    lower_bounds,
)
from mdsd_opt.problem import solution as transport_plans

EXACT = pytest.mark.parametrize("exact", [False, True])

THREE_MODELS = mo.TransportProblem(
    [0.7, 0.2, 0.1],
    mo.IndependentDrafts([[0.1, 0.2, 0.7], [0.2, 0.3, 0.5], [0.15, 0.15, 0.7]]),
)
TWICE = mo.TransportProblem([0.9, 0.1], mo.WithReplacement([0.5, 0.5], 2))


def claim(rate: float = 1.0, **evidence: Any) -> Solution:
    return Solution(
        acceptance_rate=rate,
        lower_bound=rate,
        upper_bound=1.0,
        status=Status.OPTIMAL,
        method="forged",
        solve_seconds=0.0,
        **evidence,
    )


def refused(problem: mo.TransportProblem, forged: Solution, exact: bool, optimum: float) -> Any:
    certificate = mo.certify(problem, forged, exact=exact)
    assert not certificate.valid
    assert certificate.lower <= optimum + 1e-12
    assert certificate.upper >= optimum - 1e-12
    return certificate


@EXACT
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-5.0, 1.0), (-np.inf, 1.0), (0.0, 2.0), (0.0, np.inf), (np.nan, 1.0), (1.0, 0.0),
        ("0", "1"), (0j, 1 + 0j), (None, 1.0),
    ],
)  # fmt: skip
def test_tiles_lie_in_the_unit_cube(low: Any, high: Any, exact: bool) -> None:
    cover = BoxCover(np.full((1, 3), low), np.full((1, 3), high))
    certificate = refused(THREE_MODELS, claim(proof=cover), exact, 0.688)
    assert "does not fit the problem" in certificate.violations[0]


@EXACT
@pytest.mark.parametrize(
    "weights",
    [
        np.array([1e308, 1e308]), np.array([6e4, 6e4], np.float16), np.array([np.inf, 1.0]),
        np.array([np.nan, 1.0]), np.array([-1.0, 2.0]), np.array([0.0, 0.0]), np.array(["1", "1"]),
        np.array([2**62, 2**62]), np.array([[1.0, 1.0]]), np.array([1 + 1j, 1]),
    ],
    ids=str,
)  # fmt: skip
def test_weights_of_orders_have_a_finite_sum(weights: np.ndarray, exact: bool) -> None:
    forged = OrderMixture(np.array([[0, 1, 2], [2, 1, 0]]), weights)
    refused(THREE_MODELS, claim(proof=forged), exact, 0.688)


@EXACT
def test_weights_of_low_precision_are_summed_in_float64(exact: bool) -> None:
    """6e4 + 6e4 is infinite in float16."""
    orders = np.array([[0, 1, 2], [2, 1, 0]])
    lows = [
        mo.certify(THREE_MODELS, claim(proof=OrderMixture(orders, weights)), exact=exact).lower
        for weights in (np.array([6e4, 6e4], np.float16), np.array([1.0, 1.0]))
    ]
    assert float(lows[0]) == pytest.approx(float(lows[1]), abs=1e-15)
    assert lows[0] > 0.3


@EXACT
def test_a_set_listed_twice_has_its_mass_once(exact: bool) -> None:
    """Its copy in the basis would carry another fourth from {0} to token 0: 1 instead of 0.85."""
    plan = TransportPlan(
        tokens=np.array([0, 0, 0, 1], np.int32),
        offsets=np.array([0, 1, 2, 4]),
        mass=np.zeros(4),
        basis=PlanBasis(arcs=np.ones(4, bool), token_slacks=np.zeros(2, bool),
                        support_slacks=np.zeros(3, bool)),
    )  # fmt: skip
    optimum = float(mo.solve(TWICE).acceptance_rate)
    assert optimum == pytest.approx(0.85)
    refused(TWICE, claim(plan=plan), exact, optimum)


def of_4000_tokens(scheme: str, flatness: float) -> tuple[mo.TransportProblem, np.ndarray]:
    """A problem, and its target, which selects far too well to be true."""
    p, q = np.random.default_rng(1).dirichlet(np.full(4000, flatness), size=2)
    once = mo.WithReplacement(q, 2)
    drafts = {
        "fixed beside": mo.FixedPlusDrafts([3], once),
        "mixture": mo.MixtureDrafts([(0.5, once), (0.5, mo.WithReplacement(q, 3))]),
        "with replacement": once,
    }[scheme]
    return mo.TransportProblem(p, drafts), p


@pytest.mark.parametrize(("dtype", "flatness"), [(np.float16, 3.0), (np.float32, 0.3)])
@pytest.mark.parametrize("scheme", ["fixed beside", "mixture", "with replacement"])
def test_selections_of_low_precision_are_summed_in_float64(
    scheme: str, dtype: Any, flatness: float
) -> None:
    """Sums of 4,000 tokens in float16 proved up to 0.02 too much, in float32 1e-7."""
    problem, p = of_4000_tokens(scheme, flatness)
    refused(problem, claim(selection=p.astype(dtype)), False, mo.solve(problem).acceptance_rate)


def test_sums_in_float16_would_prove_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "floats", lambda array, name: np.asarray(array))
    problem, p = of_4000_tokens("mixture", 3.0)
    found = mo.certify(problem, claim(selection=p.astype(np.float16)))
    assert found.lower > mo.solve(problem).acceptance_rate + 0.01


@EXACT
@pytest.mark.parametrize("masses", [[1e308, 1e308], [1e307, 0.0], [1.5, 0.0]])
def test_selections_sum_to_one_at_most(masses: list[float], exact: bool) -> None:
    certificate = refused(TWICE, claim(selection=np.array(masses)), exact, 0.85)
    assert "more than one" in certificate.violations[0]


@EXACT
def test_claims_without_any_evidence_are_not_believed(exact: bool) -> None:
    certificate = refused(THREE_MODELS, claim(0.9), exact, 0.688)
    assert "nothing given proves more than 0, not the claimed lower bound 0.9" in str(certificate)
    admitted = replace(claim(0.9), lower_bound=0.0)
    assert "not the claimed acceptance_rate" in str(refused(THREE_MODELS, admitted, exact, 0.688))
    assert mo.certify(THREE_MODELS, replace(admitted, status=Status.LIMIT), exact=exact).valid


def test_what_is_no_solution_is_an_error() -> None:
    with pytest.raises(mo.errors.InvalidInput, match="solution is a float"):
        mo.certify(TWICE, 0.85)  # type: ignore[arg-type]


# --- everything, by chance ------------------------------------------------------------------------

PROBLEMS = known_problems()
FORGERIES = 12  # of each honest solution


@cache
def solutions(name: str) -> list[Solution]:
    return forging.honest(PROBLEMS[name].problem)


def forged_of(name: str, seed: int) -> list[tuple[list[forging.Done], Solution, bool]]:
    rng = np.random.default_rng([seed, *name.encode()])
    foreign = solutions(list(PROBLEMS)[rng.integers(len(PROBLEMS))])[0]
    return [
        (*forging.forge(rng, solution, foreign), bool(rng.random() < 0.5))
        for solution in solutions(name)
        for _ in range(FORGERIES)
    ]


def believed(name: str, seed: int) -> list[str]:
    """What is wrong with the certificates of forgeries."""
    known = PROBLEMS[name]
    return [
        f"{complaint}: {done}, exact={exact}, {forging.shown(solution)}"
        for done, solution, exact in forged_of(name, seed)
        for complaint in forging.complaints(known.problem, known.optimum, solution, exact)
    ]


@pytest.mark.parametrize("name", PROBLEMS)
def test_nothing_forged_is_believed(name: str) -> None:
    for seed in range(2):
        assert believed(name, seed) == []


@pytest.mark.parametrize("name", PROBLEMS)
@EXACT
def test_the_honest_solutions_are_valid(name: str, exact: bool) -> None:
    known = PROBLEMS[name]
    for solution in solutions(name):
        assert forging.complaints(known.problem, known.optimum, solution, exact) == []
        assert mo.certify(known.problem, solution, exact=exact).valid


def test_every_field_of_every_kind_is_forged_in_every_way() -> None:
    done = {x for name in PROBLEMS for seed in range(4) for made, *_ in forged_of(name, seed)
            for x in made}  # fmt: skip
    kinds = forging.kinds()
    missing = {(kind.__name__, field) for kind, names in kinds.items() for field in names}
    missing -= {(x.kind, x.field) for x in done}
    assert not missing, f"let a solution of tests/support/forging.py bring along {sorted(missing)}"
    unlisted = set(kinds) - {Solution} - set(forging.TOGETHER)
    assert not unlisted, f"list forgeries of {unlisted} in TOGETHER of tests/support/forging.py"
    ways = {*forging.ARRAYS, *(how for listed in forging.TOGETHER.values() for how in listed)}
    assert ways <= {x.how for x in done}


def test_a_new_kind_of_proof_is_found() -> None:
    @dataclass(frozen=True)
    class NewProof:
        numbers: np.ndarray

    extended = make_dataclass("Extended", [("proof", BoxCover | NewProof | None)])
    assert set(forging.kinds(extended)) == {extended, BoxCover, NewProof}


# --- the fuzzer itself: checks taken out, one by one ----------------------------------------------


def any_tiles(cover: BoxCover, size: int) -> Any:
    low, high = np.asarray(cover.low, float), np.asarray(cover.high, float)
    if low.shape != high.shape or low.shape[1:] != (size,):
        return None
    return [(tuple(a), tuple(b)) for a, b in zip(low.tolist(), high.tolist(), strict=True)]


def any_weights(proof: OrderMixture, size: int) -> Any:
    listed, weights = np.asarray(proof.orders), np.asarray(proof.weights)
    if listed.shape != (weights.size, size) or (np.sort(listed, axis=1) != np.arange(size)).any():
        return None
    return listed, weights, float(weights.sum())


def any_permutation(proof: OrderMixture, size: int) -> Any:
    listed, weights = np.asarray(proof.orders), np.asarray(proof.weights, float)
    if listed.shape != (weights.size, size) or not 0 < weights.sum() < np.inf:
        return None
    return listed, weights, float(weights.sum())


def mass_again_and_again(law: Any, plan: TransportPlan) -> Any:
    sets = zip(plan.offsets.tolist(), plan.offsets[1:].tolist(), strict=False)
    return [law.get(tuple(sorted(plan.tokens[a:b].tolist())), 0) for a, b in sets]


def only_numerators(problem: mo.TransportProblem, plan: TransportPlan) -> Any:
    if plan.numerators is None:
        return None
    return [Fraction(x, plan.denominator) for x in plan.numerators.tolist()]


WEAKENED: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "tiles anywhere": (lower_bounds, "read_tiles", any_tiles),
    "tiles with gaps": (lower_bounds, "are_covering", lambda low, high, tiles: True),
    "weights of any sum": (lower_bounds, "read_mixture", any_weights),
    "orders that are none": (lower_bounds, "read_mixture", any_permutation),
    "sets as often as listed": (transport_plans, "taken_masses", mass_again_and_again),
    "masses as they are": (certificate, "feasible_mass", lambda problem, plan: plan.mass),
    "numerators as they are": (transport_plans, "integer_flow_masses", only_numerators),
    "any number for a rate": (certificate, "read_rate", lambda name, value: float(value)),
    "any status": (certificate, "read_status", lambda status: status),
    "any claim": (certificate, "claim_violations", lambda *given: []),
}


@pytest.mark.parametrize("weakness", WEAKENED)
def test_a_check_that_is_missing_is_noticed(weakness: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By something false that is believed, not by an error that the check would have prevented."""
    monkeypatch.setattr(*WEAKENED[weakness])
    found = (text for seed in range(8) for name in PROBLEMS for text in believed(name, seed))
    assert any(text.startswith(("proves", "lets", "valid", "the bound")) for text in found)
