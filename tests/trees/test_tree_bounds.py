"""What no lossless rule exceeds: on small trees, and at one node with drafts of two values."""

from __future__ import annotations

from functools import partial
from itertools import count, product
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import linprog
from support.tables import output_law, pair, trees
from support.tree_programme import whole_programme

import mdsd_opt as mo
from mdsd_opt.decoding import (
    Topology,
    get_rule,
    k_ary,
    tree_bound,
    tree_optimum,
    value_bound,
)
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, SolverError
from mdsd_opt.problem import Status
from mdsd_opt.trees import optimum
from mdsd_opt.trees.optimum import FromAbove, FromBelow, RandomTrees, TextTree

FIRST_GOES_ON = Topology({(): 2, (0,): 1}, "first goes on")
UNEVEN = Topology({(): 3, (0,): 2, (1,): 1}, "3 | 2-1-0")
DEEP = Topology({(): 2, (0,): 2, (0, 0): 1, (1,): 1}, "three levels, uneven")
LAST_GOES_ON = Topology({(): 2, (1,): 2}, "second goes on")

tables = partial(pair, concentration=0.6, near=True)


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement", "top_k"])
@pytest.mark.parametrize(
    ("vocab_size", "topology"),
    [
        (2, k_ary(2, 2)), (2, k_ary(2, 3)), (2, DEEP), (3, k_ary(2, 2)), (3, UNEVEN),
        (3, FIRST_GOES_ON), (3, LAST_GOES_ON), (3, k_ary(3, 1)), (3, k_ary(1, 2)), (1, k_ary(2, 3)),
    ],
    ids=lambda x: getattr(x, "name", x),
)  # fmt: skip
def test_the_bounds_meet_at_the_whole_programme(vocab_size, topology, scheme):
    for seed in range(2 if vocab_size < 3 else 1):
        target, draft = tables(seed, vocab_size, topology.depth)
        best = whole_programme(target, draft, topology, scheme)
        found = tree_bound(target, draft, topology, scheme)
        assert found.status is Status.OPTIMAL
        assert found.lower == pytest.approx(best, abs=1e-8)
        assert found.upper == pytest.approx(best, abs=1e-8)
        for lower, upper in found.stages:
            assert lower - 1e-8 <= best <= upper + 1e-8


@pytest.mark.parametrize("topology", [FIRST_GOES_ON, LAST_GOES_ON], ids=lambda x: x.name)
def test_above_three_tokens_rules_stay_below(topology):
    target, draft = tables(1, 4, 2)
    found = tree_bound(target, draft, topology)
    assert found.status is Status.OPTIMAL
    for name in ("traversal", "level_sequential", "optimal"):
        _, accepted = output_law(get_rule(name), target, draft, topology, "with_replacement")
        assert accepted <= found.upper + 1e-9
    assert accepted >= 0.8 * found.upper


def test_with_a_draft_equal_to_the_target_all_is_accepted():
    target, _ = tables(0, 5, 2)
    assert tree_optimum(target, target, UNEVEN) == pytest.approx(2.0, abs=1e-8)


@pytest.fixture
def minutes(monkeypatch):
    """A clock that goes on by a minute whenever it is looked at."""
    looks = count()
    monkeypatch.setattr(optimum, "time", SimpleNamespace(perf_counter=lambda: 60.0 * next(looks)))


@pytest.mark.usefixtures("minutes")
def test_at_a_limit_both_bounds_hold():
    target, draft = tables(0, 16, 2)
    none = tree_bound(target, draft, k_ary(2, 2), time_limit=0)
    assert (none.status, none.lower, none.upper) == (Status.LIMIT, 0.0, 2.0)
    early = tree_bound(target, draft, k_ary(2, 2), time_limit=1500.0)
    assert early.status is Status.LIMIT
    assert 0.0 < early.lower < early.upper < 2.0
    lowers, uppers = np.array(early.stages).T
    assert (np.diff(lowers) >= 0).all()
    assert (np.diff(uppers) <= 0).all()


@pytest.mark.usefixtures("minutes")
def test_stages_are_a_limit_without_a_clock():
    target, draft = tables(0, 16, 2)
    first = tree_bound(target, draft, k_ary(2, 2), time_limit=None, max_stages=2)
    again = tree_bound(target, draft, k_ary(2, 2), time_limit=np.inf, max_stages=3)
    assert first.status is Status.LIMIT
    assert (len(first.stages), again.stages[:2]) == (2, first.stages)
    with pytest.raises(InvalidInput, match="max_stages is -1: give a number of at least 0"):
        tree_bound(target, draft, k_ary(2, 2), max_stages=-1)


def test_where_interior_points_find_nothing_the_simplex_method_does(monkeypatch):
    target, draft = tables(2, 3, 2)
    best = whole_programme(target, draft, k_ary(2, 2))
    methods = []

    def without_interior_points(*arguments, method, **options):
        methods.append(method)
        found = linprog(*arguments, method=method, **options)
        found.status = 4 if method == "highs-ipm" else found.status
        return found

    monkeypatch.setattr("scipy.optimize.linprog", without_interior_points)
    assert tree_optimum(target, draft, k_ary(2, 2)) == pytest.approx(best, abs=1e-8)
    assert methods[:2] == ["highs-ipm", "highs-ds"]


@pytest.mark.usefixtures("minutes")
def test_the_bounds_do_not_trust_the_solver(monkeypatch):
    """Prices that are noise give poor bounds, but no wrong ones."""
    target, draft = tables(2, 3, 2)
    best = whole_programme(target, draft, k_ary(2, 2))
    solve, rng = FromAbove.solve, np.random.default_rng(0)
    monkeypatch.setattr(FromAbove, "solve", lambda self: solve(self) * rng.random(13) * 3)
    found = tree_bound(target, draft, k_ary(2, 2), time_limit=1500.0)
    assert found.lower - 1e-9 <= best <= found.upper + 1e-9
    monkeypatch.setattr(FromAbove, "solve", lambda self: None)
    alone = tree_bound(target, draft, k_ary(2, 2), time_limit=1500.0)
    assert 0.0 < alone.lower <= best + 1e-9
    assert best - 1e-9 <= alone.upper < 2.0
    monkeypatch.setattr(FromBelow, "solve", lambda self: None)
    stuck = tree_bound(target, draft, k_ary(2, 2))
    assert stuck.status is Status.LIMIT
    assert stuck.lower - 1e-9 <= best <= stuck.upper + 1e-9
    with pytest.raises(SolverError, match="lies between"):
        tree_optimum(target, draft, k_ary(2, 2))


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement", "greedy"])
def test_the_first_text_of_an_order_that_a_tree_holds(scheme):
    """Against all trees, drawn one by one."""
    target, draft = tables(3, 3, 3)
    texts = TextTree(target, 3)
    number = {(): 0}
    for n in range(1, 4):
        number |= {w: len(number) + i for i, w in enumerate(product(range(3), repeat=n))}
    found = RandomTrees(texts, draft, DEEP, mo.drafts.SINGLE_MODEL_SCHEMES[scheme])
    order = 1 + np.random.default_rng(0).permutation(texts.size - 1)
    rank = np.argsort(np.append(order, 0))  # the root comes last
    chances = np.zeros(texts.size)
    for root, probability in trees(draft, DEEP, scheme):
        inside = [number[node.tokens] for node in root.walk()]
        chances[min(inside, key=lambda text: rank[text])] += probability
    np.testing.assert_allclose(found.first_met(order), chances, atol=1e-12)


def test_what_is_too_large_is_refused():
    def law(vocab_size):
        return lambda w: np.full(vocab_size, 1 / vocab_size)

    with pytest.raises(ProblemTooLarge, match="texts"):
        tree_bound(law(17), law(17), k_ary(1, 3))
    with pytest.raises(ProblemTooLarge, match="texts"):
        tree_bound(law(2), law(2), k_ary(1, 900))
    with pytest.raises(ProblemTooLarge, match="draft tuples"):
        tree_bound(law(16), law(16), k_ary(4, 1))


def valued_optimum(p, q, values):
    """Largest mean value of the draft that is passed: the programme over tuples of drafts."""
    vocab_size, count = p.size, len(values)
    tuples = list(product(range(vocab_size), repeat=count))
    gains, laws, wholes = [], np.zeros((vocab_size, len(tuples) * count)), []
    for n, draws in enumerate(tuples):
        weight = np.prod(q[list(draws)])
        for k in range(count):
            gains.append(-values[k] * weight)
            laws[draws[k], n * count + k] = weight
        wholes.append(np.repeat(np.arange(len(tuples)) == n, count))
    found = linprog(
        gains, A_ub=np.vstack([laws, wholes]), b_ub=np.append(p, np.ones(len(tuples))),
        method="highs",
    )  # fmt: skip
    assert found.status == 0
    return -found.fun


def priced(p, q, values, prices):
    """The dual bound of any prices, by enumeration of the drafts."""
    total = float(p @ prices)
    for draws in product(range(q.size), repeat=len(values)):
        best = max(v - prices[x] for v, x in zip(values, draws, strict=True))
        total += float(np.prod(q[list(draws)])) * max(best, 0.0)
    return total


@pytest.mark.parametrize("seed", range(40))
def test_two_values_against_the_programme_over_tuples(seed):
    rng = np.random.default_rng(seed)
    vocab_size, count = rng.integers(2, 6), rng.integers(1, 4)
    q = rng.dirichlet(np.full(vocab_size, 0.7))
    p = q * np.exp(rng.standard_normal(vocab_size))
    p *= rng.choice([1.0, 0.6]) / p.sum()
    if seed % 5 == 0:  # zeros and ties
        q[0] = 0.0
        q /= q.sum()
        p[1] = 0.0
    high, low = np.sort(rng.uniform(0.2, 4, 2))[::-1]
    low = [low, 0.0, high, high / 2, 0.9 * high][seed % 5]
    values = [high] * rng.integers(1, count + 1)
    values += [low] * (count - len(values))
    found = value_bound(p, q, values)
    assert found.optimum == pytest.approx(valued_optimum(p, q, values), abs=1e-7)
    assert found.optimum == pytest.approx(priced(p, q, values, found.prices), abs=1e-12)


def test_drafts_of_the_same_value_are_the_token_optimum():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(3000), 2)
    best = mo.solve(mo.TransportProblem(p, mo.WithReplacement(q, 4))).acceptance_rate
    assert value_bound(p, q, [2.5] * 4).optimum == pytest.approx(2.5 * best, abs=1e-12)
    assert value_bound(p, q, [0.0, 0.0]).optimum == 0.0
    some = value_bound(p, q, [2.5, 2.5, 1.0, 1.0]).optimum
    assert value_bound(p, q, [1.0] * 4).optimum < some < 2.5 * best


@pytest.mark.parametrize(
    ("values", "error", "says"),
    [
        ([], InvalidInput, "0 different values"),
        ([3, 2, 1], InvalidInput, "3 different values"),
        ([1, -1], InvalidInput, "at least 0"),
        ([1, np.inf], InvalidInput, "at least 0"),
        ([1, 1 - 1e-9], ProblemTooLarge, "so near"),
    ],
)
def test_values_that_are_refused(values, error, says):
    with pytest.raises(error, match=says):
        value_bound(np.array([0.5, 0.5]), np.array([0.5, 0.5]), values)
