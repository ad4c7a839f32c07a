"""Rules in use: their exact laws against enumeration, simulation and the frontier."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path
from mdsd_opt.errors import InvalidDistribution, InvalidInput
from mdsd_opt.solvers import CostCurve, frontier_of
from mdsd_opt.solvers.frontier import rules

Vector = NDArray[np.float64]


def step(rule: rules.LossyRule, p: Vector, q: Vector, x: int) -> tuple[float, Vector]:
    """The chance to accept x and the law of what comes instead, written out from the papers."""
    likeliest = np.eye(p.size)[p.argmax()]
    if isinstance(rule, rules.TypicalAcceptance):
        entropy = -sum(v * math.log(v) for v in p if v > 0)
        bound = min(rule.epsilon, rule.delta * math.exp(-entropy))
        return float(p[x] > bound), likeliest
    if isinstance(rule, rules.TopAcceptance):
        return float(p[x] >= sorted(p, reverse=True)[rule.n - 1]), likeliest
    if isinstance(rule, rules.Lenience):
        goal = p / rule.lenience
    elif isinstance(rule, rules.Ensemble):
        goal = rule.weight * p + (1 - rule.weight) * q
    else:
        assert isinstance(rule, rules.ConstrainedAcceptance)
        raised = min(p[x] + math.sqrt(2 * rule.delta * p[x] * (1 - p[x])), 1.0)
        goal = p * (1 - raised) / (1 - p[x]) if p[x] < 1 else p.copy()
        goal[x] = raised
    residual = np.maximum(goal - q, 0)
    return min(1.0, goal[x] / q[x]), residual / residual.sum() if residual.any() else residual


RULES = [
    *rules.NAMED_RULES.values(),
    rules.Lenience(0.3),
    rules.Ensemble(0.0),
    rules.ConstrainedAcceptance(2.0),
    rules.TopAcceptance(1),
]


def pairs() -> list[tuple[Vector, Vector]]:
    rng = np.random.default_rng(3)
    drawn = [tuple(rng.dirichlet(np.full(5, 0.6), 2)) for _ in range(6)]
    zeros = (np.array([0.0, 0.5, 0.3, 0.2, 0.0]), np.array([0.4, 0.1, 0.3, 0.0, 0.2]))
    same = (drawn[0][0], drawn[0][0])
    one_hot = (np.eye(5)[2], np.full(5, 0.2))
    return [*drawn, zeros, same, one_hot, (np.full(5, 0.2), np.eye(5)[1])]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_law_is_that_of_all_drafts(rule: rules.LossyRule) -> None:
    for p, q in pairs():
        law, rate = np.zeros(p.size), 0.0
        for x in np.flatnonzero(q).tolist():
            accepted, instead = step(rule, p, q, x)
            law += q[x] * ((1 - accepted) * instead)
            law[x] += q[x] * accepted
            rate += q[x] * accepted
        found = rule.outcome(p, q)
        np.testing.assert_allclose(found.law, law, atol=1e-12)
        assert found.acceptance_rate == pytest.approx(rate, abs=1e-12)


@pytest.mark.parametrize(
    "rule", [rules.Lenience(1.0), rules.Ensemble(1.0), rules.ConstrainedAcceptance(0.0)], ids=repr
)
def test_lossless_at_the_end_of_the_range(rule: rules.LossyRule) -> None:
    for p, q in pairs():
        found = rule.outcome(p, q)
        np.testing.assert_allclose(found.law, p, atol=1e-14)
        assert found.acceptance_rate == pytest.approx(np.minimum(p, q).sum(), abs=1e-14)


def test_none_lies_beyond_the_frontier_on_real_logits() -> None:
    """All bundled positions: no parameter of a rule was chosen on them."""
    sample = np.load(sample_logits_path())
    spared = dict.fromkeys(rules.NAMED_RULES, 0.0)
    for target, draft in zip(sample["target"], sample["draft"], strict=True):
        p, q = mo.softmax(target), mo.softmax(draft)
        costs = CostCurve.of(frontier_of(mo.TransportProblem(p, mo.WithReplacement(q, 1))))
        for name, rule in rules.NAMED_RULES.items():
            found = rule.outcome(p, q)
            rate = min(found.acceptance_rate, costs.most)
            far = found.distances
            assert rate - costs.least <= far.tv + 1e-11
            assert costs.cost("kl", rate) <= far.kl * (1 + 1e-9) + 1e-11
            assert costs.cost("chi2", rate) <= far.chi2 * (1 + 1e-9) + 1e-11
            assert rate <= costs.rate_within("kl", far.kl) + 1e-9
            spared[name] += far.kl - costs.cost("kl", rate)
    assert min(spared.values()) > 0.01  # so that the comparison is not one of equals


def test_none_is_closer_in_the_other_direction_of_kl() -> None:
    sample = np.load(sample_logits_path())
    for row in (0, 20):
        p, q = mo.softmax(sample["target"][row]), mo.softmax(sample["draft"][row])
        problem = mo.TransportProblem(p, mo.WithReplacement(q, 1))
        for rule in rules.NAMED_RULES.values():
            found = rule.outcome(p, q)
            best = mo.relax(problem, acceptance_rate=min(found.acceptance_rate, 1.0))
            assert best.reverse_kl <= found.distances.reverse_kl * (1 + 1e-9) + 1e-11


@pytest.mark.parametrize(
    ("p", "q", "error"),
    [
        ([0.5, 0.5], [1.0], InvalidInput),
        ([0.5, 0.7], [0.5, 0.5], InvalidDistribution),
        ([0.5, 0.5], [math.nan, 1.0], InvalidDistribution),
    ],
)
def test_bad_input(p: list[float], q: list[float], error: type[Exception]) -> None:
    with pytest.raises(error):
        rules.Lenience().outcome(np.array(p), np.array(q))
