"""Whatever evidence it gets, a certificate believes nothing false and raises no foreign error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.problem.lower_bounds.boxes import BoxCover
from mdsd_opt.problem.lower_bounds.orders import OrderMixture
from mdsd_opt.problem.solution import PlanBasis, Solution, Status, TransportPlan

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


def test_the_basis_of_a_solver_is_still_exact() -> None:
    solution = mo.solve(TWICE, "full_lp", formulation="supports")
    assert solution.plan is not None
    assert solution.plan.basis is not None
    certificate = mo.certify(TWICE, solution, exact=True)
    assert certificate.lower == certificate.upper


@pytest.mark.parametrize(("dtype", "flatness"), [(np.float16, 3.0), (np.float32, 0.3)])
@pytest.mark.parametrize("scheme", ["fixed beside", "mixture", "with replacement"])
def test_selections_of_low_precision_are_summed_in_float64(
    scheme: str, dtype: Any, flatness: float
) -> None:
    """Sums of 4,000 tokens in float16 proved up to 0.02 too much, in float32 1e-7."""
    p, q = np.random.default_rng(1).dirichlet(np.full(4000, flatness), size=2)
    once = mo.WithReplacement(q, 2)
    drafts = {
        "fixed beside": mo.FixedPlusDrafts([3], once),
        "mixture": mo.MixtureDrafts([(0.5, once), (0.5, mo.WithReplacement(q, 3))]),
        "with replacement": once,
    }[scheme]
    problem = mo.TransportProblem(p, drafts)
    refused(problem, claim(selection=p.astype(dtype)), False, mo.solve(problem).acceptance_rate)


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


@pytest.mark.parametrize("tolerance", [np.nan, np.inf, -1e-9, "1e-9", None, 10**400, 1j])
def test_a_tolerance_is_a_finite_number(tolerance: Any) -> None:
    with pytest.raises(mo.errors.InvalidInput, match="tolerance"):
        mo.certify(TWICE, mo.solve(TWICE), tolerance=tolerance)


def test_what_is_no_solution_is_an_error() -> None:
    with pytest.raises(mo.errors.InvalidInput, match="solution is a float"):
        mo.certify(TWICE, 0.85)  # type: ignore[arg-type]
