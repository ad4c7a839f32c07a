"""One draft law for several targets: against laws tried, other programmes and small cases."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from blind_drafts import accepted, by_one_uniform
from scipy.optimize import linprog
from shared_laws import blind_bound, shared_law, worth_most

import mdsd_opt as mo
from mdsd_opt.errors import InvalidDistribution, InvalidInput, ProblemTooLarge, SolverError


def case(seed, count=4, vocab_size=5):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(vocab_size, 0.6), count)
    p[0, rng.integers(vocab_size)] = 0.0
    p[1] = np.round(p[1] * 8) + np.eye(vocab_size)[0]  # ties and zeros
    return p / p.sum(axis=1, keepdims=True), rng.dirichlet(np.ones(count))


def mean_rate(p, c, q, k=1):
    return float(c @ mo.acceptance_rates(p, q, k, kind="probs"))


def lowest_bound(p, c, mass=1):
    """One draft by its own programme: q, of a mass, and what each target keeps of it."""
    count, v = p.shape
    rows = np.zeros((count * v, v + count * v))
    rows[:, v:] = np.eye(count * v)
    rows[:, :v] = -np.tile(np.eye(v), (count, 1))
    found = linprog(
        np.concatenate([np.zeros(v), -np.repeat(c, v)]),
        A_ub=rows,
        b_ub=np.zeros(count * v),
        A_eq=np.concatenate([np.ones(v), np.zeros(count * v)])[None],
        b_eq=[mass],
        bounds=[(0, 1)] * v + [(0, x) for x in p.ravel().tolist()],
    )
    assert found.status == 0
    return -found.fun


@pytest.mark.parametrize("seed", range(8))
def test_the_closed_form_of_one_draft_is_the_optimum_of_a_programme(seed):
    p, c = case(seed)
    found = shared_law(p, c)
    assert found.law.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.acceptance_rate == found.upper == pytest.approx(lowest_bound(p, c), abs=1e-9)
    assert mean_rate(p, c, found.law) == pytest.approx(found.acceptance_rate, abs=1e-9)
    assert blind_bound(p, c) == pytest.approx(found.acceptance_rate, abs=1e-7)


def test_the_mean_of_the_targets_is_not_the_best_law():
    """Two likely targets say 0, one says 1: by thirds the mean accepts 5/9, certainty 2/3."""
    p = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = shared_law(p)
    assert found.law.tolist() == [1.0, 0.0]
    assert found.acceptance_rate == pytest.approx(float(Fraction(2, 3)))
    assert mean_rate(p, np.full(3, 1 / 3), p.mean(axis=0)) == pytest.approx(5 / 9)
    assert shared_law(p, [0.2, 0.2, 0.6]).law.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("num_drafts", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_no_law_that_is_tried_accepts_more(seed, num_drafts):
    p, c = case(seed)
    found = shared_law(p, c, num_drafts)
    assert found.acceptance_rate <= found.upper <= found.acceptance_rate + 1e-6
    assert mean_rate(p, c, found.law, num_drafts) == pytest.approx(found.acceptance_rate, abs=1e-9)
    rng = np.random.default_rng(seed)
    tried = [*rng.dirichlet(np.full(5, 0.5), 30), c @ p, *p]
    tried += [0.98 * found.law + 0.02 * q for q in tried]
    assert max(mean_rate(p, c, q, num_drafts) for q in tried) <= found.upper + 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_no_draft_scheme_beats_the_bound_and_sets_of_its_own_reach_it(seed):
    p, c = case(seed)
    bound = blind_bound(p, c, 2)
    assert shared_law(p, c, 2).acceptance_rate <= bound + 1e-7
    rng = np.random.default_rng(seed)
    laws = [*rng.dirichlet(np.full(5, 0.5), 10), c @ p]
    schemes = ("with_replacement", "without_replacement", "greedy", "top_k")
    for q, scheme in product(laws, schemes):
        rates = mo.acceptance_rates(p, q, 2, scheme, kind="probs")
        assert c @ rates <= bound + 1e-7
    assert blind_bound(p, c, 1) <= bound + 1e-9
    assert blind_bound(p, c, 9) == pytest.approx(1.0)


def by_cuts_of_sets(p, c, k):
    """The bound by its other form: all subsets H, the law of the sets alone is sought."""
    (count, v), sets = p.shape, list(combinations(range(p.shape[1]), k))
    rows, limits = [], []
    for w, inside in product(range(count), product([0, 1], repeat=v)):
        row = np.zeros(len(sets) + count)
        row[: len(sets)] = [all(inside[x] for x in tokens) for tokens in sets]
        row[len(sets) + w] = 1.0
        rows.append(row)
        limits.append(1.0 + p[w] @ inside)
    found = linprog(
        np.concatenate([np.zeros(len(sets)), -c]),
        A_ub=rows,
        b_ub=limits,
        A_eq=np.concatenate([np.ones(len(sets)), np.zeros(count)])[None],
        b_eq=[1.0],
    )
    assert found.status == 0
    return -found.fun


@pytest.mark.parametrize("num_drafts", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_by_flows_is_the_bound_by_subsets(seed, num_drafts):
    p, c = case(seed)
    assert blind_bound(p, c, num_drafts) == pytest.approx(
        by_cuts_of_sets(p, c, num_drafts), abs=1e-7
    )


@pytest.mark.parametrize("num_drafts", [1, 2, 3, 9])
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_by_inclusion(seed, num_drafts):
    """Its own programme, and never below that over sets, which is the same for one draft."""
    p, c = case(seed)
    found = blind_bound(p, c, num_drafts, inclusion=True)
    assert found == pytest.approx(lowest_bound(p, c, min(num_drafts, 5)), abs=1e-9)
    exact = blind_bound(p, c, num_drafts)
    assert exact - 1e-7 <= found <= 1 + 1e-12
    if num_drafts == 1:
        assert found == pytest.approx(exact, abs=1e-7)


def test_the_bound_by_inclusion_is_not_the_exact_one():
    """A target for each pair of four tokens, on these alone: two drafts are beside one of six."""
    p = np.array([[0.5 * (x in pair) for x in range(4)] for pair in combinations(range(4), 2)])
    assert blind_bound(p, num_drafts=2, inclusion=True) == pytest.approx(1.0)
    assert blind_bound(p, num_drafts=2) == pytest.approx(5 / 6)


@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_drafts_by_one_uniform(num_drafts):
    """Of the benchmark: sets of K tokens, each as often as the bound by inclusion has it."""
    p = np.random.default_rng(1).dirichlet(np.full(40, 0.1), 12)
    c = np.full(12, 1 / 12)
    law = by_one_uniform(p, c, num_drafts)
    sets, chances = zip(*law.items(), strict=True)
    assert {len(tokens) for tokens in sets} == {num_drafts}
    assert sum(chances) == pytest.approx(1.0)
    often = [sum(x for s, x in zip(sets, chances, strict=True) if n in s) for n in range(40)]
    assert often == pytest.approx(worth_most(p, c, num_drafts), abs=1e-9)
    best = blind_bound(p, c, num_drafts, inclusion=True)
    assert 0.85 * best < accepted(p, c, law) <= best + 1e-9


def test_one_target_is_drafted_as_it_is():
    p = np.array([[0.5, 0.5, 0.0]])
    assert shared_law(p).law.tolist() == p[0].tolist()
    assert blind_bound(p, num_drafts=2) == pytest.approx(1.0)
    assert shared_law([[1.0]], num_drafts=2).acceptance_rate == pytest.approx(1.0)


def test_what_is_no_family_of_targets(monkeypatch):
    p = [[0.5, 0.5], [0.2, 0.8]]
    with pytest.raises(InvalidInput, match="one row a target"):
        shared_law(p[0])
    with pytest.raises(InvalidInput, match="3 weights for 2 targets"):
        blind_bound(p, [0.2, 0.3, 0.5])
    with pytest.raises(InvalidInput, match="an integer of at least 1"):
        shared_law(p, num_drafts=0)
    with pytest.raises(InvalidDistribution, match="target 1"):
        shared_law([[0.5, 0.5], [0.2, 2.0]])
    with pytest.raises(ProblemTooLarge, match="fewer tokens"):
        blind_bound(np.full((4, 60), 1 / 60), num_drafts=4)
    with pytest.raises(InvalidInput, match="tolerance"):
        shared_law(p, num_drafts=2, tolerance=-1.0)
    monkeypatch.setattr("shared_laws._MAX_ROUNDS", 1)
    with pytest.raises(SolverError, match="larger tolerance"):
        shared_law(case(0)[0], num_drafts=2)
