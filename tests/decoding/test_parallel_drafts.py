"""Trees for drafters with one law a position; what certain trees can bring at most."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import pytest
from parallel_trees import best_first, by_position
from support.tables import Table, output_law, target_law

from mdsd_opt.decoding import Topology, get_rule, grow, tree_bound, whole_paths
from mdsd_opt.errors import InvalidInput

BY_THE_TARGET = "naive_target"


def laws_of(seed, vocab_size, depth):
    return np.random.default_rng(seed).dirichlet(np.full(vocab_size, 0.6), depth)


def likeliest(laws, num_nodes):
    """The texts of the largest products, by enumeration."""
    vocab_size = laws.shape[1]
    texts = [w for n in range(1, len(laws) + 1) for w in product(range(vocab_size), repeat=n)]
    return sorted(texts, key=lambda w: -prod(laws[i, x] for i, x in enumerate(w)))[:num_nodes]


def texts_of(laws, topology):
    grown = grow(by_position(laws), topology, "top_k", np.random.default_rng(0))
    return [node.tokens for node in grown.walk()[1:]]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_nodes", [1, 5, 16, 100])
def test_the_tree_holds_the_likeliest_texts(seed, num_nodes):
    laws = laws_of(seed, 3, 3)
    topology = best_first(laws, num_nodes)
    assert sorted(texts_of(laws, topology)) == sorted(likeliest(laws, num_nodes))
    assert topology.num_nodes == min(num_nodes, 3 + 9 + 27)


def test_ties_and_tokens_that_are_never_drafted():
    even = np.full((2, 2), 0.5)
    assert best_first(even, 3).num_drafts == {(): 2, (0,): 1}
    certain = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    topology = best_first(certain, 10)
    assert texts_of(certain, topology) == [(1,), (1, 0), (1, 0, 0), (1, 0, 1)]
    assert best_first(np.ones((3, 1)), 10).num_nodes == 3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", ["traversal_hull", "level_sequential"])
def test_what_is_accepted_of_a_certain_tree_in_fractions(seed, rule):
    """The sum of p over its texts, exactly, and the law of the output is the target's."""
    target = Table(np.random.default_rng(seed), 3, 2).in_fractions()
    laws = laws_of(seed, 3, 2)
    topology = best_first(laws, 5)
    exact = [[Fraction(x).limit_denominator(10**6) for x in law.tolist()] for law in laws]
    exact = [np.array([x / sum(law) for x in law], dtype=object) for law in exact]
    law, accepted = output_law(
        get_rule(rule), target, lambda text: exact[len(text)], topology, "top_k"
    )
    assert accepted == sum(map(target.probability, texts_of(laws, topology)))
    assert (law == target_law(target, topology.depth + 1)).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_nodes", [4, 9])
def test_no_rule_accepts_more_of_a_certain_tree_than_the_targets_own_draws(seed, num_nodes):
    target, laws = Table(np.random.default_rng(seed), 3, 3), laws_of(seed, 3, 3)
    topology = best_first(laws, num_nodes)

    def draft(text):
        return laws[len(text)]

    mass = sum(map(target.probability, texts_of(laws, topology)))
    found = tree_bound(target, draft, topology, "top_k")
    assert found.upper == pytest.approx(mass, abs=1e-9)
    assert found.lower == pytest.approx(mass, abs=1e-9)
    law, accepted = output_law(get_rule(BY_THE_TARGET), target, draft, topology, "top_k")
    assert accepted == pytest.approx(mass, abs=1e-12)
    np.testing.assert_allclose(law, target_law(target, topology.depth + 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_trees_of_few_drafts_that_are_drawn_accept_more_where_p_is_flat(seed):
    """Draft = target, eight tokens of much the same chance, 4 drafts."""
    law = np.random.default_rng(seed).dirichlet(np.full(8, 50.0))
    certain = best_first(law[None], 4)
    drawn = Topology({(): 4}, "4")
    laws = lambda text: law  # noqa: E731
    sampled = tree_bound(laws, laws, drawn, "without_replacement").lower
    assert sampled == pytest.approx(1.0, abs=1e-9)
    assert tree_bound(laws, laws, certain, "top_k").upper < 0.7


def test_a_cost_ends_the_tree():
    laws = laws_of(0, 4, 4)
    whole = [sum(prod(laws[i, x] for i, x in enumerate(w)) for w in likeliest(laws, n))
             for n in range(1, 41)]  # fmt: skip

    def seconds(n):
        return 1.0 + 0.01 * n + 0.0005 * n * n  # convex: the speed rises, then falls

    speeds = [(1 + mass) / seconds(n) for n, mass in enumerate(whole, start=1)]
    best = best_first(laws, 40, seconds).num_nodes
    assert best == 1 + int(np.argmax(speeds))
    assert 1 < best < 40
    first_fall = next(n for n in range(1, 40) if speeds[n] < speeds[n - 1])
    assert best == first_fall
    assert best_first(laws, 40, {1: 1.0, 40: 1.0}).num_nodes == 40


def test_sampled_trees_have_one_law_a_position():
    laws = laws_of(1, 3, 2)
    rng = np.random.default_rng(0)
    root = grow(by_position(laws), whole_paths(2, 2), "with_replacement", rng)
    for node in root.walk():
        if node.drafts is not None:
            np.testing.assert_allclose(node.drafts.q, laws[node.depth], rtol=1e-14)


def test_what_is_refused():
    for laws, count in ((np.ones((1, 2)) / 2, 0), (np.ones(3) / 3, 2), (np.ones((0, 3)), 2)):
        with pytest.raises(InvalidInput, match=r"integer of at least 1|probabilities of shape"):
            best_first(laws, count)
    with pytest.raises(InvalidInput, match="seconds above 0"):
        best_first(np.ones((1, 2)) / 2, 2, lambda n: 0.0)
