"""How much more a larger tree brings: what is proven of it, and the bounds of the benchmark."""

from __future__ import annotations

from itertools import product
from math import log

import numpy as np
import pytest
import tree_growth
from support.tables import Table
from tree_growth import certain, code_bound, drawn_at_least, drawn_at_most, entropy, moment_bound

from mdsd_opt.decoding import Topology, chain, k_ary, tree_bound, whole_paths

PAIRS = [((0.6, 0.4), (0.4, 0.6)), ((0.9, 0.1), (0.5, 0.5)), ((0.5, 0.3, 0.2), (0.2, 0.3, 0.5))]


def constant(law):
    return lambda text: np.array(law)


def grown(rng, size, choose):
    """A certain tree by drafts added one by one; texts of three tokens."""
    inside, edge = [()], [(x,) for x in range(3)]
    while len(inside) <= size:
        text = edge.pop(choose(edge))
        inside.append(text)
        edge += [(*text, x) for x in range(3)] if len(text) < 4 else []
    return inside


@pytest.mark.parametrize("seed", range(6))
def test_what_any_certain_tree_accepts_is_below_both_bounds(seed):
    """The likeliest texts, and texts at random, of tables whose laws differ after every text."""
    rng = np.random.default_rng(seed)
    target = Table(rng, 3, 4, [0.2, 1.0, 5.0][seed % 3])
    likeliest = lambda edge: int(np.argmax([target.probability(w) for w in edge]))  # noqa: E731
    for size in (1, 2, 5, 20):
        for choose in (likeliest, lambda edge: int(rng.integers(len(edge)))):
            texts = grown(rng, size, choose)
            weights = np.array([target.probability(text) for text in texts])
            tokens = weights.sum()  # of a step, with the extra one
            mu, mu_2 = weights @ [entropy(np.maximum(target(w), 1e-300)) for w in texts] / tokens
            assert tokens <= 1 + code_bound(mu, size, 3) + 1e-9
            assert tokens <= 1 + moment_bound(mu, mu_2, size) + 1e-9


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_certain_trees_without_memory_by_enumeration(p, q):
    texts = [w for n in range(1, 10 if len(p) == 2 else 7) for w in product(*[range(len(p))] * n)]
    mass = {w: np.prod([p[x] for x in w]) for w in texts}
    guide = {w: np.prod([q[x] for x in w]) for w in texts}
    for size in (1, 3, 7, 8):
        best = sum(sorted(mass.values())[-size:])
        assert certain(p, size) == pytest.approx(best, abs=1e-12)
        assert best <= code_bound(entropy(p)[0], size, len(p))
        if len({*q}) == len(q) and size in (1, 3):  # else some choices are ties
            theirs = sum(mass[w] for w in sorted(texts, key=guide.__getitem__)[-size:])
            assert certain(p, size, q) == pytest.approx(theirs, abs=1e-12)


def test_the_bound_of_the_abstract_needs_its_constant():
    """With one draft log P is 0, and the likeliest token is accepted nevertheless."""
    mu, mu_2 = entropy((0.6, 0.4))
    assert (mu + mu_2) * log(1) / mu**2 < certain((0.6, 0.4), 1) == 0.6


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_the_bounds_of_drawn_trees_hold_the_certified_optimum(p, q):
    comb = Topology({(): 2, (0,): 2, (0, 0): 1}, "comb")
    for tree in (chain(3), k_ary(2, 2), comb, whole_paths(3, 2)):
        found = tree_bound(constant(p), constant(q), tree)
        assert found.lower <= drawn_at_most(p, q, tree.num_nodes) + 1e-9
        if tree.merges:
            one = drawn_at_least(p, q, tree.num_nodes, most=2)
            assert one <= max(found.upper, drawn_at_least(p, q, tree.num_nodes, most=1)) + 1e-9


def test_of_the_target_itself_a_chain_is_accepted_whole():
    p = (0.5, 0.3, 0.2)
    assert drawn_at_least(p, p, 9) == pytest.approx(9.0) == drawn_at_most(p, p, 9)
    found = tree_bound(constant(p), constant(p), chain(4))
    assert found.lower == pytest.approx(4.0, abs=1e-9)
    assert certain(p, 4) < 1.3


def test_the_divergence_decides_which_trees_grow_faster():
    near, far = PAIRS[0], PAIRS[1]  # KL is .12 and 1.13 of the entropy
    assert drawn_at_least(*near, 256, most=30) > 1.5 * code_bound(entropy(near[0])[0], 256, 2)
    for size in (4, 256, 65_536):
        assert drawn_at_most(*far, size) < certain(far[0], size)


def test_all_trees_of_some_drafts_are_listed_once():
    """Rooted trees of 3 to 6 nodes; none wider or deeper than it may be."""
    for size, count in ((2, 2), (3, 4), (4, 9), (5, 20)):
        assert len({*tree_growth.shapes(size, 9, 9)}) == count
    for shape in tree_growth.shapes(4, 2, 3):
        tree = tree_growth.topology(shape)
        assert tree.num_nodes == 4
        assert tree.depth <= 2
        assert max(tree.num_drafts.values()) <= 3


def test_small_models():
    trees = [tree_growth.topology(shape) for shape in tree_growth.shapes(2, 2, 3)]
    rows = np.array(tree_growth.one(0, 3, 2, trees, 2))
    far, _, likeliest, guided, drawn = rows.T
    assert far[0] == 0 < far[1] < far[-1]
    assert drawn[0] == pytest.approx(2.0, abs=1e-4)
    assert (guided <= likeliest + 1e-12).all()
    assert guided[0] == likeliest[0]
    assert (np.diff(drawn) < 1e-4).all()
    assert tree_growth.crossing(
        np.array([0.0, 0.4, 0.8]), np.array([1.0, 0.5, -0.5])
    ) == pytest.approx(0.6)
