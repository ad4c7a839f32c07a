"""Draws without replacement where the first drafts leave next to nothing of q."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd_opt as mo

ROWS = {
    "a tail beside one": ([0.2, 0.3, 0.1, 0.25, 0.15], [1.2e-20, 1.0, 0.7e-20, 1.1e-20, 0.9e-20]),
    "many scales": (
        [1e-4, 1e-34, 0.9999, 1e-14, 1e-20, 1e-28],
        [1.0, 1e-30, 1e-11, 1e-34, 1e-27, 1e-25],
    ),
}


VERIFIERS = [{}, {"collapsed": True}]


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
