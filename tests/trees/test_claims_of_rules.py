"""What papers claim of their rules, settled on small models: by exact numbers and by bounds."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog
from support.tables import output_law

import mdsd_opt as mo
from mdsd_opt.cddlib_checks import optimum
from mdsd_opt.decoding import chain, get_rule, tree_bound, whole_paths


class Constant:
    """The same law after every text."""

    def __init__(self, *weights):
        self.vocab_size, total = len(weights), sum(weights)
        self.law = np.array([Fraction(n, total) for n in weights], dtype=object)

    def __call__(self, text):
        return self.law


def bound_of(target, draft, topology):
    p, q = (model.law.astype(np.float64) for model in (target, draft))
    found = tree_bound(lambda text: p, lambda text: q, topology)
    assert found.gap < 1e-9
    return found


@pytest.mark.parametrize(
    ("rule", "accepted"),
    [
        ("greedy_multi_path", Fraction(233, 125)),
        ("traversal_hull", Fraction(241, 125)),
        ("level_sequential", Fraction(242, 125)),
    ],
)
def test_no_rule_for_whole_paths_is_the_best_one(rule, accepted):
    """Neither the foremost path nor local plans that are scaled by the chance of the prefix."""
    target, draft, topology = Constant(1, 4), Constant(2, 3), whole_paths(2, 2)
    assert output_law(get_rule(rule), target, draft, topology, "with_replacement")[1] == accepted
    found = bound_of(target, draft, topology)
    assert found.lower == pytest.approx(1.9504, abs=1e-9)
    assert accepted < found.lower - 0.014


def hierarchical_accepted(p, q, whole_capped):
    """Mean accepted drafts of hierarchical verification of two drafts, by its own steps."""
    mean = 0
    for draft in product(range(2), repeat=2):
        ratio = [Fraction(1)]
        for token in draft:
            ratio.append(ratio[-1] * p[token] / q[token])
            if whole_capped:
                ratio[-1] = min(ratio[-1], 1)
        whole = min(ratio[2], 1)
        first = min(ratio[1], 1)
        left = sum(max(first * p[x] - q[x], 0) for x in range(2))
        stays = left / (left + 1 - first) if left > 0 else 0
        chance = q[draft[0]] * q[draft[1]]
        mean += chance * (2 * whole + (1 - whole) * stays)
    return mean


@pytest.mark.parametrize("weights", [((1, 2), (2, 1)), ((1, 4), (2, 3)), ((3, 4), (5, 2))])
def test_hierarchical_verification_is_block_verification_if_all_is_capped(weights):
    target, draft = Constant(*weights[0]), Constant(*weights[1])
    capped, uncapped = (
        hierarchical_accepted(target.law, draft.law, whole_capped) for whole_capped in (True, False)
    )
    _, accepted = output_law(
        get_rule("block_verification"), target, draft, chain(2), "with_replacement"
    )
    assert capped == accepted
    most = bound_of(target, draft, chain(2)).upper
    assert float(capped) == pytest.approx(most, abs=1e-9)
    assert float(uncapped) > most + 1e-3  # so that it cannot be lossless


def drafts_in_turn(p, q, num_drafts):
    """The most that tests of one draft after another accept: each sees no later draft.

    Given what was refused, the k-th test accepts u_k(x) of token x, at most q(x) times what is left
    by then, and all tests together at most p(x).
    """
    size = p.size
    rows, limits = [], []
    for x in range(size):
        rows.append(np.tile(np.arange(size) == x, num_drafts).astype(float))
        limits.append(p[x])
        for k in range(num_drafts):
            row = np.zeros(num_drafts * size)
            row[: k * size] = q[x]
            row[k * size + x] = 1.0
            rows.append(row)
            limits.append(q[x])
    found = linprog(-np.ones(num_drafts * size), A_ub=rows, b_ub=limits, method="highs")
    assert found.status == 0
    return -found.fun


def test_drafts_tested_in_turn_do_not_reach_the_optimum():
    """Not even for one token, which a rule for blocks of one token is for."""
    target, draft = Constant(5, 3, 1), Constant(1, 1, 1)
    problem = mo.TransportProblem(target.law.tolist(), mo.WithReplacement(draft.law.tolist(), 2))
    assert optimum(problem) == 1
    p, q = target.law.astype(np.float64), draft.law.astype(np.float64)
    most = drafts_in_turn(p, q, 2)
    assert most == pytest.approx(17 / 18, abs=1e-9)
    for name in ("kseq", "rrs"):
        assert mo.verifiers.get(name).acceptance_rate(mo.TransportProblem(p, problem.drafts)) < most
