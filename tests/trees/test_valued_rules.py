"""Drafts are worth different amounts by their places: no law changes, and more is accepted."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from support import oracles
from support.tables import dynamic_trees, output_law, pair, target_law, trees

import mdsd_opt as mo
from mdsd_opt.decoding import (
    DynamicTree,
    Node,
    get_rule,
    grow,
    k_ary,
    sparse,
    tree_optimum,
)
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import Topology, place_values, recursive_rejection, valued
from mdsd_opt.trees.recursive_rejection import rank_chances, tried_one_by_one, valued_rule
from mdsd_opt.trees.token_split import split_with_tries, token_split
from mdsd_opt.verifiers import SortedPlan, acceptance_probabilities
from mdsd_opt.verifiers.optimal.acceptance_rule import (
    born_blocks,
    mean_over_joins,
    mean_over_levels,
)

HULL_RULES = ("traversal_hull", "level_sequential")
SCHEMES = ("with_replacement", "without_replacement")
FIRST = Topology({(): 2, (0,): 1}, "the first goes on")
SECOND = Topology({(): 2, (1,): 2}, "the second goes on")
COMB = Topology({(): 3, (0,): 3, (0, 0): 3, (0, 0, 0): 1}, "comb")
SMALL_COMB = Topology({(): 3, (0,): 2, (0, 0): 2}, "comb 3-2-2")
THREE_TWO = Topology({(): 3, (0,): 2}, "3 then 2")
MIXED = Topology({(): 3, (0,): 2, (1,): 1, (0, 0): 1}, "3-2-1")
VALUES = [(9, 1, 1), (3, 2, 1), (1, 1, 3), (1, 4, 2), (1, 1, 1)]


def dyadic(rng, size, total=64):
    """Masses whose floats are exact."""
    cuts = np.sort(rng.choice(np.arange(1, total), size - 1, replace=False))
    return [Fraction(int(n), total) for n in np.diff([0, *cuts, total])]


def exact_instances(scheme, count=4):
    rng = np.random.default_rng(0)
    for _ in range(count):
        q, share = dyadic(rng, 4), Fraction(int(rng.integers(3, 9)), 8)
        target = np.array([share * t for t in dyadic(rng, 4)], dtype=object)
        drafts = scheme(np.array([float(x) for x in q]), 3)
        yield drafts, SortedPlan(target, np.empty(0, np.int64), drafts), target


def passed_by(drafts, plan, worth):
    """What is passed of each token, all draft tuples enumerated; places are worth something."""
    passed = np.zeros(4, dtype=object)
    for draws, weight in oracles.listed(drafts).items():
        tokens = np.array(draws)
        rule_of = partial(valued_rule, values=np.array(worth(tokens), dtype=float))
        for token, mass in zip(draws, acceptance_probabilities(plan, tokens, rule_of), strict=True):
            passed[token] += weight * Fraction(mass)
    return passed.tolist()


@pytest.mark.parametrize("scheme", [mo.WithReplacement, mo.WithoutReplacement])
@pytest.mark.parametrize("values", VALUES, ids=str)
def test_the_law_stays_exactly_the_same(scheme, values):
    """Fractions: what is passed of each token is min(t, p_I), whatever the places are worth."""
    for drafts, plan, target in exact_instances(scheme):
        found = passed_by(drafts, plan, lambda tokens: values)
        assert found == np.minimum(target, plan.selection).tolist()


def test_the_law_does_not_survive_a_choice_by_tokens():
    """The likelier of the tokens within the block, as seen from the target: the control."""
    for drafts, plan, target in exact_instances(mo.WithReplacement):
        found = passed_by(drafts, plan, lambda tokens: 1 + 9 * (tokens == max(tokens)))
        assert found != np.minimum(target, plan.selection).tolist()


def schemes_of(q):
    """Every kind of drafts that the rules take, with certain drafts and whole supports."""
    support = np.flatnonzero(q > 0).size
    yield mo.WithReplacement(q, 3)
    if support < 4:
        yield mo.WithReplacement(q, 5)
    yield mo.WithoutReplacement(q, 2)
    yield mo.WithoutReplacement(q, support)
    yield mo.WithoutReplacement(q, support + 2)
    yield mo.GreedyDrafts(q, 3)
    yield mo.TopKDrafts(q, 3)
    yield mo.FixedPlusDrafts([1], mo.WithReplacement(q, 2))
    if support > 3:
        yield mo.WithoutReplacement(q, 3)
        yield mo.MixtureDrafts(
            [(0.3, mo.WithReplacement(q, 3)), (0.4, mo.WithoutReplacement(q, 3)),
             (0.3, mo.WithReplacement(q, 2))]
        )  # fmt: skip


LAWS = [
    ([0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]),
    ([0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]),
    ([0.0, 0.7, 0.1, 0.2], [0.5, 0.3, 0.2, 0.0]),
    ([0.97, 0.01, 0.01, 0.01], [0.01, 0.97, 0.01, 0.01]),
    ([0.3, 0.0, 0.0, 0.7], [0.0, 0.6, 0.4, 0.0]),
]


@pytest.mark.parametrize("plan", [token_split, split_with_tries])
@pytest.mark.parametrize("binned", [False, True])
@pytest.mark.parametrize(("p", "q"), LAWS)
def test_what_goes_on_is_what_is_kept_on_average(monkeypatch, plan, binned, p, q):
    """For every scheme, with values in any order: E[masses] = I <= r p, and sums at most one."""
    if binned:
        monkeypatch.setattr("mdsd_opt.trees.token_split.MANY_TOKENS", 1)
    p, q = np.array(p), np.array(q)
    # either demand with either order of values, of tokens or of bins
    worths = ((9, 1, 1, 1, 1, 1), (1, 5, 2, 7, 1, 3))[:: -1 if binned else 1]
    for drafts in schemes_of(q):
        for demand, worth in zip((1.0, 0.6), worths, strict=True):
            values = np.array(worth[: drafts.num_drafts], dtype=float)
            target, found = demand * p, np.zeros(p.size)
            for draws, weight in zip(*drafts.tuple_law(), strict=True):
                if weight > 0.0:
                    tokens = draws.astype(np.int64)
                    arguments = (demand,) if plan is split_with_tries else ()
                    made = plan(target, *arguments, drafts, tokens, values)
                    assert sum(made.masses.values()) <= 1 + 1e-12
                    for token, mass in made.masses.items():
                        assert token in draws
                        assert mass >= 0.0
                        found[token] += weight * mass
            np.testing.assert_allclose(found, made.kept, rtol=0, atol=1e-12, err_msg=repr(drafts))
            assert (made.kept <= target + 1e-12).all()


@pytest.mark.parametrize("plan", [token_split, split_with_tries])
@pytest.mark.parametrize("size", [2, 3])
def test_a_whole_support_is_passed_in_draw_order(plan, size):
    """All of the target is passed on average, and all of it by the first draft if p = q."""
    q = np.array([0.5, 0.3, 0.2])[:size] / sum([0.5, 0.3, 0.2][:size])
    arguments = (1.0,) if plan is split_with_tries else ()
    for draws, _ in zip(*mo.WithoutReplacement(q, size).tuple_law(), strict=True):
        tokens = draws.astype(np.int64)
        made = plan(q, *arguments, mo.WithoutReplacement(q, size), tokens, np.ones(size))
        assert made.masses[tokens[0]] == pytest.approx(1.0, abs=1e-15)
        np.testing.assert_allclose(made.kept, q)


def mean_value(plan, drafts, values):
    """Expected value of what is passed."""
    total = 0.0
    for draws, weight in zip(*drafts.tuple_law(), strict=True):
        masses = plan(draws.astype(np.int64))
        total += float(weight * (masses @ values))
    return total


@pytest.mark.parametrize("num_drafts", [2, 3, 7])
def test_forecast_chances_are_those_of_the_plan(num_drafts):
    """For more tokens than can be enumerated: sums over the blocks of the sorted plan."""
    rng = np.random.default_rng(num_drafts)
    for concentration in (0.05, 0.5, 5.0):
        for demand in (1.0, 0.6, 0.05):
            p, q = rng.dirichlet(np.full(60, concentration), 2)
            p[rng.random(60) < 0.2] = 0.0
            target, drafts = demand * p / p.sum(), mo.WithReplacement(q, num_drafts)
            plan = SortedPlan(target, np.empty(0, np.int64), drafts)
            share = plan.w * np.where(plan.p < plan.x, plan.p / np.maximum(plan.x, 1e-300), 1)
            share[plan.p == 0] = 0
            below, passed = (np.append(0.0, np.cumsum(part)) for part in (plan.w, share))
            (starts, stops), lives = born_blocks(plan.death_levels)
            single = np.arange(plan.w.size)  # blocks of one token live until a boundary dies
            starts, stops = np.append(starts, single), np.append(stops, single + 1)
            ends = np.minimum(plan.death_levels[:-1], plan.death_levels[1:])
            masses = np.append(lives, ends) * (passed[stops] - passed[starts])
            expected = [
                masses @ (below[starts] ** k * below[stops] ** (num_drafts - 1 - k))
                for k in range(num_drafts)
            ]
            found = rank_chances(*recursive_rejection.by_ratio(target, drafts.q), num_drafts)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
            assert found.sum() == pytest.approx(np.minimum(plan.p, plan.x).sum(), abs=1e-12)


def test_as_many_are_tried_as_bring_most():
    """Enumerated: no other number is better, until the value falls for the first time."""
    rng = np.random.default_rng(2)
    numbers = set()
    for _ in range(30):
        p, q = rng.dirichlet(np.full(4, 0.6), 2)
        drafts = mo.WithReplacement(q, 3)
        values = np.array([rng.choice([1.5, 3.0, 8.0]), 1.0, 1.0])
        order = tried_one_by_one(p, 1.0, drafts, values)
        assert order == list(range(len(order)))
        numbers.add(len(order))
        worth = []
        for number in range(3):

            def masses(draws, number=number, p=p, drafts=drafts, values=values):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(recursive_rejection, "best_number", lambda *_: number)
                    made = split_with_tries(p, 1.0, drafts, draws, values)
                first = np.unique(draws, return_index=True)[1]
                passed = np.zeros(3)
                for k in first:
                    passed[k] = made.masses.get(int(draws[k]), 0.0)
                return passed

            worth.append(mean_value(masses, drafts, values))
        # A token drawn again has the place of its first draw: worth as much as forecast, or more.
        best = worth[len(order)]
        assert best >= worth[0] - 1e-9 or len(order) == 0
        assert best >= max(worth) - 0.05
    assert numbers >= {0, 1}


def test_groups_of_similar_ratio_do_for_the_decision(monkeypatch):
    rng = np.random.default_rng(3)
    q = rng.dirichlet(np.full(4000, 0.1))
    p = q * np.exp(rng.standard_normal(q.size))
    p /= p.sum()
    tokens = recursive_rejection.by_ratio(p, q)
    assert tokens[0].size == 4000
    monkeypatch.setattr(recursive_rejection, "MANY_TOKENS", 1)
    groups = recursive_rejection.by_ratio(p, q)
    assert groups[0].size <= 256
    for found in (tokens, groups):
        assert (np.diff(found[0] / found[1]) >= 0).all()
        np.testing.assert_allclose([part.sum() for part in found], 1.0)
    for num_drafts in (1, 2, 3):
        np.testing.assert_allclose(
            rank_chances(*groups, num_drafts), rank_chances(*tokens, num_drafts), atol=2e-3
        )


def steep(topology):
    """Values that make every rule try drafts first, not in draw order."""
    return {
        place: np.roll([9.0] + [1.0] * (count - 1), len(place))
        for place, count in topology.num_drafts.items()
    }


def check_law(rule, target, draft, topology, scheme, found=None):
    depth = topology.max_depth if isinstance(topology, DynamicTree) else topology.depth
    law, _ = output_law(get_rule(rule), target, draft, topology, scheme, found)
    np.testing.assert_allclose(law, target_law(target, depth + 1), rtol=0, atol=1e-12)


def exact_mixture(q, num_drafts):
    parts = [mo.WithReplacement(q, num_drafts)]
    if np.count_nonzero(q) > num_drafts:
        parts.append(mo.WithoutReplacement(q, num_drafts))
    return mo.MixtureDrafts([(Fraction(1, len(parts)), part) for part in parts])


@pytest.mark.parametrize("name", [*HULL_RULES, "traversal"])
@pytest.mark.parametrize("scheme", [*SCHEMES, "greedy", "top_k", exact_mixture])
@pytest.mark.parametrize(
    ("vocab_size", "tree"),
    [
        (3, FIRST), (3, SECOND), (2, THREE_TWO), (3, THREE_TWO), (2, MIXED),
        (2, DynamicTree(6, num_drafts=2, max_depth=2)),
    ],
    ids=lambda x: getattr(x, "name", x),
)  # fmt: skip
def test_outputs_follow_the_target_exactly(name, scheme, vocab_size, tree):
    """All trees, in Fractions, values not in draw order: not the least difference is left."""
    if name == "traversal" and scheme not in SCHEMES:
        return
    deep = tree.max_depth if isinstance(tree, DynamicTree) else tree.depth
    target, draft = (table.in_fractions() for table in pair(1, vocab_size, deep, 0.7))
    found = None if isinstance(tree, DynamicTree) else trees(draft, tree, scheme, steep(tree))
    law, accepted = output_law(get_rule(name), target, draft, tree, scheme, found)
    assert law.tolist() == target_law(target, deep + 1).tolist()
    assert not any(isinstance(mass, float) for mass in [*law.ravel(), accepted])


@pytest.mark.parametrize("name", HULL_RULES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_growing_trees_are_lossless_for_values_known_before_the_draws(name, scheme):
    """Values of what grew are not, where draws that coincide decide it, nor values of tokens."""
    either = np.array([[0.0, 0.0], [0.8, 0.0], [0.4, 0.4]])
    tree = DynamicTree(6, num_drafts=2, max_depth=3, rates=either)
    target, draft = pair(8, 3, 3, 0.7)
    found = list(dynamic_trees(draft, tree, scheme))

    def valued(values):
        for root, _ in found:
            for node in root.walk():
                if node.drafts is not None:
                    node.values = values(node)
        return found

    def planned(node):
        return np.array([5.0, 1.0]) if node.depth % 2 else np.array([1.0, 5.0])

    def as_grown(node):
        return np.array([1.0 + 4 * len(node.children[t].children) for t in node.draws.tolist()])

    def of_tokens(node):
        return 1.0 + 4.0 * (node.draws == node.draws.max())

    check_law(name, target, draft, tree, scheme, found)
    check_law(name, target, draft, tree, scheme, valued(planned))
    wrong = [of_tokens]
    if scheme == "with_replacement":
        wrong.append(as_grown)
    else:  # none coincide, and places alone decide
        check_law(name, target, draft, tree, scheme, valued(as_grown))
    for values in wrong:
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            check_law(name, target, draft, tree, scheme, valued(values))


class Synthetic:
    """Softmax models of noise after every text, made when asked for."""

    def __init__(self, seed, vocab_size, tilt):
        self._seed, self._size, self._tilt, self._laws = seed, vocab_size, tilt, {}

    def __call__(self, text):
        if text not in self._laws:
            rng = np.random.default_rng([self._seed, *(token + 1 for token in text)])
            logits = 1.5 * rng.standard_normal(self._size)
            both = np.exp([logits + self._tilt * rng.standard_normal(self._size), logits])
            self._laws[text] = both / both.sum(axis=1, keepdims=True)
        return self._laws[text]

    def tree(self, topology, scheme):
        rng = np.random.default_rng(self._seed)
        root = grow(lambda texts: np.array([self(t)[1] for t in texts]), topology, scheme, rng)
        for node in root.walk():
            node.target = self(node.tokens)[0]
        return root


@pytest.mark.parametrize("name", [*HULL_RULES, "traversal"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("vocab_size", [3, 4, 10])
@pytest.mark.parametrize(
    "topology", [sparse(), COMB, MIXED, k_ary(2, 3)], ids=lambda topology: topology.name
)
def test_nothing_is_lost_where_the_draft_is_the_target(name, scheme, vocab_size, topology):
    """Whole supports too: three tokens, three or four drafts."""
    for seed in range(3):
        root = Synthetic(seed, vocab_size, 0.0).tree(topology, scheme)
        assert get_rule(name).expected_accepted(root) == pytest.approx(topology.depth, abs=1e-9)


@pytest.mark.parametrize(
    ("scheme", "vocab_size", "topology"),
    [
        ("with_replacement", 3, FIRST), ("with_replacement", 2, MIXED),
        ("with_replacement", 2, SMALL_COMB), ("with_replacement", 3, THREE_TWO),
        ("without_replacement", 3, THREE_TWO), ("without_replacement", 2, MIXED),
    ],
    ids=str,
)  # fmt: skip
def test_uneven_trees_are_near_the_optimum(scheme, vocab_size, topology):
    """As close as traversal or closer; an even split was up to ten times as far."""
    gaps = {name: [] for name in (*HULL_RULES, "traversal")}
    for seed in range(4):
        target, draft = pair(seed, vocab_size, topology.depth, near=True)
        best = tree_optimum(target, draft, topology, scheme)
        drawn = list(trees(draft, topology, scheme))
        for name, found in gaps.items():
            accepted = output_law(get_rule(name), target, draft, topology, scheme, drawn)[1]
            assert accepted <= best + 1e-9
            found.append(best - accepted)
    for name in HULL_RULES:
        assert np.mean(gaps[name]) <= np.mean(gaps["traversal"]) + 1e-9
        assert np.mean(gaps[name]) < 0.09


def test_places_are_sorted_so_that_values_fall_in_draw_order():
    assert dict(valued(SECOND).topology.num_drafts) == {(): 2, (0,): 2}
    assert valued(COMB).topology == COMB
    deep = Topology({(): 3, (2,): 2, (2, 1): 1, (1,): 1}, "upside down")
    assert dict(valued(deep).topology.num_drafts) == {(): 3, (0,): 2, (0, 0): 1, (1,): 1}
    root = Synthetic(0, 5, 0.5).tree(SECOND, "without_replacement")
    assert root.children[int(root.draws[0])].draws.size == 2
    np.testing.assert_allclose(root.values, place_values(FIRST)[()] + [0.1875, 0.0])


@pytest.mark.parametrize("values", [[1.0], [1.0, 0.0], [1.0, np.nan], [1.0, -2.0]])
def test_values_that_are_none_are_refused(values):
    with pytest.raises(InvalidInput, match="one positive value for each place"):
        Node((), ()).add_drafts(
            mo.WithReplacement([0.5, 0.5], 2), np.array([0, 1]), np.array(values)
        )


def test_rules_by_the_drafts_of_a_block_need_no_walk_over_blocks():
    rng = np.random.default_rng(1)
    for _ in range(300):
        size, count = rng.integers(1, 9), rng.integers(1, 5)
        levels = rng.integers(0, 11, size + 1) / 10  # some at the same level
        levels[[0, -1]] = 1.0
        places = rng.integers(size, size=count)
        worth = rng.random(count)

        def rule(start, stop, places=places, worth=worth):
            return worth * (places >= start) / (places >= start).sum()

        walked = mean_over_levels(rule, int(places.max()), levels)
        np.testing.assert_allclose(mean_over_joins(rule, places, levels), walked, atol=1e-15)
