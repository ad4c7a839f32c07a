"""Decisions from sums over bins, while the laws stay in torch: lossless, whatever the bins."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from support.tables import output_law, target_law, trees

from mdsd_opt import (
    GreedyDrafts,
    Sampling,
    TransportProblem,
    WithoutReplacement,
    WithReplacement,
    softmax,
)  # fmt: skip
from mdsd_opt.decoding import DEVICE_RULES, Node, get_rule, k_ary, require_device_rule, rule_names
from mdsd_opt.errors import InvalidInput
from mdsd_opt.prefix_search import bins, race_sums_of_row
from mdsd_opt.prefix_search.bins import raced_groups
from mdsd_opt.trees import (
    BinnedDrafts,
    BinnedLaw,
    PromisedToken,
    Topology,
    bin_tables,
    integer_weights,
    settle,
    token_ids,
    undrafted_table,
)
from mdsd_opt.trees import device_laws as laws
from mdsd_opt.trees.device_laws import UNIT, LinearPlan, draw, draw_distinct, sums_on_device
from mdsd_opt.verifiers import get

UNEVEN = Topology({(): 3, (0,): 2, (1,): 1, (0, 0): 1}, "uneven")


class Pair:
    """Random integer weights of target and draft after every text."""

    def __init__(self, seed, size, num_bins, near=0.7):
        self.seed, self.vocab_size, self.num_bins, self.near = seed, size, num_bins, near
        self.weights, self.law = cache(self._weights), cache(self._law)

    def _weights(self, text):
        rng = np.random.default_rng([self.seed, *[token + 1 for token in text]])
        draft = 2.0 * rng.standard_normal(self.vocab_size)
        target = draft + self.near * rng.standard_normal(self.vocab_size)
        if self.vocab_size > 2:
            draft[rng.integers(self.vocab_size)] = -np.inf  # never drafted
            if rng.random() < 0.5:
                target[rng.integers(self.vocab_size)] = -np.inf
        target[rng.integers(self.vocab_size)] += 1e-3
        return [integer_weights(torch.tensor(x[None])) for x in (target, draft)]

    def __call__(self, text):
        return self.law(tuple(text))

    def _law(self, text):
        target, draft = self.weights(text)
        every = torch.arange(self.vocab_size)[None]
        sizes = [self.vocab_size]
        (table,) = bin_tables(target, draft, every, sizes, num_bins=self.num_bins)
        return BinnedLaw.target_of(table)

    def drafts(self, text):
        return self.weights(tuple(text))[1][0]


class Drafts(BinnedDrafts):
    """Drafts that also know all tuples."""

    scheme = WithReplacement

    def tuple_law(self):
        q = self.weights.double().numpy()
        return self.scheme(q / q.sum(), self.num_drafts).tuple_law()


class Distinct(Drafts):
    """Without replacement: the tables of a position know how many drafts there are."""

    scheme = WithoutReplacement

    def __init__(self, weights, num_drafts):
        super().__init__(weights, num_drafts, replaced=False)

    def passed(self, target, draws, values):
        known = target.table
        (table,) = bin_tables(
            known.target()[None], [self.weights], torch.as_tensor(draws)[None],
            [self.num_drafts], False, known.q.size,
        )  # fmt: skip
        return super().passed(BinnedLaw(table, target.a, target.c), draws, values)


SCHEMES = {"with_replacement": Drafts, "without_replacement": Distinct}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", DEVICE_RULES)
@pytest.mark.parametrize("num_bins", [3, 2048])
@pytest.mark.parametrize(
    ("size", "topology"),
    [(5, k_ary(2, 1)), (5, k_ary(3, 1)), (3, k_ary(2, 2)), (3, UNEVEN), (3, k_ary(1, 3)),
     (2, k_ary(2, 2)), (1, k_ary(2, 2)), (4, k_ary(4, 1))],
    ids=lambda x: getattr(x, "name", x),
)  # fmt: skip
def test_the_law_of_whole_texts_is_the_targets(name, num_bins, size, topology, scheme):
    """One token is never drafted: without replacement, some of these draw all others."""
    pair = Pair(3, size, num_bins)
    law, accepted = output_law(get_rule(name), pair, pair.drafts, topology, SCHEMES[scheme])
    np.testing.assert_allclose(law, target_law(pair, topology.depth + 1), rtol=0, atol=2e-15)
    assert accepted > 0.3


@pytest.mark.parametrize("near", [0.0, 0.05, 3.0])
@pytest.mark.parametrize(
    ("size", "topology"), [(6, k_ary(4, 1)), (4, Topology({(): 2, (0,): 2}, "2-2"))]
)
def test_distinct_drafts_near_the_target_and_far_from_it(size, topology, near, monkeypatch):
    """By the sums that a device makes, too."""
    pair = Pair(4, size, 64, near)
    found = []
    for summed in (laws.summed_on_cpu, laws.summed_on_device):
        monkeypatch.setattr(laws, "summed_on_cpu", summed)
        rule = get_rule("level_sequential")
        law, accepted = output_law(rule, pair, pair.drafts, topology, Distinct)
        np.testing.assert_allclose(law, target_law(pair, topology.depth + 1), rtol=0, atol=2e-15)
        found.append(accepted)
    assert found[0] == pytest.approx(found[1], abs=1e-12)


def test_distinct_drafts_of_which_one_is_almost_certain():
    """The second is drawn from what the first leaves, which is next to nothing of the whole."""

    class Peaked(Pair):
        def _weights(self, text):
            target, draft = super()._weights(text)
            draft = torch.tensor([[2.0**52, 3.0, 1.0, 7.0, 2.0]], dtype=torch.float64)
            return target, draft

    for seed in range(4):
        pair = Peaked(seed, 5, 64, near=3.0)
        for count in (2, 3):
            rule = get_rule("level_sequential")
            law, _ = output_law(rule, pair, pair.drafts, k_ary(count, 1), Distinct)
            np.testing.assert_allclose(law, target_law(pair, 2), rtol=0, atol=4e-15)


def _off(scheme, name="level_sequential"):
    """How far the law is from the target's, with three drafts of five tokens."""
    pair = Pair(3, 5, 16)
    rule = get_rule(name)
    law, _ = output_law(rule, pair, pair.drafts, k_ary(3, 1), scheme)
    return np.abs(law - target_law(pair, 2)).max()


@pytest.mark.parametrize("name", DEVICE_RULES)
@pytest.mark.parametrize("scheme", SCHEMES.values())
def test_the_enumeration_finds_a_wrong_residual(scheme, name):
    class Wrong(scheme):
        def passed(self, target, draws, values):
            masses, kept = super().passed(target, draws, values)
            return masses, BinnedLaw(target.table, 0.99 * kept.a, kept.c)

    assert _off(scheme, name) < 1e-15
    assert _off(Wrong, name) > 1e-6


@pytest.mark.parametrize("scheme", SCHEMES.values())
def test_a_walk_down_takes_the_ways_that_it_lists(scheme):
    """`optimal` decides at the nodes on its way only."""
    pair = Pair(5, 3, 8)
    rule = get_rule("optimal")
    made = [root for root, _ in trees(pair.drafts, k_ary(2, 2), scheme)]
    root = max(made, key=lambda tree: len(tree.walk()))
    for node in root.walk():
        node.target = pair(node.tokens)
    law = {}
    for way in rule.stops(root):
        for token, chance in enumerate(np.asarray(way.law)):
            if chance > 0.0:
                text = (way.node.tokens, token)
                law[text] = law.get(text, 0.0) + way.probability * chance
    rng, runs = np.random.default_rng(0), 2000
    outcomes = [rule.verify(root, rng) for _ in range(runs)]
    found = Counter((one.tokens[:-1], one.tokens[-1]) for one in outcomes)
    assert set(found) <= set(law)
    assert all(one.num_accepted == len(one.tokens) - 1 for one in outcomes)
    expected = runs * np.array([*law.values()])
    counts = np.array([found[text] for text in law])
    assert chisquare(counts, expected * runs / expected.sum()).pvalue > 1e-5


def test_every_rule_decides_on_the_device_or_says_why_not():
    for name in rule_names():
        if name in DEVICE_RULES:
            require_device_rule(WithoutReplacement, get_rule(name))
            continue
        with pytest.raises(InvalidInput, match=r"on the host only: .*traversal_hull") as raised:
            require_device_rule(WithReplacement, get_rule(name))
        assert "\n" not in str(raised.value)
    with pytest.raises(InvalidInput, match="with_replacement and without_replacement"):
        require_device_rule(GreedyDrafts, get_rule("optimal"))


def test_the_enumeration_finds_a_wrong_race(monkeypatch):
    right = bins.raced_groups
    monkeypatch.setattr(bins, "raced_groups", bins.replaced_groups)
    assert _off(Distinct) > 1e-3
    monkeypatch.setattr(bins, "raced_groups", lambda table, count: right(table, count - 1))
    assert _off(Distinct) > 1e-3


def test_the_enumeration_finds_drafts_of_the_wrong_kind_within_blocks(monkeypatch):
    assert _off(Distinct) < 1e-15
    right = laws.valued_rule
    monkeypatch.setattr(
        laws, "valued_rule", lambda is_replaced, *given, **more: right(True, *given, **more)
    )
    assert _off(Distinct) > 1e-6


def rows(seed, count, size, near=1.0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    draft = 2.5 * torch.randn(count, size, generator=generator)
    target = draft + near * torch.randn(count, size, generator=generator)
    return target.to(dtype), draft.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"top_k": 7},
        {"top_p": 0.8},
        {"min_p": 0.05},
        {"top_k": 50, "top_p": 0.9, "min_p": 0.01},
        {"top_k": 50, "top_p": 0.9, "min_p": 0.01, "joint": True},
    ],
)
@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
def test_weights_are_integers_and_softmax(dtype, filters, temperature):
    logits = rows(0, 3, 400, dtype=dtype)[0]
    weights = integer_weights(logits, Sampling(temperature, **filters))
    assert torch.equal(weights, weights.round())
    totals = weights.double().sum(-1, keepdim=True)
    assert (totals < 2.0**53).all()
    expected = softmax(logits.double().numpy(), temperature, **filters)
    np.testing.assert_allclose((weights.double() / totals).numpy(), expected, rtol=2e-5, atol=1e-15)
    assert ((weights > 0).numpy() == (expected * UNIT > 1.0)).all()


def test_tables_are_exact_and_the_same_everywhere():
    target, draft = (integer_weights(x) for x in rows(1, 4, 5000))
    draft[:, ::7] = 0.0
    draws, counts = torch.tensor([[1, 2, 1], [3, 0, 0], [4, 5, 6], [8, 9, 0]]), [3, 1, 3, 2]
    for num_bins in (3, 64, 2048):
        found_tables = bin_tables(target, draft, draws, counts, num_bins=num_bins)
        sums, ends, bins = sums_on_device(target, draft, num_bins)
        for i, table in enumerate(found_tables):
            # a ratio at the edge of bins may be rounded into either
            moved = (bins[i] - table.bins).abs()
            assert moved.max() <= 1
            assert moved.sum() <= 5
            totals = sums[i].sum(0).numpy()
            for side, masses, total in zip(
                (target, draft), (table.p, table.q), totals, strict=True
            ):
                added = np.bincount(table.bins.numpy(), side[i].numpy(), num_bins)
                np.testing.assert_array_equal(added / total, masses)
            exact = [sum(int(x) for x in side[i].tolist()) for side in (target, draft)]
            assert [int(x) for x in totals] == exact
            assert table.draws == tuple(draws[i, : counts[i]].tolist())
            assert set(table.at) == set(table.draws)
            for token, (p, q, place, weight) in table.at.items():
                assert weight == float(draft[i, token])
                assert p == float(target[i, token]) / totals[0]
                assert q == float(draft[i, token]) / totals[1]
                assert place == int(table.bins[token])
            drafted = draft[i] > 0
            assert (table.bins[~drafted] == num_bins - 1).all()
            ratio = (target[i].double() / totals[0] / (draft[i].double() / totals[1]))[drafted]
            found = table.bins[drafted].long().numpy()
            t = target[i] / (target[i] + 2 * draft[i])
            for place in set(bins[i].tolist()) - {num_bins - 1}:
                inside = t[bins[i] == place]
                assert ends[i, place].tolist() == [inside.min(), inside.max()]
            assert (table.lowest[found] <= ratio.numpy()).all()
            assert (ratio.numpy() <= table.highest[found]).all()


def test_what_goes_on_is_possible_for_every_token():
    """I <= min(r p, rho q), in float32 and close to the edges of bins: exactly, by Fractions."""
    target, draft = (integer_weights(x) for x in rows(2, 1, 600, near=0.01))
    totals = [sum(int(n) for n in side[0].tolist()) for side in (target, draft)]
    for num_bins, demand in ((3, 1.0), (64, 0.7), (2048, 1.0)):
        every = torch.arange(600)[None]
        (table,) = bin_tables(target, draft, every, [600], num_bins=num_bins)
        made = LinearPlan(table, demand, 3)
        for token, (_, _, place, _) in table.at.items():
            p = Fraction(int(target[0, token]), totals[0])
            q = Fraction(int(draft[0, token]), totals[1])
            kept = Fraction(float(made.u[place])) * p + Fraction(float(made.v[place])) * q
            assert kept <= Fraction(demand) * p * (1 + Fraction(1, 10**14))
            assert kept <= Fraction(float(made.ratio[place])) * q * (1 + Fraction(1, 10**14))


@pytest.mark.parametrize("near", [1.0, 0.05, 0.0])
@pytest.mark.parametrize("num_drafts", [1, 2, 4])
@pytest.mark.parametrize("scheme", [WithReplacement, WithoutReplacement])
def test_the_gap_holds(near, num_drafts, scheme):
    target, draft = (integer_weights(x) for x in rows(3, 6, 3000, near))
    draws = torch.arange(num_drafts).repeat(6, 1)
    replaced = scheme is WithReplacement
    found = bin_tables(target, draft, draws, [num_drafts] * 6, replaced)
    for i, table in enumerate(found):
        p, q = (np.asarray(x[i].double() / x[i].double().sum()) for x in (target, draft))
        best = get("optimal").acceptance_rate(TransportProblem(p, scheme(q, num_drafts)))
        made = LinearPlan(table, 1.0, num_drafts, replaced)
        rate = made.passed
        assert rate <= best + 1e-12 <= made.most + 2e-12
        assert best - rate <= made.gap + 1e-12
        assert made.gap < (7e-4 if near else 1e-5)


def test_draws_follow_the_weights_and_take_no_impossible_token():
    weights = torch.tensor([[0.0, 3.0, 0.0, 0.0, 1.0, 0.0]])
    uniforms = torch.tensor([[0.0, 0.7499, 0.75, 0.999, np.nextafter(1.0, 0.0)]]).double()
    assert draw(weights, uniforms).tolist() == [[1, 1, 4, 4, 4]]
    law = BinnedLaw.target_of(undrafted_table(lambda: weights[0]))
    np.testing.assert_array_equal(np.asarray(law), weights[0].numpy() / 4)
    assert law.draw(0.8) == 4
    table = bin_tables(weights, weights, torch.tensor([[1]]), [1])[0]
    rest = BinnedLaw.target_of(table) - 0.5 * BinnedLaw.target_of(table)
    assert rest.sum() == pytest.approx(0.5, abs=1e-15)
    assert rest.draw(np.nextafter(1.0, 0.0)) == 4


def test_distinct_draws_have_exactly_their_law():
    """Uniforms in the middle of equal parts, of which each draw takes whole ones."""
    weights = torch.tensor([[3.0, 0.0, 1.0, 2.0, 0.0, 6.0]])
    first, second = ((torch.arange(n, dtype=torch.float64) + 0.5) / n for n in (12, 990))
    uniforms = torch.cartesian_prod(first, second)
    one, two = draw_distinct(weights.expand(len(uniforms), -1), uniforms).T
    seen = torch.bincount(6 * one + two, minlength=36).view(6, 6)
    expected = 990.0 * weights.T * weights / (12.0 - weights.T)
    assert torch.equal(seen, expected.fill_diagonal_(0.0).round().long())


def test_promises_that_are_kept_make_the_tree_that_was_drawn():
    root, drafts = Node((), ()), BinnedDrafts(torch.ones(9), 3)

    made = []

    def promised(numbers):
        draws = np.empty(3, dtype=object)
        draws[:] = [PromisedToken(torch.tensor(number)) for number in numbers]
        made.extend(draws)
        return draws

    first, second, third = root.add_drafts(drafts, promised([4, 4, 7]))
    first.add_drafts(drafts, promised([1, -1, 1]))
    second.add_drafts(drafts, promised([2, 3, 5]))
    third.add_drafts(drafts, promised([8, 1, -1]))
    assert len(root.walk()) == 13
    for token in made:
        assert int(token) == -1
        token.keep(int(token.tensor))
    settle(root)
    assert root.draws.tolist() == [4, 4, 7]
    assert [node.tokens for node in root.walk()] == [(), (4,), (7,), (4, 1), (7, 8), (7, 1)]
    assert root.children[4] is first
    assert root.children[7] is third
    assert third.draws.tolist() == [8, 1, -1]


def test_nothing_on_the_device_waits_for_a_number():
    """Tensors of the meta device have none to wait for."""
    logits = torch.empty(3, 300, dtype=torch.bfloat16, device="meta")
    weights = integer_weights(logits, Sampling(0.7, top_k=50, top_p=0.9, min_p=0.01))
    uniforms = torch.empty(3, 4, dtype=torch.float64, device="meta")
    for drawn in (draw(weights, uniforms), draw_distinct(weights, uniforms)):
        assert drawn.shape == (3, 4)
        assert token_ids([[7, PromisedToken(drawn[0, 1])]] * 2, "meta").shape == (2, 2)
    sums, ends, bins = sums_on_device(weights, weights, 64)
    assert sums.shape == ends.shape == (3, 64, 2)
    shapes = [x.shape for x in laws.race_sums_on_device(weights, bins, [4, 4, 2], 64)]
    assert shapes == [(3, 3), (3, 64, 5), (3, 2, 300)]
    table = replace(
        undrafted_table(lambda: weights[0]), draft=weights[0], bins=bins[0], p=np.ones(64)
    )
    rest = BinnedLaw(table, np.ones(64), np.zeros(64)).masses()
    assert draw(rest[None], uniforms[:1, :1]).shape == (1, 1)


def test_distinct_draws_end_with_the_tokens():
    weights = torch.tensor([[0.0, 3.0, 0.0, 1.0], [0.0, 0.0, 5.0, 0.0]])
    uniforms = torch.tensor([[0.9, 0.9, 0.0, 0.5], [0.0, 0.5, 0.9, 0.1]], dtype=torch.float64)
    assert draw_distinct(weights, uniforms).tolist() == [[3, 1, -1, -1], [2, -1, -1, -1]]


def test_a_device_sums_races_as_the_cpu_does():
    target, draft = (integer_weights(1.5 * x) for x in rows(5, 3, 20_000))
    draft[1, 500:] = 0.0
    counts = [4, 2, 3]
    _, _, bins = sums_on_device(target, draft, 256)
    sums = laws.race_sums_on_device(draft, bins, counts, 256)
    for i, count in enumerate(counts):
        found = laws.race_sums_of(max(counts), *(x[i].numpy() for x in sums))
        other = race_sums_of_row(draft[i].numpy(), bins[i].numpy(), count, 256)
        weights = sorted(map(int, draft[i].tolist()), reverse=True)
        assert found.slowest == other.slowest == sum(weights[count - 1 :])
        assert found.others == other.others == sum(weights[1:])
        assert found.unit == other.unit
        heavies = [sorted(x.chains[2][x.chains[2] > 0].tolist()) for x in (found, other)]
        assert heavies[0] == heavies[1] == sorted(float(w) for w in weights if w > found.unit)
        np.testing.assert_allclose(found.moments[:, 2:7], other.moments[:, 2:7], atol=1e-9)
        for race in (found, other):
            walked = []
            for place, token in enumerate(race.chains[0].tolist()):
                while token >= 0:
                    walked.append((race.chains[2][token], place))
                    token = race.chains[1][token]
            heavy = draft[i] > race.unit
            assert sorted(walked) == sorted(
                zip(draft[i][heavy].tolist(), bins[i][heavy].tolist(), strict=True)
            )


def test_containment_of_many_tokens_is_that_of_the_scheme():
    target, draft = (integer_weights(1.5 * x) for x in rows(6, 1, 5000))
    q = draft[0].double().numpy() / float(draft.double().sum())
    for count in (2, 3, 8):
        (table,) = bin_tables(target, draft, torch.arange(count)[None], [count], False)
        groups = raced_groups(table, count)
        places = groups.place[table.bins.numpy()]
        order = np.argsort(places, kind="stable")
        curve = WithoutReplacement(q, count).prefix_containment(order)
        ends = np.searchsorted(places[order], np.arange(-1, groups.q.size), side="right")
        np.testing.assert_allclose(groups.contained, curve[ends], rtol=0, atol=1e-12)
        weights = draft[0].double().numpy()
        above = [weights[places >= place].sum() for place in range(groups.q.size + 1)]
        assert groups.above.tolist() == above


def test_ways_to_end_agree_with_the_rules_that_see_all_tokens():
    """Enough bins for all tokens to be alone: the exact rules' own decisions."""
    target, draft = (integer_weights(x) for x in rows(4, 1, 12))
    drafts = BinnedDrafts(draft[0], 3)
    draws = np.array([3, 5, 3])
    (table,) = bin_tables(target, draft, torch.as_tensor(draws)[None], [3])
    p, q = (x[0].double().numpy() / float(x.double().sum()) for x in (target, draft))
    for name in DEVICE_RULES:
        found = []
        for law, made in (
            (BinnedLaw.target_of(table), drafts), (p, WithReplacement(q, 3)),
        ):  # fmt: skip
            root = Node((), ())
            root.target = law
            root.add_drafts(made, draws)
            for child in root.children.values():
                child.target = law
            found.append(get_rule(name).expected_accepted(root))
        assert found[0] == pytest.approx(found[1], abs=2e-3)
