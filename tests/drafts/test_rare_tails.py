"""Draws without replacement where the first drafts leave next to nothing of q."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.solvers.subset_selection import best_prefix

ROWS = {
    "a tail beside one": ([0.2, 0.3, 0.1, 0.25, 0.15], [1.2e-20, 1.0, 0.7e-20, 1.1e-20, 0.9e-20]),
    "many scales": (
        [1e-4, 1e-34, 0.9999, 1e-14, 1e-20, 1e-28],
        [1.0, 1e-30, 1e-11, 1e-34, 1e-27, 1e-25],
    ),
}


VERIFIERS = [{}, {"binned": True}]


@pytest.mark.parametrize("options", VERIFIERS)
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("num_drafts", [2, 3, 4])
def test_the_output_has_the_law_of_the_target(
    row: str, num_drafts: int, options: dict[str, bool]
) -> None:
    p, q = (np.array(law) / np.sum(law) for law in ROWS[row])
    problem = mo.TransportProblem(p, mo.WithoutReplacement(q, num_drafts))
    verifier = mo.verifiers.get("optimal", **options)
    np.testing.assert_allclose(verifier.output_law(problem), p, atol=1e-12)


@pytest.mark.parametrize("options", VERIFIERS)
@pytest.mark.parametrize("scheme", [mo.WithReplacement, mo.WithoutReplacement])
def test_masses_over_many_scales(
    scheme: type[mo.WithReplacement | mo.WithoutReplacement], options: dict[str, bool]
) -> None:
    """Among them drafts that are certain, K being the number of tokens or more."""
    verifier, rng = mo.verifiers.get("optimal", **options), np.random.default_rng(0)
    for _ in range(60):
        vocab_size, num_drafts = int(rng.integers(2, 6)), int(rng.integers(1, 5))
        p, q = (10.0 ** rng.uniform(-30, 0, vocab_size) for _ in range(2))
        problem = mo.TransportProblem(p / p.sum(), scheme(q / q.sum(), num_drafts))
        np.testing.assert_allclose(verifier.output_law(problem), p / p.sum(), atol=1e-12)


@pytest.mark.parametrize("options", VERIFIERS)
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("num_drafts", [2, 3])
def test_decisions_have_the_law_they_are_said_to_have(
    row: str, num_drafts: int, options: dict[str, bool]
) -> None:
    """The seven standard errors allowed are passed once in 10^11 by chance."""
    p, q = (np.array(law) / np.sum(law) for law in ROWS[row])
    problem = mo.TransportProblem(p, mo.WithoutReplacement(q, num_drafts))
    verifier, rng, count = mo.verifiers.get("optimal", **options), np.random.default_rng(0), 1000
    drafts = problem.drafts.sample(rng)
    law = verifier.conditional_law(problem, drafts)
    tokens = [verifier.verify(problem, drafts, rng).token for _ in range(count)]
    found = np.bincount(tokens, minlength=p.size) / count
    assert (np.abs(found - law) <= 7 * np.sqrt(law * (1 - law) / count) + 1e-9).all()


def test_residual_tokens_are_those_of_the_law_where_all_outside_the_cut_is_lost() -> None:
    """q outside the cut is 1e-18: a water level for it is nothing but rounding."""
    p = np.array([0.28, 0.59, 1e-8, 0.11, 0.02])
    q = np.array([1.0, 1e-20, 4e-18, 0.0, 0.0])
    for scheme in (mo.WithReplacement, mo.WithoutReplacement):
        for k in (1, 2, 3):
            problem = mo.TransportProblem(p / p.sum(), scheme(q / q.sum(), k))
            verifier, drafts = mo.verifiers.get("optimal"), np.zeros(k, np.int64)
            if scheme is mo.WithoutReplacement:
                drafts = np.arange(3)[:k]
            residual = verifier.decide(problem, drafts).residual
            assert residual is not None
            for uniform in np.linspace(0.0, 0.999, 40).tolist():
                rejected = mo.verifiers.Uniforms(0.5, 0.5, 1.0 - 2.0**-53, uniform)
                token = verifier.verify(problem, drafts, rejected).token
                law = verifier.conditional_law(problem, drafts)
                assert law[token] > 0.0
                assert token in drafts[1:] or residual[token] > 0.0


def test_a_rare_token_inside_the_cut_costs_the_others_nothing() -> None:
    """Token 3 is too rare for the sums to tell on which side of the cut it is; p/q is 13,000."""
    p = [2.864912855068294e-20, 7.781262409059696e-07, 2.5806879598248273e-25,
         7.352293974978492e-17, 0.0007641871401479399, 2.6712646898241072e-09,
         0.13700219025516963, 0.48102108142501043, 0.3812117603821663]  # fmt: skip
    q = [1.6218485248101703e-08, 0.7690719554221744, 1.0241521888945628e-07,
         5.8551573631391784e-21, 0.003519258489761413, 2.539626426345881e-18,
         1.338403091982738e-06, 0.22740732905126793, 1.2623642634061353e-16]  # fmt: skip
    problem, drafts = mo.TransportProblem(p, mo.WithReplacement(q, 4)), np.ones(4, np.int64)
    verifier, count = mo.verifiers.get("optimal"), 2000
    residual = verifier.decide(problem, drafts).residual
    assert residual is not None
    rejecting = [mo.verifiers.Uniforms(0.5, 0.5, 1.0 - 2.0**-53, i / count) for i in range(count)]
    tokens = [verifier.verify(problem, drafts, uniforms).token for uniforms in rejecting]
    found = np.bincount(tokens, minlength=len(p)) / count
    np.testing.assert_allclose(found, residual / residual.sum(), atol=2 / count)


BESIDE_ONE = [
    ([0.27, 0.25, 0.28, 0.2], [3e-30, 2e-30, 2e-150, 1.0], 2),
    ([1 / 3, 1 / 3, 1 / 3], [1.0, 1e-17, 1e-299], 2),
    ([0.28, 0.22, 0.42, 0.08], [1e-100, 2e-30, 1.0, 0.0], 2),
    ([0.1, 0.2, 0.3, 0.4], [1.0, 1e-20, 1e-20, 2e-20], 3),
]


@pytest.mark.parametrize(("p", "q", "num_drafts"), BESIDE_ONE)
def test_the_cut_may_lie_among_tokens_that_sums_lose(
    p: list[float], q: list[float], num_drafts: int
) -> None:
    """Q grows from 0 to 1 over tokens whose q does not show in the sums over prefixes."""
    problem = mo.TransportProblem(p, mo.WithoutReplacement(q, num_drafts))
    target = np.array(problem.exact_target, dtype=object)
    order, contained, split, _ = best_prefix(target, problem.drafts)
    masses = [problem.exact_target[token] for token in order[:split]]
    optimum = 1 + sum(masses) - contained[split]
    solution = mo.solve(problem, "subset_selection")
    assert solution.acceptance_rate == pytest.approx(float(optimum), abs=1e-12)
    assert mo.verifiers.get("optimal").acceptance_rate(problem) == solution.acceptance_rate
    certificate = mo.certify(problem, solution)
    assert certificate.lower - 1e-12 <= optimum <= certificate.upper + 1e-12
    assert certificate.gap < 1e-12
    target, draft = np.log(problem.target), np.log(np.maximum(q, 1e-320))
    rate = mo.acceptance_rates(target[None], draft[None], num_drafts, "without_replacement")
    assert float(rate[0]) == pytest.approx(float(optimum), abs=1e-9)
