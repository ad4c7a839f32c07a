"""The optimum by search in buckets of p/q, against sorting and against exact arithmetic."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.prefix_search import cut_search as bounds
from mdsd_opt.prefix_search import is_searchable
from mdsd_opt.problem.water_filling import water_fill
from mdsd_opt.solvers import exact_optimum, subset_selection

SCHEMES = [mo.WithReplacement, mo.WithoutReplacement]
scheme = pytest.mark.parametrize("scheme", SCHEMES)


def problem_of(p, q, scheme, num_drafts):
    return mo.TransportProblem(np.array(p) / np.sum(p), scheme(np.array(q) / np.sum(q), num_drafts))


def sorted_path(problem):
    return subset_selection.by_sorting(problem.target, problem.drafts)


def hard_rows(rng, size):
    """Weights of a target and a draft: plain, with zeros, with ties, peaked, equal, far apart."""
    kind = rng.integers(7)
    p, q = rng.dirichlet(np.full(size, 0.5), 2)
    if kind == 1:
        p, q = p * (rng.random(size) < 0.6), q * (rng.random(size) < 0.6)
    elif kind == 2:
        p, q = rng.integers(0, 4, (2, size)).astype(float)
    elif kind == 3:
        q[rng.integers(size)] += 1e6
    elif kind == 4:
        p = q.copy()
    elif kind == 5:
        p, q = 2.0 ** rng.integers(-60, 1, (2, size))
    elif kind == 6:
        q = np.zeros(size)
        q[rng.integers(size)] = 1.0
    return (p, q) if p.sum() > 0 and q.sum() > 0 else hard_rows(rng, size)


@scheme
@pytest.mark.parametrize("seed", range(60))
def test_the_search_finds_the_exact_optimum(scheme, seed):
    rng = np.random.default_rng(seed)
    size, num_drafts = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    problem = problem_of(*hard_rows(rng, size), scheme, num_drafts)
    exact, _ = exact_optimum(problem)
    found = mo.solve(problem, "subset_selection")
    assert found.acceptance_rate == pytest.approx(float(exact), abs=1e-13)
    assert float(problem.law(True).cut_value(found.subset) - exact) < 1e-13
    assert found.stats == sorted_path(problem).stats | {"subset_size": int(found.subset.sum())}
    certificate = mo.certify(problem, found)
    assert certificate.valid, certificate.violations
    assert certificate.lower - 1e-13 <= float(exact) <= certificate.upper + 1e-13
    assert certificate.gap < 1e-12


@scheme
@pytest.mark.parametrize("num_drafts", [2, 3, 7])
def test_the_subset_is_that_of_the_sorted_path(scheme, num_drafts):
    """Where ties are broken by token ids alone, and rounding decides nothing."""
    rng = np.random.default_rng(num_drafts)
    for size in (3, 50, 4000):
        p, q = rng.dirichlet(np.ones(size), 2)
        for problem in (
            problem_of(p, q, scheme, num_drafts),
            problem_of(*rng.integers(1, 9, (2, size)), scheme, num_drafts),
        ):
            found, expected = mo.solve(problem, "subset_selection"), sorted_path(problem)
            assert found.acceptance_rate == pytest.approx(expected.acceptance_rate, abs=1e-12)
            assert (found.subset == expected.subset).all()


@scheme
def test_ties_by_the_thousand_and_rounded_logits(scheme):
    rng = np.random.default_rng(1)
    target = 3.0 * rng.standard_normal(20_000)
    draft = target + rng.standard_normal(20_000)
    rounded = [
        (x.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
        for x in (target, draft)
    ]
    for problem in (
        mo.TransportProblem.from_logits(*rounded, 3, scheme.scheme),
        problem_of(np.ones(20_000), np.ones(20_000), scheme, 1),
        problem_of(*rng.integers(0, 4, (2, 20_000)), scheme, 4),
    ):
        found, expected = mo.solve(problem, "subset_selection"), sorted_path(problem)
        assert found.acceptance_rate == pytest.approx(expected.acceptance_rate, abs=1e-11)
        assert mo.certify(problem, found).gap < 1e-12


def test_vocabularies_of_any_size():
    """More tokens than fit beside a ratio in one number."""
    rng = np.random.default_rng(2)
    p, q = rng.dirichlet(np.ones(300_000), 2)
    problem = problem_of(p, q, mo.WithReplacement, 3)
    found, expected = mo.solve(problem, "subset_selection"), sorted_path(problem)
    assert found.acceptance_rate == pytest.approx(expected.acceptance_rate, abs=1e-12)
    assert (found.subset == expected.subset).all()


def scanned_bound(p, drafts, x):
    """`lower_bound` by a scan of all prefixes."""
    order = drafts.prefix_order(x)
    inside = np.append(0.0, np.cumsum(x[order]))
    shortfall = (drafts.prefix_containment(order) - inside).max()
    return np.minimum(p, x).sum() - shortfall - abs(x.sum() - 1.0)


@scheme
@pytest.mark.parametrize("seed", range(40))
def test_a_marginal_is_worth_what_a_scan_of_all_prefixes_says(scheme, seed):
    """Marginals that fail by a little, deep inside a bucket or everywhere, and such as hold."""
    rng = np.random.default_rng(seed)
    size, num_drafts = int(rng.choice([1, 5, 60, 3000])), int(rng.integers(1, 9))
    problem = problem_of(*hard_rows(rng, size), scheme, num_drafts)
    p, drafts = problem.target, problem.drafts
    draws = drafts.random_draws
    if not is_searchable(draws):
        return
    subset = mo.solve(problem, "subset_selection").subset
    best = water_fill(p, drafts, subset, drafts.containment(subset)).values
    for x in (best, best * rng.uniform(0.9, 1.1, size), p, drafts.q, rng.dirichlet(np.ones(size))):
        found, expected = bounds.lower_bound(p, draws, x), scanned_bound(p, drafts, x)
        assert expected - 1e-11 <= found <= expected + 1e-12


def test_many_drafts_without_replacement_take_no_memory():
    """The race before every bucket would take a gigabyte."""
    rng = np.random.default_rng(3)
    p, q = rng.dirichlet(np.full(4000, 0.2), 2)
    problem = problem_of(p, q, mo.WithoutReplacement, 300)
    solution = mo.solve(problem, "subset_selection")
    tracemalloc.start()
    try:
        solution = mo.solve(problem, "subset_selection")
        assert mo.certify(problem, solution).valid
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
