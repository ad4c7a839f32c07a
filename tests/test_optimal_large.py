"""The optimal verifier at full vocabulary, and its quick step against the explicit rule."""

from __future__ import annotations

import numpy as np
import pytest

from mdsd_opt import TransportProblem, WithoutReplacement, WithReplacement, solve, verifiers
from mdsd_opt.verifiers import Uniforms
from mdsd_opt.verifiers.optimal import sort_free_step
from mdsd_opt.verifiers.optimal.block_rules import block_rule
from mdsd_opt.verifiers.optimal.hull import blocks_around, death_levels, selection_law
from mdsd_opt.verifiers.optimal.plan import plan_of
from mdsd_opt.verifiers.optimal.verifier import accepted_share, random_drafts, select

V = 131_072


def full_vocabulary(num_drafts, scheme):
    rng = np.random.default_rng(num_drafts)
    target = (2.5 * rng.standard_normal(V)).astype(np.float32)
    draft = target + rng.standard_normal(V).astype(np.float32)
    return TransportProblem.from_logits(target, draft, num_drafts, scheme)


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
@pytest.mark.parametrize("num_drafts", [2, 4, 8])
def test_realised_law_at_full_vocabulary(num_drafts, scheme):
    problem = full_vocabulary(num_drafts, scheme)
    plan = plan_of(problem)
    levels = death_levels(plan.x, plan.w, plan.slopes)
    selected = selection_law(plan.w, plan.slopes, levels)
    # Output: selected, accepted with min(1, p/x), else the residual.
    kept = selected * np.minimum(1.0, np.divide(plan.p, plan.x, out=plan.x * 0, where=plan.x > 0))
    output = np.zeros(V)
    output[plan.order] = kept
    output += (1.0 - kept.sum()) * plan.residual
    assert 0.5 * np.abs(output - problem.target).sum() < 1e-9
    assert kept.sum() == pytest.approx(solve(problem).acceptance_rate, abs=1e-9)


@pytest.mark.parametrize("scheme", [WithReplacement, WithoutReplacement])
def test_quick_step_selects_and_accepts_as_the_explicit_rule(scheme):
    rng = np.random.default_rng(3)
    compared = 0
    for _ in range(1500):
        size, k = int(rng.integers(2, 40)), int(rng.integers(1, 6))
        p, q = (rng.dirichlet(np.full(size, 0.5)) * (rng.random(size) > 0.2) for _ in "pq")
        if rng.random() < 0.3:  # ties
            p, q = np.round(6 * p), np.round(6 * q)
        if p.sum() == 0 or q.sum() == 0:
            continue
        drafts = scheme(q / q.sum(), k)
        if not sort_free_step.applies_to(drafts):
            continue
        problem = TransportProblem(p / p.sum(), drafts)
        plan = plan_of(problem)
        for _ in range(3):
            tokens, uniforms = drafts.sample(rng), Uniforms(*rng.random(4))
            output = sort_free_step.decide(problem.target, drafts, tokens, uniforms)
            places, positions = random_drafts(problem, plan, tokens)
            chosen = select(plan, positions, uniforms)
            token = int(tokens[places[chosen]])
            if uniforms.acceptance < accepted_share(plan, positions[chosen]):
                assert output == token
            else:
                assert plan.residual[output] > 0
            compared += 1
    assert compared > 2000


def test_probabilities_integrate_the_mixing_level():
    rng = np.random.default_rng(0)
    problem = TransportProblem(
        rng.dirichlet(np.ones(30)), WithoutReplacement(rng.dirichlet(np.ones(30)), 3)
    )
    plan = plan_of(problem)
    tokens = problem.drafts.sample(rng)
    _, positions = random_drafts(problem, plan, tokens)
    levels = death_levels(plan.x, plan.w, plan.slopes)
    rule = block_rule(plan.drafts, positions, plan.w, plan.above)
    integrated = sum(
        length * rule(start, stop) for length, start, stop in blocks_around(positions.max(), levels)
    )
    middles = (np.arange(20_000) + 0.5) / 20_000
    counted = np.zeros(3)
    for mixing in middles[::10]:
        for draft in (0.1, 0.3, 0.5, 0.7, 0.9):
            counted[select(plan, positions, Uniforms(mixing, draft, 0.0, 0.0))] += 1
    assert counted / counted.sum() == pytest.approx(integrated, abs=0.11)
    assert integrated.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement", "greedy"])
def test_verdicts_at_full_vocabulary_are_possible_tokens(scheme):
    problem, rng = full_vocabulary(4, scheme), np.random.default_rng(0)
    for drafts in problem.drafts.sample(rng, 5):
        verdict = verifiers.get("optimal").verify(problem, drafts, rng)
        assert problem.target[verdict.token] > 0
        law = verifiers.get("optimal").conditional_law(problem, drafts)
        assert law.sum() == pytest.approx(1.0)
        assert law[verdict.token] > 0
