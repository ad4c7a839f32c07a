"""The optimal verifier at full vocabulary, and its quick step against the explicit rule."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from support.selection_law import selection_law

from mdsd_opt import TransportProblem, WithoutReplacement, WithReplacement, solve
from mdsd_opt.verifiers import GroupedPlan, Uniforms, output_token
from mdsd_opt.verifiers.optimal.acceptance_rule import blocks_around
from mdsd_opt.verifiers.optimal.grouped_plan import applies_to, plan_of

V = 131_072


@cache
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
    selected = selection_law(plan.w, plan.gains, plan.death_levels)
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
    return TransportProblem(p / p.sum(), drafts) if applies_to(drafts.random_draws) else None


def explicit_token(plan, tokens, uniforms):
    """Output by the death levels of all boundaries between tokens, and the law of the residual."""
    drawn = plan.drawn(tokens)
    until = 0.0
    for length, start, stop in blocks_around(int(drawn.places.max()), plan.death_levels):
        block = start, stop
        until += length
        if until > uniforms.mixing:
            break
    shares = plan.block_rule(drawn)(*block)
    chosen = int(np.searchsorted(np.cumsum(shares), uniforms.draft, side="right"))
    place = drawn.places[min(chosen, int(np.flatnonzero(shares)[-1]))]
    if uniforms.acceptance * plan.x[place] < plan.p[place]:
        return int(plan.order[place])
    reached = np.cumsum(plan.residual)
    return int(np.searchsorted(reached, uniforms.residual * reached[-1], side="right"))


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
            expected = explicit_token(plan, tokens, uniforms)
            for any_plan in (GroupedPlan(problem.target, problem.drafts.random_draws), plan):
                output = output_token(any_plan, tokens, uniforms)
                assert output == expected, (problem, tokens, uniforms)
            compared += 1
    assert compared > 2000


@pytest.mark.parametrize("scheme", [WithReplacement, WithoutReplacement])
def test_a_block_is_an_edge_of_the_lower_hull(scheme):
    """Nothing on its side of the cut lies below the line through its ends, whatever the plan."""
    rng, compared = np.random.default_rng(11), 0
    for size in rng.integers(1, 60, 200):
        problem = random_problem(rng, scheme, int(size))
        if problem is None:
            continue
        level, tokens = rng.random(), problem.drafts.sample(rng)
        for plan in (plan_of(problem), GroupedPlan(problem.target, problem.drafts.random_draws)):
            start, stop = plan.block(tokens, level)
            assert start <= plan.places(tokens).max() < stop
            weight = np.append(0.0, np.cumsum(plan.w))
            height = np.append(0.0, np.cumsum(plan.x - level * plan.gains))
            slope = (height[stop] - height[start]) / (weight[stop] - weight[start])
            above = height - height[start] - slope * (weight - weight[start])
            side = slice(0, plan.split + 1) if start < plan.split else slice(plan.split, None)
            assert above[side].min() > -1e-12
            compared += 1
    assert compared > 200


def test_a_water_level_is_one_block_at_every_level():
    """One draft: p_I is q, Q is straight, and all places of a side are tied but for rounding."""
    rng = np.random.default_rng(2)
    p, q = rng.dirichlet(np.ones(50), size=2)
    problem = TransportProblem(p, WithReplacement(q, 1))
    for plan in (plan_of(problem), GroupedPlan(problem.target, problem.drafts.random_draws)):
        for level in (0.0, 0.3, 0.9):
            for token in range(50):
                expected = {(0, plan.split), (plan.split, plan.x.size)}
                assert plan.block(np.array([token]), level) in expected


@pytest.mark.parametrize("scheme", [WithReplacement, WithoutReplacement])
def test_few_distinct_ratios_are_no_burden(scheme):
    """Ties by the thousand, as logits of 16 bits have them."""
    rng = np.random.default_rng(5)
    p, q = rng.integers(1, 4, 20_000), rng.integers(0, 4, 20_000)
    problem = TransportProblem(p / p.sum(), scheme(q / q.sum(), 4))
    plan = plan_of(problem)
    for tokens in problem.drafts.sample(rng, size=20):
        uniforms = Uniforms(*rng.random(4).tolist())
        token = output_token(
            GroupedPlan(problem.target, problem.drafts.random_draws), tokens, uniforms
        )
        expected = explicit_token(plan, tokens, uniforms)
        assert token == expected or p[token] * q[expected] == p[expected] * q[token]
