"""Plans of draft trees: forecasts, the best topology, and what is measured for them."""

from __future__ import annotations

import heapq
from functools import cache

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.decoding import (
    DynamicTree,
    Node,
    PlannedTree,
    RunningRates,
    Topology,
    balanced,
    chain,
    expected_accepted,
    generate,
    grow_by_acceptance,
    initial_rates,
    k_ary,
    measured_rates,
    place_rates,
    place_values,
    plan_tree,
    sparse,
    tree_bound,
)
from mdsd_opt.decoding.growth import PlannedGrowth
from mdsd_opt.errors import InvalidInput, ProblemTooLarge

ROWS = np.zeros((2, 3)), np.ones((2, 3))


def random_table(rng, max_drafts):
    """Rates that fall in every row, and differ from row to row."""
    table = np.zeros((max_drafts + 1, max_drafts))
    for k in range(1, max_drafts + 1):
        table[k, :k] = np.sort(rng.dirichlet(np.ones(k + 1))[:k])[::-1]
    return table


def same_rates(rates):
    """Rates that do not depend on K."""
    return np.tril(np.tile(rates, (len(rates) + 1, 1)), -1)


def test_values_by_hand():
    table = initial_rates(2)
    np.testing.assert_allclose(table, [[0, 0], [0.75, 0], [0.75, 0.1875]])
    tree = Topology({(): 2, (1,): 1}, "second goes on")
    values = place_values(tree, table)
    np.testing.assert_allclose(values[()], [1, 1.75])
    np.testing.assert_allclose(values[1,], [1])
    assert expected_accepted(tree, table) == pytest.approx(0.75 * 1.75 + 0.1875)


def test_values_of_a_chain_and_of_an_even_tree():
    assert expected_accepted(k_ary(1, 900)) == pytest.approx(3.0)
    assert expected_accepted(k_ary(3, 2), np.tril(np.ones((4, 3)), -1) / 3) == pytest.approx(2)
    assert list(place_values(sparse())[()]) == sorted(place_values(sparse())[()], reverse=True)


def test_a_table_for_fewer_drafts_is_refused():
    with pytest.raises(InvalidInput, match="up to 2 drafts"):
        place_values(k_ary(3, 1), initial_rates(2))


@cache
def ordered_trees(num_nodes, max_drafts):
    """All ordered trees with so many drafts, each as a tuple of its children's trees."""
    return [
        children
        for count in range(min(num_nodes, max_drafts) + 1)
        for children in forests(num_nodes, count, max_drafts)
        if count or num_nodes == 0
    ]


@cache
def forests(num_nodes, count, max_drafts):
    if count == 0:
        return [()] if num_nodes == 0 else []
    return [
        (first, *others)
        for below in range(num_nodes - count + 1)
        for first in ordered_trees(below, max_drafts)
        for others in forests(num_nodes - 1 - below, count - 1, max_drafts)
    ]


def worth(tree, table):
    """W of a tree, with the rates in draw order."""
    return sum(table[len(tree), k] * (1 + worth(child, table)) for k, child in enumerate(tree))


def num_drafts(tree):
    """Drafts of a tree."""
    return sum(1 + num_drafts(child) for child in tree)


def levels(tree):
    return 1 + max(map(levels, tree)) if tree else 0


def test_all_ordered_trees_are_tried():
    assert [len(ordered_trees(n, 9)) for n in range(8)] == [1, 1, 2, 5, 14, 42, 132, 429]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("max_depth", [None, 1, 2, 3])
@pytest.mark.parametrize("max_drafts", [1, 3, 7])
def test_no_ordered_tree_beats_the_plan(seed, max_depth, max_drafts):
    table = random_table(np.random.default_rng(seed), max_drafts)
    best = 0.0
    for num_nodes in range(1, 8):
        for tree in ordered_trees(num_nodes, max_drafts):
            if max_depth is None or levels(tree) <= max_depth:
                best = max(best, worth(tree, table))
        plan = plan_tree(table, num_nodes, max_depth)
        assert plan.expected_accepted == pytest.approx(best, abs=1e-12)
        assert expected_accepted(plan.topology, table) == pytest.approx(best, abs=1e-12)
        assert plan.topology.num_nodes <= num_nodes
        assert max_depth is None or plan.topology.depth <= max_depth
        for values in place_values(plan.topology, table).values():
            assert (np.diff(values) <= 1e-12).all()


@pytest.mark.parametrize("seed", range(4))
def test_with_rates_that_do_not_depend_on_their_number_it_is_the_plan_of_sequoia(seed):
    """The likeliest places, taken one after another: their chances are products along the way."""
    rng = np.random.default_rng(seed)
    rates = np.sort(rng.dirichlet(np.ones(6)))[::-1][:5]
    waiting, total = [(-rates[0], 1.0, 0)], 0.0
    for num_nodes in range(1, 120):
        chance, above, rank = heapq.heappop(waiting)
        total -= chance
        heapq.heappush(waiting, (chance * rates[0], -chance, 0))
        if rank < 4:
            heapq.heappush(waiting, (-above * rates[rank + 1], above, rank + 1))
        plan = plan_tree(same_rates(rates), num_nodes)
        assert plan.expected_accepted == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("max_depth", [None, 4])
def test_a_large_plan_is_worth_what_it_says(max_depth):
    table = random_table(np.random.default_rng(0), 8)
    plan = plan_tree(table, 512, max_depth)
    assert plan.expected_accepted == pytest.approx(expected_accepted(plan.topology, table))
    assert plan.topology.num_nodes <= 512
    assert plan.expected_accepted >= plan_tree(table, 511, max_depth).expected_accepted


def test_a_row_that_does_not_fall_is_taken_as_if_it_did():
    table = np.array([[0, 0], [0.3, 0], [0.1, 0.6]])
    plan = plan_tree(table, 3)
    assert plan.topology.num_drafts == {(): 2, (0,): 1}
    assert plan.expected_accepted == pytest.approx(0.6 * 1.3 + 0.1)


@pytest.mark.parametrize("seed", range(4))
def test_under_a_cost_the_plan_brings_most_tokens_a_second(seed):
    rng = np.random.default_rng(seed)
    table = random_table(rng, 4)
    seconds = np.cumsum(rng.exponential(size=21)) + 1.0
    found = {n: (1 + plan_tree(table, n).expected_accepted) / seconds[n] for n in range(1, 21)}
    best = max(found.values())
    for cost in (lambda n: seconds[n], list(seconds), dict(enumerate(seconds))):
        plan = plan_tree(table, 20, cost=cost)
        assert plan.tokens_per_second == pytest.approx(best)
        assert found[plan.topology.num_nodes] == pytest.approx(best)


@pytest.mark.parametrize("max_depth", [None, 2])
@pytest.mark.parametrize("seed", range(4))
def test_where_levels_cost_no_ordered_tree_beats_the_plan(seed, max_depth):
    rng = np.random.default_rng(seed)
    table = random_table(rng, 3)
    of_drafts, of_levels = 1.0 + np.cumsum(rng.exponential(0.1, 8)), rng.exponential()

    def cost(drafts, depth):
        return of_drafts[drafts] + of_levels * depth

    tried = [tree for n in range(1, 8) for tree in ordered_trees(n, 3)]
    speeds = [
        (1 + worth(tree, table)) / cost(num_drafts(tree), levels(tree))
        for tree in tried
        if max_depth is None or levels(tree) <= max_depth
    ]
    plan = plan_tree(table, 7, max_depth, cost=cost)
    assert plan.tokens_per_second == pytest.approx(max(speeds))
    expected = expected_accepted(plan.topology, table)
    here = cost(plan.topology.num_nodes, plan.topology.depth)
    assert (1 + expected) / here == pytest.approx(max(speeds))


def test_dear_levels_make_a_flat_tree():
    table = initial_rates(4)
    flat = plan_tree(table, 8, cost=lambda drafts, depth: 1.0 + 10.0 * depth)
    deep = plan_tree(table, 8, cost=lambda drafts, depth: 1.0 + 10.0 * drafts / depth)
    assert flat.topology.depth == 1 < deep.topology.depth


def test_a_cost_is_interpolated_and_not_trusted_beyond_what_was_measured():
    table = initial_rates(4)
    assert plan_tree(table, 30, cost={1: 1.0, 9: 1.0}).topology.num_nodes == 9
    plan = plan_tree(table, 30, cost={1: 1.0, 9: 1.0, 11: 100.0, 30: 200.0})
    assert plan.topology.num_nodes == 9
    assert plan_tree(table, 30).tokens_per_second is None


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        (lambda t: plan_tree(t, 0), InvalidInput, "num_nodes is 0"),
        (lambda t: plan_tree(t, 4, 0), InvalidInput, "max_depth is 0"),
        (lambda t: plan_tree(t, 10**6), ProblemTooLarge, "1,000,000 drafts"),
        (lambda t: plan_tree(t[1:], 4), InvalidInput, r"\(K \+ 1, K\)"),
        (lambda t: plan_tree(3 * t, 4), InvalidInput, "at most one"),
        (lambda t: plan_tree(np.nan * t, 4), InvalidInput, "at most one"),
        (lambda t: plan_tree(t, 4, cost=lambda n: 0.0), InvalidInput, "seconds above 0"),
        (lambda t: plan_tree(t, 4, cost=lambda n, d: d - 1.0), InvalidInput, "seconds above 0"),
        (lambda t: plan_tree(t, 4, cost={}), InvalidInput, "no number"),
        (lambda t: plan_tree(t, 4, cost=3.0), InvalidInput, "no number"),
        (lambda t: expected_accepted(k_ary(2, 1), np.nan * t), InvalidInput, "at most one"),
        (lambda t: place_values(k_ary(2, 1), 3 * t), InvalidInput, "at most one"),
        (lambda t: place_values("2x2", t), InvalidInput, "parse_topology"),
        (lambda t: tree_bound(None, None, "2x2"), InvalidInput, "parse_topology"),
        (lambda t: initial_rates(3, 2.0), InvalidInput, r"first is 2\.0"),
        (lambda t: PlannedTree(0), InvalidInput, "at least 1"),
        (lambda t: sparse(0), InvalidInput, "at least 1"),
        (lambda t: balanced(0, 3), InvalidInput, "at least 1"),
    ],
)
def test_what_is_refused(asked, error, says):
    with pytest.raises(error, match=says):
        asked(initial_rates(3))


def test_nothing_passed_is_a_plan_all_the_same():
    plan = plan_tree(np.zeros((3, 2)), 5)
    assert plan.expected_accepted == 0.0
    assert plan.topology.num_nodes == 1


def test_trees_of_a_size():
    for num_nodes in (1, 2, 7, 30):
        assert balanced(3, num_nodes).num_nodes == num_nodes
        assert sparse(num_nodes).num_nodes == num_nodes
    assert balanced(2, 6).num_drafts == k_ary(2, 2).num_drafts
    assert chain(5).num_drafts == balanced(1, 5).num_drafts
    # The plan for rates x, x^2, x^3, ...: the chance of a place is x to the sum of ranks.
    halves = same_rates(0.5 ** np.arange(1, 9))
    for num_nodes in range(1, 40):
        assert expected_accepted(sparse(num_nodes), halves) == pytest.approx(
            plan_tree(halves, num_nodes).expected_accepted
        )


@pytest.fixture
def logits():
    rng = np.random.default_rng(3)
    target = 2 * rng.standard_normal((2, 6, 12))
    return target, target + rng.standard_normal((2, 6, 12))


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement", "top_k"])
def test_rates_are_differences_of_optimal_rates(logits, scheme):
    target, draft = logits
    table = place_rates(target, draft, 3, scheme, 0.7)
    assert table.shape == (4, 3)
    for k in range(4):
        assert not table[k, k:].any()
        found = 0.0
        if k:
            problems = [
                mo.TransportProblem(p, mo.drafts.SINGLE_MODEL_SCHEMES[scheme](q, k))
                for p, q in zip(
                    mo.softmax(target, 0.7).reshape(-1, 12),
                    mo.softmax(draft, 0.7).reshape(-1, 12),
                    strict=True,
                )
            ]
            found = np.mean([mo.solve(problem).acceptance_rate for problem in problems])
        assert table[k].sum() == pytest.approx(found, abs=1e-9)


def test_rates_of_more_drafts_than_tokens():
    table = place_rates(np.zeros((2, 3)), np.zeros((2, 3)), 5)
    np.testing.assert_allclose(table[:, 0], [0, 1, 1, 1, 1, 1])
    assert not table[:, 1:].any()
    with pytest.raises(InvalidInput, match="max_drafts"):
        place_rates(np.zeros((2, 3)), np.zeros((2, 3)), 0)


def test_rates_of_models_lie_between_the_measured_and_the_initial_ones(logits):
    target, draft = (side.reshape(-1, 12) for side in logits)
    ask = [lambda ids, side=side: side[len(ids) - 1] for side in (target, draft)]
    found = measured_rates(*ask, [range(12)], 3, "with_replacement")
    shares = np.array([12.0, 16.0]) / 28.0
    sides = place_rates(target, draft, 3, "with_replacement"), initial_rates(3)
    np.testing.assert_allclose(found, shares[0] * sides[0] + shares[1] * sides[1])


def test_running_rates_are_means_of_what_was_passed():
    root = Node((), ())
    first, _ = root.add_drafts(mo.WithReplacement([0.5, 0.5], 3), np.array([1, 0, 1]))
    first.add_drafts(mo.WithReplacement([0.5, 0.5], 1), np.array([0]))
    rates = RunningRates(initial_rates(3))
    before = rates.table.copy()
    rates.observe(root, (1,))
    np.testing.assert_allclose(rates.table[3], (16 * before[3] + [1, 0, 0]) / 17)
    np.testing.assert_allclose(rates.table[1], 16 * before[1] / 17)  # come to, nothing passed
    np.testing.assert_allclose(rates.table[2], before[2])
    rates.observe(root, (0,))  # a leaf: nothing to pass there
    np.testing.assert_allclose(rates.table[3], (16 * before[3] + [1, 1, 0]) / 18)
    np.testing.assert_allclose(rates.table[1], 16 * before[1] / 17)


def test_a_plan_follows_what_is_passed():
    """A target that never takes a draft twice in a row makes the plan wide."""
    tree = PlannedTree(6, 6, initial_rates(6, first=0.9))
    growth = PlannedGrowth(tree)
    deep = growth.shape.topology.depth
    rng = np.random.default_rng(0)
    for _ in range(64):
        root = growth.grow(lambda w: np.full((len(w), 9), 1 / 9), mo.WithReplacement, rng)
        growth.observe(root, ())
    assert growth.shape.topology.depth < deep


def test_a_draft_equal_to_the_target_is_accepted_as_forecast():
    law = np.log([0.4, 0.3, 0.2, 0.1])
    tree = PlannedTree(5, 5, place_rates(law, law, 4, "with_replacement"))
    output = generate(
        lambda ids: law, lambda ids: law, [0], tree=tree, rule="traversal", max_new_tokens=60, rng=0
    )
    assert plan_tree(tree.table, 5).expected_accepted == 5
    assert output.metrics.accepted_per_step == pytest.approx(5)
    assert output.metrics.num_passed >= output.metrics.num_accepted


def grown(rates, scheme, budget=8, num_drafts=2):
    """Places with drafts of a tree that grows, by a law in which draws are far from even."""
    law = np.array([0.05, 0.9, 0.03, 0.02])
    tree = DynamicTree(budget, num_drafts, 4, rates=rates)
    root = grow_by_acceptance(
        lambda w: np.tile(law, (len(w), 1)), tree, scheme, np.random.default_rng(1)
    )
    return root, [node for node in root.walk() if node.drafts is not None]


def test_drawn_drafts_are_ranked_by_their_place():
    table = initial_rates(2)
    for scheme in ("without_replacement", "with_replacement"):
        _, inner = grown(table, scheme)
        assert [node.place for node in inner] == [(), (0,), (0, 0), (0, 0, 0)]


def test_drafts_that_are_certain_are_ranked_by_their_probability():
    second_first = np.array([[0, 0], [0.5, 0], [0.1, 0.9]])
    _, inner = grown(second_first, "top_k")
    assert [node.tokens for node in inner] == [(), (1,), (1, 1), (1, 1, 1)]
    _, inner = grown(second_first, "without_replacement")
    assert [node.place for node in inner] == [(), (1,), (1, 1), (1, 1, 1)]


def test_growth_may_follow_the_confidence():
    """A node whose law is flat is worth less than its place says."""

    def rates(law):
        return initial_rates(2, 0.95 if law.max() > 0.6 else 0.05)

    laws = {True: np.array([0.9, 0.1, 0.0]), False: np.array([0.4, 0.3, 0.3])}

    def model(texts):
        return np.stack([laws[w == () or w[-1] == 1] for w in texts])

    tree = DynamicTree(8, 2, 4, rates=rates)
    root = grow_by_acceptance(model, tree, "without_replacement", np.random.default_rng(0))
    assert root.draws.tolist() in ([0, 1], [1, 0])
    assert sum(node.drafts is not None for node in root.walk()) == 4
    with pytest.raises(InvalidInput, match="up to 1 drafts"):
        grown(initial_rates(1), "top_k")


def test_the_plan_verb(run_cli, tmp_path):
    rng = np.random.default_rng(0)
    target = 2 * rng.standard_normal((6, 40))
    path = tmp_path / "own.npz"
    np.savez(path, target=target, draft=target + rng.standard_normal((6, 40)))
    document = run_cli.document("plan", path, "--nodes", "9", "-k", "4")
    table = np.array(document["rates"])
    plan = plan_tree(table, 9)
    assert document["expected_accepted"] == pytest.approx(plan.expected_accepted)
    places = {tuple(row["place"]): row["num_drafts"] for row in document["num_drafts"]}
    assert places == dict(plan.topology.num_drafts)
    assert {row["tree"] for row in document["beside"]} >= {"chain9", "2-ary9"}
    assert all(row["expected_accepted"] <= plan.expected_accepted + 1e-12
               for row in document["beside"])  # fmt: skip
    shown = run_cli.shown("plan", path, "--nodes", "300", "--cost", "1:20,300:21", "--depth", "7",
                          "--plot", tmp_path / "plan.svg")  # fmt: skip
    for said in ("less likely", "tokens a second", "chain7"):
        assert said in shown
    assert "sparse" not in shown  # is deeper than asked for
    assert max(len(line) for line in shown.splitlines() if line[0] in "┃│├") <= 80
    assert "<svg" in (tmp_path / "plan.svg").read_text()
    assert "1:20,16:22" in run_cli.refusal("plan", path, "--cost", "20")
