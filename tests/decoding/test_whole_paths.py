"""Several whole paths of drafts: their law, rules for them, and what no rule exceeds."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from support.tables import Table, output_law, target_law, trees
from support.tree_programme import whole_programme

import mdsd_opt as mo
from mdsd_opt.decoding import (
    Node,
    Topology,
    chain,
    get_rule,
    grow,
    k_ary,
    parse_topology,
    tree_bound,
    tree_optimum,
    whole_paths,
)
from mdsd_opt.errors import InvalidInput, UnsupportedScheme
from mdsd_opt.problem import Status
from mdsd_opt.trees import hang, valued
from mdsd_opt.trees.optimum import RandomTrees, TextTree

ANY_TREE = ("traversal", "traversal_hull", "level_sequential")
UNEVEN = Topology({(): 2, (0,): 2, (1,): 1, (1, 0): 1}, "merged, uneven", merges=True)


def tables(seed, vocab_size, depth, near=True):
    rng = np.random.default_rng(seed)
    draft = Table(rng, vocab_size, depth, 0.7)
    return Table(rng, vocab_size, depth, 0.7, near=draft if near else None), draft


def texts_of(root):
    return frozenset(node.tokens for node in root.walk())


def paths_law(draft, vocab_size, num_paths, depth):
    """Law of the texts in the union of independent paths."""
    law = Counter()
    every = list(product(range(vocab_size), repeat=depth))
    for paths in product(every, repeat=num_paths):
        held = frozenset(path[:n] for path in paths for n in range(depth + 1))
        law[held] += np.prod([draft.probability(path) for path in paths])
    return law


@pytest.mark.parametrize(("vocab_size", "num_paths", "depth"), [(3, 2, 2), (2, 3, 2), (2, 2, 3)])
def test_the_trees_are_unions_of_independent_paths(vocab_size, num_paths, depth):
    _, draft = tables(0, vocab_size, depth)
    law = Counter()
    for root, probability in trees(draft, whole_paths(num_paths, depth), "with_replacement"):
        law[texts_of(root)] += probability
    expected = paths_law(draft, vocab_size, num_paths, depth)
    assert set(law) == set(expected)
    for held, probability in expected.items():
        assert law[held] == pytest.approx(probability, abs=1e-14)


def test_trees_are_grown_by_that_law():
    """Of 4,000 trees no set of texts is further than five standard deviations off."""
    _, draft = tables(1, 2, 3)
    rng, count = np.random.default_rng(0), 4_000
    laws = lambda texts: np.stack([draft(text) for text in texts])  # noqa: E731
    grown = Counter(
        texts_of(grow(laws, whole_paths(2, 3), "with_replacement", rng)) for _ in range(count)
    )
    for held, probability in paths_law(draft, 2, 2, 3).items():
        deviation = np.sqrt(count * probability * (1 - probability))
        assert abs(grown[held] - count * probability) <= 5 * deviation


def test_as_many_drafts_as_paths_follow_a_node():
    one, rng = np.array([[0.0, 1.0]]), np.random.default_rng(0)  # all paths are one
    root = grow(lambda texts: one[[0] * len(texts)], whole_paths(3, 4), "with_replacement", rng)
    assert [node.draws.size for node in root.walk()] == [3, 3, 3, 3, 0]
    assert root.children[1].merged == ((1,), (2,))


@pytest.mark.parametrize(
    ("rule", "topology"),
    [
        *product(ANY_TREE, [whole_paths(2, 2), whole_paths(3, 2), UNEVEN]),
        *(("greedy_multi_path", whole_paths(*shape)) for shape in [(1, 2), (2, 2), (3, 2), (2, 3)]),
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_rules_are_lossless_in_fractions(rule, topology):
    """Zeros and equal laws among them."""
    target, draft = (table.in_fractions() for table in tables(2, 2, topology.depth, near=False))
    draft.laws[(1,)] = target.laws[(1,)]
    draft.laws[(0,)] = np.array([Fraction(1), Fraction(0)], dtype=object)
    law, _ = output_law(get_rule(rule), target, draft, topology, "with_replacement")
    assert (law == target_law(target, topology.depth + 1)).all()


@pytest.mark.parametrize("name", ["optimal", "rrs", "kseq", "naive_target"])
def test_token_level_verifiers_are_lossless(name):
    target, draft = tables(3, 3, 2)
    law, accepted = output_law(get_rule(name), target, draft, whole_paths(2, 2), "with_replacement")
    np.testing.assert_allclose(law, target_law(target, 3), rtol=0, atol=1e-12)
    assert accepted <= tree_optimum(target, draft, whole_paths(2, 2)) + 1e-9


@pytest.mark.parametrize(
    ("vocab_size", "num_paths", "depth"), [(2, 2, 2), (3, 2, 2), (3, 3, 2), (2, 2, 3), (1, 2, 2)]
)
def test_bounds_against_the_whole_programme(vocab_size, num_paths, depth):
    target, draft = tables(4, vocab_size, depth)
    topology = whole_paths(num_paths, depth)
    best = whole_programme(
        target, draft, topology,
        missed_by=lambda texts: (1 - sum(map(draft.probability, texts))) ** num_paths,
    )  # fmt: skip
    found = tree_bound(target, draft, topology)
    assert found.status is Status.OPTIMAL
    assert found.lower == pytest.approx(best, abs=1e-8)
    assert found.upper == pytest.approx(best, abs=1e-8)


@pytest.mark.parametrize("topology", [whole_paths(2, 3), whole_paths(3, 3), UNEVEN])
def test_the_first_text_of_an_order_that_a_tree_holds(topology):
    target, draft = tables(5, 2, 3)
    texts = TextTree(target, 3)
    number = {(): 0}
    for n in range(1, 4):
        number |= {w: len(number) + i for i, w in enumerate(product(range(2), repeat=n))}
    order = 1 + np.random.default_rng(0).permutation(texts.size - 1)
    rank = np.argsort(np.append(order, 0))  # the root comes last
    chances = np.zeros(texts.size)
    for root, probability in trees(draft, topology, "with_replacement"):
        inside = [number[node.tokens] for node in root.walk()]
        chances[min(inside, key=lambda text: rank[text])] += probability
    found = RandomTrees(texts, draft, topology, mo.WithReplacement)
    np.testing.assert_allclose(found.first_met(order), chances, atol=1e-12)
    np.testing.assert_allclose(found.first_met(order), chances, atol=1e-12)  # nothing is kept


def test_equal_parts_of_a_tree_are_weighed_once():
    target, draft = tables(5, 2, 3)
    texts = TextTree(target, 3)
    for topology in (whole_paths(500, 3), k_ary(2, 3)):
        found = RandomTrees(texts, draft, topology, mo.WithReplacement)
        assert found._num_misses == 1 + 2 + 4 + 8


def test_one_path_is_a_chain_and_one_level_a_token():
    target, draft = tables(6, 3, 3)
    assert tree_optimum(target, draft, whole_paths(1, 3)) == pytest.approx(
        tree_optimum(target, draft, chain(3)), abs=1e-9
    )
    assert tree_optimum(target, draft, whole_paths(3, 1)) == pytest.approx(
        tree_optimum(target, draft, k_ary(3, 1)), abs=1e-9
    )


def test_with_a_draft_equal_to_the_target_a_whole_path_is_accepted():
    target, _ = tables(7, 3, 2)
    topology = whole_paths(2, 2)
    assert tree_optimum(target, target, topology) == pytest.approx(2.0, abs=1e-8)
    for name in ANY_TREE:
        _, accepted = output_law(get_rule(name), target, target, topology, "with_replacement")
        assert accepted == pytest.approx(2.0, abs=1e-12)


def test_names_and_what_is_refused():
    assert parse_topology("paths3x4") == whole_paths(3, 4)
    assert whole_paths(3, 4).cut(2).num_drafts == whole_paths(3, 2).num_drafts
    for arguments in ((0, 1), (1, 0), (1, 2000), (10**5, 2)):
        with pytest.raises(InvalidInput, match=r"paths|depth"):
            whole_paths(*arguments)
    promised = np.array([None, None], dtype=object)  # tokens that a device has not told yet
    with pytest.raises(InvalidInput, match="leave on_device out"):
        hang(Node((), ()), mo.WithReplacement([0.5, 0.5], 2), promised, valued(whole_paths(2, 1)))
    target, draft = tables(8, 3, 2)
    with pytest.raises(UnsupportedScheme, match="with_replacement"):
        tree_bound(target, draft, whole_paths(2, 2), "without_replacement")


@pytest.mark.parametrize(("vocab_size", "num_paths"), [(1, 2), (3, 1), (3, 2), (4, 3)])
def test_the_foremost_path_of_one_level_is_the_foremost_draft(vocab_size, num_paths):
    """In closed form: the last of K drafts in the order of p/q has the law F_i^K - F_(i-1)^K."""
    target, draft = tables(9, vocab_size, 1)
    p, q = target(()), draft(())
    order = np.argsort(p / q)
    foremost = np.diff(np.concatenate([[0.0], np.cumsum(q[order])]) ** num_paths)
    law, accepted = output_law(
        get_rule("gbv"), target, draft, whole_paths(num_paths, 1), "with_replacement"
    )
    assert accepted == pytest.approx(np.minimum(p[order], foremost).sum(), abs=1e-12)
    np.testing.assert_allclose(law, target_law(target, 2), rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_foremost_path_between_one_path_and_the_optimum(seed):
    target, draft = tables(seed, 3, 2, near=False)
    rule, one = get_rule("greedy_multi_path"), whole_paths(1, 2)
    _, alone = output_law(get_rule("block_verification"), target, draft, one, "with_replacement")
    _, accepted = output_law(rule, target, draft, one, "with_replacement")
    assert accepted == pytest.approx(alone, abs=1e-12)
    for num_paths in (2, 3):
        topology = whole_paths(num_paths, 2)
        _, accepted = output_law(rule, target, draft, topology, "with_replacement")
        assert accepted <= tree_optimum(target, draft, topology) + 1e-9


def test_more_paths_may_bring_less_by_the_foremost_one():
    """Draft = target: the foremost of several paths does not follow it."""
    law = np.full(2, 0.5)
    accepted = [
        foremost_of_one_node(law, law, draws) for draws in ([0], [0, 0], [0, 1], [1, 0], [1, 1])
    ]
    assert accepted[0] == 1.0
    assert np.mean(accepted[1:]) == pytest.approx(0.75, abs=1e-15)


def foremost_of_one_node(p, q, draws):
    root = Node((), ())
    root.add_drafts(mo.WithReplacement(q, len(draws)), np.array(draws))
    for node in root.walk():
        node.target = p
    return get_rule("greedy_multi_path").expected_accepted(root)


def test_a_path_far_behind_is_still_weighed():
    """Powers of its place are too small for floats: probabilities stay what they are."""
    p, q = np.array([1e-200, 1.0]), np.array([1e-150, 1.0])
    assert 0.0 <= foremost_of_one_node(p, q, [0, 0, 0, 0]) <= 1.0
    assert foremost_of_one_node(p, q, [0, 1, 0, 0]) == 1.0


def test_trees_that_are_no_paths_are_refused():
    target, draft = tables(10, 2, 3)
    rule = get_rule("greedy_multi_path")
    for topology in (k_ary(2, 2), UNEVEN, Topology({(): 2, (0,): 1}, "one goes on", merges=True)):
        with pytest.raises(InvalidInput, match="paths3x4"):
            output_law(rule, target, draft, topology, "with_replacement")
    with pytest.raises(UnsupportedScheme, match="with_replacement"):
        output_law(rule, target, draft, whole_paths(2, 2), "without_replacement")
