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


def random_problem(rng, scheme, size):
    """Few tokens or many, with zeros, ties, p = q, or a very peaked draft; None if nothing is left.

    Many tokens come close together, so that buckets hold several.
    """
    concentration = rng.choice([0.1, 0.5, 3.0, 100.0])
    p, q = (rng.dirichlet(np.full(size, concentration)) * (rng.random(size) > 0.2) for _ in "pq")
    if rng.random() < 0.3:
        p, q = np.round(6 * p), np.round(6 * q)
    if rng.random() < 0.1:
        p = q
    if p.sum() == 0 or q.sum() == 0:
        return None
    drafts = scheme(q / q.sum(), int(rng.integers(1, 9)))
    return TransportProblem(p / p.sum(), drafts) if sort_free_step.applies_to(drafts) else None


def explicit_token(plan, tokens, places, positions, uniforms):
    """Output of the explicit rule, the residual drawn in ascending order of p/q."""
    chosen = select(plan, positions, uniforms)
    if uniforms.acceptance < accepted_share(plan, positions[chosen]):
        return int(tokens[places[chosen]])
    others = np.setdiff1d(np.arange(plan.residual.size), plan.order)
    order = np.append(plan.order, others)
    reached = np.cumsum(plan.residual[order])
    point = uniforms.residual * reached[-1]
    return int(order[np.searchsorted(reached, point, side="right")])


@pytest.mark.parametrize("scheme", [WithReplacement, WithoutReplacement])
def test_the_step_without_sorting_decides_as_the_explicit_rule(scheme):
    rng = np.random.default_rng(3)
    compared = 0
    sizes = [*rng.integers(1, 40, 1200), *rng.integers(500, 3000, 20)]
    for size in sizes:
        problem = random_problem(rng, scheme, int(size))
        if problem is None:
            continue
        plan = plan_of(problem)
        for _ in range(3):
            tokens, uniforms = problem.drafts.sample(rng), Uniforms(*rng.random(4).tolist())
            places, positions = random_drafts(problem, plan, tokens)
            expected = explicit_token(plan, tokens, places, positions, uniforms)
            output = sort_free_step.decide(problem.target, problem.drafts, tokens, uniforms)
            assert output == expected, (problem, tokens, uniforms)
            compared += 1
    assert compared > 2000


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
@pytest.mark.parametrize("num_drafts", [2, 4, 8])
def test_the_step_without_sorting_at_full_vocabulary(num_drafts, scheme):
    problem, rng = full_vocabulary(num_drafts, scheme), np.random.default_rng(1)
    plan = plan_of(problem)
    for tokens in problem.drafts.sample(rng, size=25):
        uniforms = Uniforms(*rng.random(4).tolist())
        places, positions = random_drafts(problem, plan, tokens)
        expected = explicit_token(plan, tokens, places, positions, uniforms)
        assert sort_free_step.decide(problem.target, problem.drafts, tokens, uniforms) == expected


@pytest.mark.parametrize("scheme", [WithReplacement, WithoutReplacement])
def test_few_distinct_ratios_are_no_burden(scheme):
    """Ties by the thousand, as logits of 16 bits have them."""
    rng = np.random.default_rng(5)
    p, q = rng.integers(1, 4, 20_000), rng.integers(0, 4, 20_000)
    problem = TransportProblem(p / p.sum(), scheme(q / q.sum(), 4))
    plan = plan_of(problem)
    for tokens in problem.drafts.sample(rng, size=20):
        uniforms = Uniforms(*rng.random(4).tolist())
        places, positions = random_drafts(problem, plan, tokens)
        token = sort_free_step.decide(problem.target, problem.drafts, tokens, uniforms)
        expected = explicit_token(plan, tokens, places, positions, uniforms)
        assert token == expected or p[token] * q[expected] == p[expected] * q[token]


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
