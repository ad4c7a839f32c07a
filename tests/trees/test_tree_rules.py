"""Rules that verify trees: exactly lossless, and as good as is claimed."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest
from support.tables import dynamic_trees, output_law, pair, target_law, trees

import mdsd_opt as mo
from mdsd_opt.decoding import (
    DynamicTree,
    Node,
    get_rule,
    k_ary,
    parse_topology,
    rule_names,
    tree_optimum,
)
from mdsd_opt.errors import InvalidInput, UnknownName, UnsupportedScheme
from mdsd_opt.trees import Stop, Topology, rules
from mdsd_opt.trees.rules import Traversal
from mdsd_opt.verifiers import Uniforms

MULTI_STEP = ("traversal", "traversal_hull", "level_sequential")
UNEVEN = Topology({(): 3, (0,): 2, (1,): 1, (0, 0): 1}, "uneven")
TWO_AT_FIRSTS = Topology({(): 2, (0,): 2, (1,): 2, (0, 0): 2, (1, 0): 2}, "2x3 below firsts")
LAST_GOES_ON = Topology({(): 2, (1,): 2}, "last goes on")

tables = partial(pair, concentration=0.7)


def check_lossless(rule, seed, vocab_size, topology, scheme):
    target, draft = tables(seed, vocab_size, topology.depth)
    law, accepted = output_law(rule, target, draft, topology, scheme)
    np.testing.assert_allclose(law, target_law(target, topology.depth + 1), rtol=0, atol=1e-12)
    return accepted


@pytest.mark.parametrize("name", MULTI_STEP)
@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
@pytest.mark.parametrize(
    ("vocab_size", "topology"),
    [
        (2, k_ary(2, 2)), (3, k_ary(2, 2)), (2, k_ary(3, 2)), (3, k_ary(3, 1)), (3, k_ary(1, 3)),
        (2, TWO_AT_FIRSTS), (3, UNEVEN), (1, k_ary(2, 2)),
    ],
    ids=lambda x: getattr(x, "name", x),
)  # fmt: skip
def test_multi_step_rules_are_lossless(name, scheme, vocab_size, topology):
    check_lossless(get_rule(name), 0, vocab_size, topology, scheme)


@pytest.mark.parametrize("rule", rules.MULTI_STEP.values(), ids=rules.MULTI_STEP)
@pytest.mark.parametrize("vocab_size", [1, 2, 3])
def test_every_rule_is_lossless_on_the_tree_that_it_is_tried_on(rule, vocab_size):
    """By the schemes that it takes, which are one at least."""
    topology, taken = parse_topology(rule.tried_on), 0
    for scheme in ("with_replacement", "without_replacement"):
        try:
            check_lossless(rule, 3, vocab_size, topology, scheme)
        except UnsupportedScheme:
            continue
        taken += 1
    assert taken


@pytest.mark.parametrize("name", [*MULTI_STEP, "lp", "kseq", "optimal"])
def test_stops_are_distributions(name):
    """Of the ways to end, and of the extra token at each: numpy draws from them as they are."""
    p, q, draws = np.array([2, 2, 1]) / 5, np.array([2, 4, 1]) / 7, np.array([1, 0])
    rng = np.random.default_rng(0)
    root = Node((), ())
    root.target = p
    for child in root.add_drafts(mo.WithReplacement(q, 2), draws):
        child.target = p
        for leaf in child.add_drafts(mo.WithReplacement(q, 2), draws):
            leaf.target = p
    stops = get_rule(name).stops(root)
    shares = np.array([stop.probability for stop in stops])
    for law in (shares, *(stop.law for stop in stops)):
        assert law.min() >= 0
        assert law.sum() == pytest.approx(1, abs=1e-12)
        rng.choice(law.size, p=law)


@cache
def grown(scheme, vocab_size, budget):
    """A tree, its tables, and all that can grow: for every rule the same, whose targets are set."""
    tree = DynamicTree(budget, num_drafts=2, max_depth=3)
    target, draft = tables(7, vocab_size, 3)
    return tree, target, draft, list(dynamic_trees(draft, tree, scheme))


@pytest.mark.parametrize("name", [*MULTI_STEP, "optimal"])
@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
@pytest.mark.parametrize(("vocab_size", "budget"), [(2, 10), (2, 6), (3, 6)])
def test_dynamic_trees_are_lossless(name, scheme, vocab_size, budget):
    """With ten drafts, nodes of different parents compete for the last level."""
    tree, target, draft, found = grown(scheme, vocab_size, budget)
    law, _ = output_law(get_rule(name), target, draft, tree, scheme, found)
    np.testing.assert_allclose(law, target_law(target, 4), rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
@pytest.mark.parametrize(("vocab_size", "depth"), [(3, 3), (3, 1), (2, 3), (1, 2)])
def test_block_verification_is_lossless(scheme, vocab_size, depth):
    accepted = check_lossless(
        get_rule("block_verification"), 0, vocab_size, k_ary(1, depth), scheme
    )
    target, draft = tables(0, vocab_size, depth)
    assert accepted == pytest.approx(block_verification(target, draft, depth), abs=1e-12)


def test_block_verification_refuses_what_is_no_single_path():
    target, draft = tables(0, 3, 2)
    rule = get_rule("block_verification")
    with pytest.raises(InvalidInput, match="single path"):
        output_law(rule, target, draft, k_ary(2, 2), "with_replacement")
    with pytest.raises(UnsupportedScheme, match="top_k"):
        output_law(rule, target, draft, k_ary(1, 2), "top_k")


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        (name, scheme)
        for scheme, drafts in mo.drafts.SINGLE_MODEL_SCHEMES.items()
        for name in mo.verifiers.names()
        if mo.verifiers.get(name).supports(drafts([0.5, 0.3, 0.2], 2))
    ],
)
def test_every_verifier_is_lossless_token_by_token(name, scheme):
    slow = name in ("lp", "importance_sampling")
    topology = LAST_GOES_ON if slow else k_ary(2, 2)
    check_lossless(get_rule(name), 2, 2 if name == "gumbel" else 3, topology, scheme)


class Greedy(Traversal):
    """Wrong on purpose: stops at the node with the extra token from p, not from what is left."""

    def stops(self, root):
        return [Stop(s.node, s.probability, s.node.target) for s in super().stops(root)]


def test_a_wrong_rule_is_not_lossless():
    target, draft = tables(0, 3, 2)
    law, _ = output_law(Greedy(), target, draft, k_ary(2, 2), "with_replacement")
    assert np.abs(law - target_law(target, 3)).max() > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_one_draft_a_node_is_block_verification(seed):
    target, draft = tables(seed, 3, 3)
    chain = k_ary(1, 3)
    found = [
        output_law(get_rule(name), target, draft, chain, "with_replacement")
        for name in (*MULTI_STEP, "block_verification")
    ]
    for law, accepted in found[1:]:
        np.testing.assert_allclose(law, found[0][0], rtol=0, atol=1e-12)
        assert accepted == pytest.approx(found[0][1], abs=1e-12)
    assert found[0][1] == pytest.approx(block_verification(target, draft, 3), abs=1e-12)


def block_verification(target, draft, depth):
    """Mean accepted drafts of one path: sum over texts of min along the way (Sun et al.)."""

    def mean(text, passed, drawn):
        """passed = mass of min(m p, q ...) that goes on to this text."""
        if len(text) == depth:
            return 0.0
        total = 0.0
        for token in range(target.vocab_size):
            going = min(passed * target(text)[token], drawn * draft(text)[token])
            total += going + mean((*text, token), going, drawn * draft(text)[token])
        return total

    return mean((), 1.0, 1.0)


@pytest.mark.parametrize("name", ["traversal_hull", "level_sequential"])
@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement", "greedy"])
def test_one_level_is_the_token_optimum(name, scheme):
    target, draft = tables(3, 3, 1)
    _, accepted = output_law(get_rule(name), target, draft, k_ary(2, 1), scheme)
    drafts = mo.drafts.SINGLE_MODEL_SCHEMES[scheme](draft(()), 2)
    best = mo.solve(mo.TransportProblem(target(()), drafts)).acceptance_rate
    assert accepted == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
@pytest.mark.parametrize("seed", range(3))
def test_no_rule_beats_the_tree_optimum(scheme, seed):
    target, draft = tables(seed, 2, 2, near=True)
    topology = k_ary(2, 2)
    best = tree_optimum(target, draft, topology, scheme)
    means = {
        name: output_law(get_rule(name), target, draft, topology, scheme)[1]
        for name in (*MULTI_STEP, "optimal", "rrs")
    }
    assert max(means.values()) <= best + 1e-9
    assert means["level_sequential"] >= means["traversal_hull"] - 1e-12
    assert means["traversal_hull"] >= means["optimal"] - 1e-12
    assert means["traversal"] >= means["rrs"] - 1e-12


def test_verify_draws_from_the_ways_to_end():
    target, draft = tables(5, 3, 2)
    rng = np.random.default_rng(0)
    root = Node((), ())
    drafts = mo.WithReplacement(draft(()), 2)
    root.add_drafts(drafts, np.array([0, 1]))
    for node in root.walk():
        node.target = target(node.tokens)
    for name in (*MULTI_STEP, "optimal"):
        rule = get_rule(name)
        lengths = [rule.verify(root, rng).num_accepted for _ in range(3000)]
        assert np.mean(lengths) == pytest.approx(rule.expected_accepted(root), abs=0.05)


@pytest.mark.parametrize("name", [*MULTI_STEP, "block_verification"])
@pytest.mark.parametrize("p", [[2.7e-299, 1.0], [0.0, 1.0], [np.nextafter(0.5, 0), 0.5]])
def test_a_rare_draft_refused_where_nothing_else_is_left(name, p):
    """p and q are equal up to rounding, but not at the draft: the ways to end sum to one."""
    q = [0.5, 0.5] if p[0] > 0.1 else [3e-100, 1.0]
    root = Node((), ())
    root.add_drafts(mo.WithReplacement(q, 1), np.array([0]))
    for node in root.walk():
        node.target = np.array(p)
    rule = get_rule(name)
    ways = rule.stops(root)
    assert sum(way.probability for way in ways) == pytest.approx(1.0, abs=1e-12)
    for way in ways:
        assert not way.law[node.target == 0].any()
    rng = np.random.default_rng(0)
    assert {rule.verify(root, rng).num_accepted for _ in range(20)} <= {0, 1}


def test_names_topologies_and_what_is_refused():
    assert {*MULTI_STEP, "block_verification"} < set(rule_names())
    assert get_rule("trav_hull").name == "traversal_hull"
    with pytest.raises(UnknownName, match="level_sequential"):
        get_rule("level")
    assert parse_topology("4x3").num_nodes == 4 + 16 + 64
    assert parse_topology("chain5").depth == 5
    assert parse_topology("sparse").depth == 5
    assert parse_topology("dynamic24").num_nodes == 24
    for text in ("4", "0x2", "2x0", "x", "50x50"):
        with pytest.raises(InvalidInput):
            parse_topology(text)
    with pytest.raises(InvalidInput, match="parent"):
        Topology({(): 2, (5,): 1}, "torn")
    with pytest.raises(InvalidInput, match="root"):
        Topology({}, "none")
    target, draft = tables(6, 3, 1)
    independent = lambda q, k: mo.IndependentDrafts([q] * k)  # noqa: E731
    for name in MULTI_STEP:
        with pytest.raises(UnsupportedScheme):
            output_law(get_rule(name), target, draft, k_ary(2, 1), independent)
    law, _ = output_law(get_rule("rrs"), target, draft, k_ary(2, 1), independent)
    np.testing.assert_allclose(law, target_law(target, 2), atol=1e-12)


def test_uniforms_at_their_ends_never_give_impossible_tokens():
    """As everywhere: a token of probability zero does not come out."""
    assert Uniforms(0.0, 0.0, 0.0, 0.0).residual == 0.0
    root = Node((), ())
    root.add_drafts(mo.WithReplacement([0.5, 0.5, 0.0], 2), np.array([0, 0]))
    for node in root.walk():
        node.target = np.array([0.0, 0.5, 0.5])

    class Ends:
        def __init__(self, value):
            self.value = value

        def random(self, size):
            return np.full(size, self.value)

    for value in (0.0, np.nextafter(1.0, 0.0)):
        for name in MULTI_STEP:
            outcome = get_rule(name).verify(root, Ends(value))
            assert 0 not in outcome.tokens


@pytest.mark.parametrize("values", [None, [1.75, 1.0]])
def test_the_draft_that_goes_on_has_the_block(values):
    """Draft = target: an even split gives half to the second, after which nothing is drawn."""
    target, _ = tables(0, 3, 2)
    topology = Topology({(): 2, (0,): 1}, "uneven")
    as_if_equal = values is None
    values = {(): np.ones(2) if as_if_equal else np.array(values), (0,): np.ones(1)}
    for name in MULTI_STEP:
        found = trees(target, topology, "with_replacement", values)
        _, accepted = output_law(
            get_rule(name), target, target, topology, "with_replacement", found
        )
        if as_if_equal and name != "traversal":
            assert accepted < 1.99
        else:
            assert accepted == pytest.approx(2.0)
