"""The one-pass form of the optimal verifier: an exact law, and a certified loss of acceptance."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from support.selection_law import selection_law
from support.strategies import problems

from mdsd_opt import GreedyDrafts, TransportProblem, WithoutReplacement, WithReplacement, verifiers
from mdsd_opt.errors import InvalidInput, UnsupportedScheme
from mdsd_opt.verifiers import BinnedPlan, Uniforms

V = 131_072
SCHEMES = ("with_replacement", "without_replacement")
BINNED = verifiers.get("optimal", binned=True)
OPTIMAL = verifiers.get("optimal")


@given(problem=problems(SCHEMES, max_vocab=5, max_drafts=4))
def test_the_law_is_exact_and_the_loss_certified(problem):
    assume(BINNED.supports(problem.drafts))
    np.testing.assert_allclose(BINNED.output_law(problem), problem.target, rtol=0, atol=1e-12)
    rate = BINNED.acceptance_rate(problem)
    accepted = BINNED.enumerated_acceptance_rate(problem)  # with residual draws that hit
    best = OPTIMAL.acceptance_rate(problem)
    assert rate - 1e-12 <= accepted <= best + 1e-12
    assert best <= rate + rate.gap + 1e-12


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("num_drafts", [1, 2, 8])
@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_at_full_vocabulary(num_drafts, scheme, spread):
    rng = np.random.default_rng(num_drafts)
    target = (2.5 * rng.standard_normal(V)).astype(np.float32)
    draft = target + (spread * rng.standard_normal(V)).astype(np.float32)
    problem = TransportProblem.from_logits(target, draft, num_drafts, scheme)
    plan = BinnedPlan(problem.target, problem.drafts.random_draws)
    # The law of the selection, of which each bucket passes its share to its tokens by q.
    selected = selection_law(plan.w, plan.gains, plan.death_levels)
    np.testing.assert_allclose(selected, plan.x, rtol=0, atol=1e-12)
    assert plan.selection.sum() == pytest.approx(1.0, abs=1e-11)
    kept = np.minimum(plan.target, plan.selection)
    output = kept + (1.0 - kept.sum()) * plan.residual
    assert 0.5 * np.abs(output - problem.target).sum() < 1e-9
    rate, best = BINNED.acceptance_rate(problem), OPTIMAL.acceptance_rate(problem)
    assert best - 2e-3 < rate <= best + 1e-12
    assert best <= rate + rate.gap + 1e-12


@pytest.mark.parametrize("uniform", [0.0, np.nextafter(1.0, 0.0)])
@pytest.mark.parametrize("scheme", [WithReplacement, WithoutReplacement])
def test_impossible_tokens_stay_impossible(scheme, uniform):
    p = np.array([0.0, 0.4, 0.0, 0.6, 0.0])
    problem = TransportProblem(p, scheme([0.4, 0.1, 0.3, 0.0, 0.2], 2))
    for drafts in ([0, 2], [2, 4], [0, 1], [1, 4]):
        token = BINNED.verify(problem, drafts, Uniforms(*[uniform] * 4)).token
        assert p[token] > 0


def test_the_rate_tells_its_loss():
    problem = TransportProblem([0.5, 0.3, 0.2], WithReplacement([0.2, 0.3, 0.5], 2))
    rate = BINNED.acceptance_rate(problem)
    assert rate == pytest.approx(0.86)
    assert rate.gap < 1e-3
    assert "at most" in repr(rate)
    assert pickle.loads(pickle.dumps(rate)).gap == rate.gap


def test_other_schemes_and_options_are_refused():
    problem = TransportProblem([0.5, 0.3, 0.2], GreedyDrafts([0.2, 0.3, 0.5], 2))
    with pytest.raises(UnsupportedScheme, match="not lossless for 'greedy'"):
        BINNED.acceptance_rate(problem)
    with pytest.raises(InvalidInput, match="does not take \\['colapsed'\\]"):
        verifiers.get("optimal", colapsed=True)
    with pytest.raises(InvalidInput, match="does not take"):
        verifiers.get("rrs", binned=True)
    assert verifiers.get("optimal", binned=False) is OPTIMAL
    assert verifiers.get("importance_sampling", size=2).name == "importance_sampling"


@pytest.mark.parametrize(
    "drafts",
    [
        WithoutReplacement([0.5, 0.5, 0.0], 2),
        WithoutReplacement([0.2, 0.3, 0.5], 4),
    ],
    ids=["drafts that are certain", "fewer tokens than drafts"],
)
def test_drafts_that_are_certain_are_decided_by_the_exact_rule(drafts):
    p = np.arange(1.0, drafts.vocab_size + 1)
    problem = TransportProblem(p / p.sum(), drafts)
    binned, exact = verifiers.get("optimal", binned=True), verifiers.get("optimal")
    rate = binned.acceptance_rate(problem)
    assert rate.gap == 0.0
    assert rate == pytest.approx(float(exact.acceptance_rate(problem)), abs=1e-15)
    sampled = drafts.sample(np.random.default_rng(0))
    one, other = (v.verify(problem, sampled, np.random.default_rng(1)) for v in (binned, exact))
    assert one == other
