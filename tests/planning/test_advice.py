"""Whether drafts pay: forecasts held against slow ones, decisions against cases that are known."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.decoding import (
    Topology,
    balanced,
    chain,
    expected_accepted,
    k_ary,
    parse_topology,
    sparse,
)
from mdsd_opt.errors import InvalidInput
from mdsd_opt.planning import StepCosts
from mdsd_opt.planning.advice import advice_from_rates
from mdsd_opt.planning.tree_forecasts import (
    PositionRates,
    TreeForecasts,
    following_positions,
    named,
)


def pair(shape=(6, 5, 20), noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    target = 2.0 * rng.standard_normal(shape)
    return target, target + noise * rng.standard_normal(shape)


def row_of(advice, scheme):
    return next(row for row in advice.rows if row.scheme == scheme)


# --- costs ---


def test_costs_lie_on_lines_between_and_beyond_the_rows_measured():
    costs = StepCosts(20.0, 2.0, {8: 21.0, 32: 27.0}, verify_ms=0.5)
    assert [costs.target_pass(n) for n in (1, 8, 20, 32, 40)] == [20.0, 21.0, 24.0, 27.0, 29.0]
    assert costs.step(None) == 20.0
    assert costs.step(k_ary(7, 1)) == 21.0 + 2.0 + 0.5
    assert costs.step(chain(7)) == 21.0 + 7 * 2.0 + 0.5
    assert replace(costs, draft_passes=1).step(chain(7)) == 21.0 + 2.0 + 0.5
    assert replace(costs, draft_passes=0).step(chain(7)) == 21.0 + 0.5
    assert replace(costs, batch_size=4).step(k_ary(7, 1)) == 27.0 + 2.0 + 0.5
    assert replace(costs, batch_size=32).step(None) == 27.0


def test_costs_that_fall_do_not_fall_beyond_what_was_measured():
    assert StepCosts(rows_ms={1: 20.0, 8: 19.0}).target_pass(1000) == 19.0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"target_ms": 0.0}, "takes 0.0 ms"),
        ({"target_ms": math.nan}, "target_ms is nan"),
        ({"draft_ms": -1.0}, "draft_ms is -1"),
        ({"verify_ms": math.inf}, "verify_ms is infinite"),
        ({"rows_ms": {}}, "rows_ms is a table"),
        ({"rows_ms": {0: 1.0}}, "rows_ms is a table"),
        ({"rows_ms": {2: 0.0}}, r"rows_ms\[2\] is 0"),
        ({"rows_ms": lambda rows: -1.0}, "takes -1.0 ms"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"draft_passes": -1}, "draft_passes is -1"),
        ({"max_drafts": 0}, "max_drafts is 0"),
        ({"schemes": "gready"}, "unknown draft scheme 'gready'"),
        ({"max_drafts": 65}, "max_drafts is 65"),
        ({"max_drafts": 2.5}, "max_drafts is 2.5: give an integer"),
        ({"sequence": [0]}, "sequence has 1 entries"),
        ({"schemes": ("spechub",), "verifier": "nothing"}, "nothing"),
    ],
)
def test_what_is_wrong_is_told(given, told):
    with pytest.raises((InvalidInput, ValueError), match=told):
        mo.advise(*pair((2, 4)), **given)


# --- forecasts ---


def alphas_of(rng, count, width=3):
    gains = rng.dirichlet(np.ones(width + 1), count)[:, :width]
    return np.cumsum(np.sort(gains)[:, ::-1], axis=1)


TREES = [
    chain(3),
    k_ary(3, 1),
    k_ary(2, 2),
    sparse(6),
    balanced(3, 7),
    Topology({(): 2, (1,): 1}, ""),
]


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)
def test_independent_forecasts_are_those_of_the_mean_table(tree):
    alphas = alphas_of(np.random.default_rng(1), 7)
    lone = TreeForecasts("", alphas, following_positions(7, None))
    expected = expected_accepted(named(tree), lone.table)
    if tree.name:  # else its dearest draft does not come first
        assert lone.accepted(tree).mean() == pytest.approx(expected, abs=1e-12)
        assert lone.independent(tree) == pytest.approx(expected, abs=1e-12)
    assert lone.accepted(tree).mean() == pytest.approx(lone.independent(tree), abs=1e-12)


def along(alphas, texts, tree, t, place=()):
    """Accepted drafts of a step that begins at t, draft by draft; beyond a text by the means."""
    gains = np.diff(alphas, axis=1, prepend=0.0)
    here = gains[t] if t is not None else gains.mean(axis=0)
    following = t + 1 if t is not None and t + 1 < len(texts) and texts[t + 1] == texts[t] else None
    order = sorted(range(tree.drafts_at(place)), key=lambda j: -gains.mean(axis=0)[j])
    return sum(
        here[j] * (1.0 + along(alphas, texts, tree, following, (*place, rank)))
        for rank, j in enumerate(order)
    )


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)
def test_forecasts_along_texts_follow_them(tree):
    texts = np.array([0, 0, 0, 1, 2, 2])
    alphas = alphas_of(np.random.default_rng(2), 6)
    followed = TreeForecasts("", alphas, following_positions(6, texts))
    expected = [along(alphas, texts, tree, t) for t in range(6)]
    assert followed.accepted(tree) == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)
def test_the_influence_of_a_position_is_the_derivative_by_its_weight(tree):
    alphas = alphas_of(np.random.default_rng(3), 5)
    lone = TreeForecasts("", alphas, following_positions(5, None))
    forecast = lone.independent(tree)

    def weighed(t, more):
        gains = np.diff(alphas, axis=1, prepend=0.0)
        heavier = (1.0 - more) * gains.mean(axis=0) + more * gains[t]
        other = TreeForecasts("", np.cumsum(heavier)[None], following_positions(1, None))
        return other.independent(tree)

    step = 1e-6
    slopes = [(weighed(t, step) - weighed(t, -step)) / (2 * step) for t in range(5)]
    assert lone.accepted(tree) - forecast == pytest.approx(np.array(slopes), abs=1e-8)


def test_positions_follow_each_other_in_their_texts_alone():
    assert following_positions(3, None).tolist() == [3, 3, 3, 3]
    assert following_positions(1, np.array([5])).tolist() == [1, 1]
    mixed = np.array([7, 9, 7, 9, 7])
    assert following_positions(5, mixed).tolist() == [2, 3, 4, 5, 5, 5]
    places = np.array([0, 4, 2, 3, 1])
    assert following_positions(5, mixed, places).tolist() == [4, 5, 5, 1, 2, 5]


def test_stretches_of_a_text_make_chains_longer_than_independence_says():
    easy, hard = np.tile([0.9], (8, 1)), np.tile([0.1], (8, 1))
    texts = np.repeat([0, 1], 8)
    found = TreeForecasts("", np.concatenate([easy, hard]), following_positions(16, texts))
    assert found.independent(chain(2)) == pytest.approx(0.75, abs=1e-12)
    assert found.persistent(chain(2)) == pytest.approx((0.9 + 0.81 + 0.1 + 0.01) / 2, abs=1e-12)
    assert found.independent(chain(2)) < found.accepted(chain(2)).mean() < 0.91


# --- the choice ---


def all_trees(most):
    """Every tree of up to so many drafts whose nodes have up to two."""

    def grown(places):
        yield Topology(places, str(places))
        size = sum(places.values())
        leaves = [
            (*place, rank)
            for place, count in places.items()
            for rank in range(count)
            if (*place, rank) not in places
        ]
        for leaf, count in product(leaves, (1, 2)):
            if size + count <= most:
                yield from grown({**places, leaf: count})

    yield from grown({(): 1})
    yield from grown({(): 2})


@pytest.mark.parametrize("draft_ms", [0.5, 4.0, 12.0])
@pytest.mark.parametrize("rows_ms", [None, {1: 20.0, 4: 30.0}])
def test_no_tree_of_five_drafts_is_faster(draft_ms, rows_ms):
    alphas = alphas_of(np.random.default_rng(4), 9, width=2)
    rates = PositionRates({"with_replacement": alphas}, None, following_positions(9, None))
    costs = StepCosts(20.0, draft_ms, rows_ms)
    advice = advice_from_rates(rates, costs, ("with_replacement",), max_drafts=5)
    table = TreeForecasts("", alphas, rates.following).table
    fastest = max(1e3 * (1 + expected_accepted(x, table)) / costs.step(x) for x in all_trees(5))
    assert advice.tokens_per_second == pytest.approx(fastest, rel=1e-12)
    assert advice.tokens_per_second >= max(row.tokens_per_second for row in advice.rows[1:])


def test_rows_hold_together():
    advice = mo.advise(*pair(), max_drafts=6, draft_ms=3.0, verify_ms=0.5, rows_ms={1: 20, 8: 25})
    plain = row_of(advice, "none")
    assert (plain.accepted, plain.tokens_per_second, plain.speedup.mean) == (0.0, 50.0, 1.0)
    for row in advice.rows:
        assert row.step_ms == advice.costs.step(row.tree)
        assert row.tokens_per_second == pytest.approx(1e3 * (1 + row.accepted) / row.step_ms)
        assert row.speedup.mean == pytest.approx(row.tokens_per_second / 50.0)
    single = row_of(advice, "one draft")
    assert advice.speedup_over_single == pytest.approx(
        advice.tokens_per_second / single.tokens_per_second
    )
    low, high = advice.speedup_over_single_interval
    assert low < advice.speedup_over_single < high
    assert advice.rows[0].tree is advice.tree or advice.rows[0].scheme == "none"
    best = advice.best
    assert (best.scheme, best.tree, best.speedup.mean) == (
        advice.scheme, advice.tree, advice.speedup,
    )  # fmt: skip
    document = advice.to_dict()
    assert best.to_dict() in document["rows"]
    assert document["speedup"] == best.speedup.mean
    assert document["num_drafts"] == best.to_dict()["num_drafts"] == advice.tree.num_nodes
    chosen = mo.acceptance_rates(*pair(), 1).mean()
    assert advice.single_acceptance == pytest.approx(float(chosen), abs=1e-12)


def test_one_draft_breaks_even_where_it_is_said_to():
    target, draft = pair((40, 12), noise=1.5)
    known = mo.advise(target, draft, draft_ms=6.0, verify_ms=1.0, max_drafts=1)
    assert known.break_even_acceptance == pytest.approx(7.0 / 20.0)
    at_par = 20.0 * known.single_acceptance - 1.0
    even = mo.advise(target, draft, draft_ms=at_par, verify_ms=1.0, max_drafts=1)
    assert even.break_even_acceptance == pytest.approx(known.single_acceptance)
    assert row_of(even, "one draft").speedup.mean == pytest.approx(1.0)


def test_the_printed_advice_fits_a_terminal():
    text = str(mo.advise(*pair(), max_drafts=4))
    sentence, *table = text.splitlines()
    assert max(map(len, table)) <= 80
    assert sentence.startswith("Worth it if rows are free: ")


# --- known cases ---


def test_a_draft_that_is_the_target_is_drawn_as_deep_as_is_allowed():
    target, _ = pair((3, 4, 10))
    advice = mo.advise(target, target, max_drafts=8)
    assert (advice.scheme, advice.tree.name) == ("one draft", "chain8")
    assert advice.speedup == pytest.approx(9 * 20.0 / (20.0 + 8 * 2.0))
    assert advice.worth_it
    assert advice.speedup_over_single == pytest.approx(1.0)


def test_a_draft_that_knows_nothing_is_not_worth_it():
    rng = np.random.default_rng(5)
    target, draft = (4.0 * rng.standard_normal((6, 3, 2000)) for _ in range(2))
    advice = mo.advise(target, draft, max_drafts=4)
    assert not advice.worth_it
    assert advice.speedup_interval[1] < 1.0
    assert advice.sentence.startswith("Not worth it: ")
    assert f"breaks even at acceptance {2.0 / 20.0:.2f}" in advice.sentence
    assert advice.rows[0].scheme == "none"


def test_a_draft_dearer_than_the_target_is_never_worth_it():
    target, _ = pair((3, 4, 10))
    advice = mo.advise(target, target, draft_ms=25.0, max_drafts=8)
    assert not advice.worth_it
    assert "no acceptance of one draft would break even" in advice.sentence
    assert advice.break_even_acceptance == pytest.approx(1.25)


def test_a_target_that_pays_for_each_row_gains_nothing():
    target, draft = pair(noise=0.3)
    advice = mo.advise(target, draft, rows_ms=lambda rows: 20.0 * rows, max_drafts=6)
    assert not advice.worth_it
    assert advice.crossover == 1
    free = mo.advise(target, target, draft_ms=0.0, rows_ms=lambda n: 20.0 * n, max_drafts=3)
    assert free.speedup == pytest.approx(1.0)


def test_large_batches_have_smaller_trees_and_then_none():
    target, draft = pair(noise=0.7)
    rows_ms = {1: 20.0, 64: 21.0, 256: 60.0}
    alone, many, most = (
        mo.advise(target, draft, rows_ms=rows_ms, max_drafts=8, batch_size=size)
        for size in (1, 64, 256)
    )
    assert alone.worth_it
    assert not most.worth_it
    assert alone.num_drafts > many.num_drafts
    assert alone.speedup > many.speedup > most.speedup
    assert 64 <= alone.crossover <= 256
    assert any("than the 256 measured" in note for note in most.notes)
    by_batch = {point.batch_size: point for point in alone.batches}
    assert by_batch[64].tree == pytest.approx(many.speedup)
    assert by_batch[64].tree >= by_batch[64].chain


def test_parallel_and_looked_up_drafts_cost_what_they_say():
    target, draft = pair(noise=0.5)
    by_level, parallel, free = (
        mo.advise(target, draft, draft_ms=8.0, max_drafts=8, draft_passes=passes)
        for passes in (None, 1, 0)
    )
    assert by_level.tree.depth < parallel.tree.depth
    assert by_level.speedup < parallel.speedup < free.speedup


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_one_token_and_impossible_tokens(dtype):
    only = mo.advise(np.zeros((2, 1), dtype), np.zeros((2, 1), dtype), max_drafts=3)
    assert only.tokens_per_step == pytest.approx(4.0)
    target = np.array([[0.0, -np.inf, 1.0], [-np.inf, 0.0, -np.inf]], dtype)
    draft = np.array([[-np.inf, 0.0, 1.0], [5.0, -np.inf, -np.inf]], dtype)
    advice = mo.advise(target, draft, max_drafts=2)
    assert 0.0 <= advice.tokens_per_step <= 3.0


def test_one_name_of_a_tree_means_one_tree():
    """A plan of fewer levels than the best has another name, which makes the same plan again."""
    target, draft = pair(noise=0.4)
    advice = mo.advise(target, draft, draft_ms=4.0, max_drafts=12, schemes=["with_replacement"])
    table = mo.decoding.place_rates(target, draft, 12, "with_replacement", kind="logits")
    free, cut = (mo.decoding.plan_tree(table, 12, depth).topology for depth in (None, 3))
    assert (free.name, cut.name) == ("planned12", "planned12/3")
    assert free.num_drafts != cut.num_drafts
    asked = parse_topology(cut.name)
    assert (asked.num_nodes, asked.max_depth) == (12, 3)
    for row in advice.rows:
        if row.tree_name.startswith("planned"):
            size, _, depth = row.tree_name.removeprefix("planned").partition("/")
            again = mo.decoding.plan_tree(table, int(size), int(depth) if depth else None)
            assert again.topology.num_drafts == row.tree.num_drafts


def test_rows_sort_by_speedup():
    advice = mo.advise(*pair(), max_drafts=4)
    by_speedup = sorted(advice.rows, key=lambda row: row.speedup, reverse=True)
    assert [row.speedup.mean for row in by_speedup] == sorted(
        (row.speedup.mean for row in advice.rows), reverse=True
    )


def test_one_text_has_no_interval_and_is_judged_by_the_mean():
    target, draft = pair((1, 6, 20))
    advice = mo.advise(target, draft, max_drafts=3)
    assert all(x != x for x in advice.speedup_interval)
    assert advice.worth_it
    assert not mo.advise(target, draft, draft_ms=40.0, max_drafts=3).worth_it
    assert advice.to_dict()["speedup_interval"] is None


def test_files_and_folders_say_the_same_as_arrays(tmp_path):
    target, draft = pair((4, 3, 16))
    flat = [side.reshape(12, 16).astype("f4") for side in (target, draft)]
    texts = np.repeat(np.arange(4), 3)
    (tmp_path / "corpus").mkdir()
    np.savez(tmp_path / "one.npz", target=flat[0], draft=flat[1], sequence=texts)
    for n in range(2):
        half = slice(6 * n, 6 * n + 6)
        path = tmp_path / "corpus" / f"shard-{n}.npz"
        np.savez(path, target=flat[0][half], draft=flat[1][half], sequence=texts[half])
    given = mo.advise(*flat, max_drafts=3, sequence=texts)
    stored = mo.advise(tmp_path / "one.npz", max_drafts=3)
    assert stored.to_dict() == given.to_dict()
    folder = mo.advise(str(tmp_path / "corpus"), max_drafts=3).to_dict()
    order = "rows of a text are taken to follow each other"  # which a corpus is known to keep
    (of_order,) = (x for x in given.notes if x.startswith(order))
    assert folder == {**given.to_dict(), "notes": [x for x in given.notes if x != of_order]}
    with pytest.raises(InvalidInput, match="draft_logits is left out"):
        mo.advise(flat[0])


# --- intervals ---


@pytest.mark.parametrize(("texts", "positions"), [(40, 2), (100, 2), (20, 20)])
def test_intervals_cover_what_texts_that_go_on_bring(texts, positions):
    """Texts with an ease of their own, of which few positions are seen; nominal 95 %.

    Of 30 runs at least 25 cover: fewer would come in one of 300 tests. With the mean beyond ends
    of texts alone, a fifth to a quarter of the intervals at two positions miss the truth.
    """
    costs = StepCosts(20.0, 2.0, {1: 20.0, 9: 22.0})
    long = texts_with_ease(np.random.default_rng(99), 1500, 24)
    inside = np.tile(np.arange(24) < 16, 1500)
    covered = 0
    for seed in range(30):
        rates = texts_with_ease(np.random.default_rng(seed), texts, positions)
        advice = advice_from_rates(rates, costs, ("with_replacement",), 8)
        forecast = TreeForecasts("", long.by_scheme["with_replacement"], long.following)
        accepted = forecast.accepted(advice.tree)[inside].mean()
        truth = (1.0 + accepted) * costs.step(None) / costs.step(advice.tree)
        low, high = advice.speedup_interval
        covered += low <= truth <= high
    assert covered >= 25


def texts_with_ease(rng, texts, positions):
    ease = np.repeat(rng.beta(4, 2, texts), positions)
    one = np.clip(ease + 0.15 * rng.standard_normal(ease.size), 0.02, 0.98)
    alphas = 1 - (1 - one)[:, None] ** np.arange(1, 5) ** 0.7
    numbers = np.repeat(np.arange(texts), positions)
    following = following_positions(numbers.size, numbers)
    return PositionRates({"with_replacement": alphas}, numbers, following)


def test_beyond_a_text_lie_the_mean_and_its_last_position():
    rates = texts_with_ease(np.random.default_rng(0), 3, 2)
    followed = TreeForecasts("", rates.by_scheme["with_replacement"], rates.following)
    first = rates.by_scheme["with_replacement"][:, 0]
    a, b = first[:2]
    mean = first.mean()
    expected = a + a * b + a * b * np.array([b, mean])
    assert followed.lasting(chain(3))[0] == pytest.approx(expected[0])
    assert followed.accepted(chain(3))[0] == pytest.approx(expected[1])
