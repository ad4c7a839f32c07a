"""Decisions from sums over bins, while the laws stay in torch: lossless, whatever the bins."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from support.tables import output_law

from mdsd_opt import TransportProblem, WithReplacement, softmax
from mdsd_opt.decoding import Node, get_rule, k_ary
from mdsd_opt.decoding.topology import Topology
from mdsd_opt.device_laws.laws import BinnedDrafts, BinnedLaw
from mdsd_opt.device_laws.plan import BinPlan
from mdsd_opt.device_laws.tables import bin_tables, sums_on_device, undrafted_table
from mdsd_opt.device_laws.weights import UNIT, draw, integer_weights
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
        (table,) = bin_tables(target, draft, [range(self.vocab_size)], self.num_bins)
        return BinnedLaw.target_of(table)

    def drafts(self, text):
        return self.weights(tuple(text))[1][0]


class Drafts(BinnedDrafts):
    """Drafts that also know all tuples."""

    def tuple_law(self):
        q = self.weights.double().numpy()
        return WithReplacement(q / q.sum(), self.num_drafts).tuple_law()


@pytest.mark.parametrize("name", ["traversal_hull", "level_sequential"])
@pytest.mark.parametrize("num_bins", [3, 16, 2048])
@pytest.mark.parametrize(
    ("size", "topology"),
    [(5, k_ary(2, 1)), (4, k_ary(3, 1)), (3, k_ary(2, 2)), (3, UNEVEN), (3, k_ary(1, 3)),
     (2, k_ary(2, 2)), (1, k_ary(2, 2))],
    ids=lambda x: getattr(x, "name", x),
)  # fmt: skip
def test_the_law_of_whole_texts_is_the_targets(name, num_bins, size, topology):
    pair = Pair(3, size, num_bins)
    law, accepted = output_law(get_rule(name), pair, pair.drafts, topology, Drafts)
    np.testing.assert_allclose(law, text_law(pair, topology.depth + 1), rtol=0, atol=2e-15)
    assert accepted > 0.3


def text_law(pair, length):
    law = np.ones((pair.vocab_size,) * length)
    for text in product(range(pair.vocab_size), repeat=length):
        law[text] = np.prod([np.asarray(pair(text[:n]))[text[n]] for n in range(length)])
    return law


def test_the_enumeration_finds_a_wrong_law():
    pair = Pair(3, 4, 16)

    class Wrong(Drafts):
        def passed(self, target, draws, values):
            masses, kept = super().passed(target, draws, values)
            return masses, BinnedLaw(target.table, kept.a, 0.9 * kept.c)

    law, _ = output_law(get_rule("level_sequential"), pair, pair.drafts, k_ary(2, 1), Wrong)
    assert np.abs(law - text_law(pair, 2)).max() > 1e-6


def rows(seed, count, size, near=1.0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    draft = 2.5 * torch.randn(count, size, generator=generator)
    target = draft + near * torch.randn(count, size, generator=generator)
    return target.to(dtype), draft.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "filters",
    [{}, {"top_k": 7}, {"top_p": 0.8}, {"min_p": 0.05}, {"top_k": 50, "top_p": 0.9, "min_p": 0.01}],
)
@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
def test_weights_are_integers_and_softmax(dtype, filters, temperature):
    logits = rows(0, 3, 400, dtype=dtype)[0]
    weights = integer_weights(logits, temperature, **filters)
    assert torch.equal(weights, weights.round())
    totals = weights.double().sum(-1, keepdim=True)
    assert (totals < 2.0**53).all()
    expected = softmax(logits.double().numpy(), temperature, **filters)
    np.testing.assert_allclose((weights.double() / totals).numpy(), expected, rtol=2e-5, atol=1e-15)
    assert ((weights > 0).numpy() == (expected * UNIT > 1.0)).all()


def test_tables_are_exact_and_the_same_everywhere():
    target, draft = (integer_weights(x) for x in rows(1, 4, 5000))
    draft[:, ::7] = 0.0
    draws = [[1, 2, 1], [3], [4, 5, 6], [8, 9]]
    for num_bins in (3, 64, 2048):
        tables = bin_tables(target, draft, draws, num_bins)
        sums, ends, bins = sums_on_device(target, draft, num_bins)
        for i, table in enumerate(tables):
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
            assert set(table.at) == set(draws[i])
            for token, (p, q, place) in table.at.items():
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
        (table,) = bin_tables(target, draft, [range(600)], num_bins)
        plan = BinPlan(table, demand, 3)
        for token, (_, _, place) in table.at.items():
            p = Fraction(int(target[0, token]), totals[0])
            q = Fraction(int(draft[0, token]), totals[1])
            kept = Fraction(float(plan.u[place])) * p + Fraction(float(plan.v[place])) * q
            assert kept <= Fraction(demand) * p * (1 + Fraction(1, 10**14))
            assert kept <= Fraction(float(plan._ratio[place])) * q * (1 + Fraction(1, 10**14))


@pytest.mark.parametrize("near", [1.0, 0.05, 0.0])
@pytest.mark.parametrize("num_drafts", [1, 2, 4])
def test_the_gap_holds(near, num_drafts):
    target, draft = (integer_weights(x) for x in rows(3, 6, 3000, near))
    tables = bin_tables(target, draft, [[0]] * 6)
    for i, table in enumerate(tables):
        p, q = (np.asarray(x[i].double() / x[i].double().sum()) for x in (target, draft))
        best = get("optimal").acceptance_rate(TransportProblem(p, WithReplacement(q, num_drafts)))
        plan = BinPlan(table, 1.0, num_drafts)
        rate = float(plan.u @ table.p + plan.v @ table.q)
        assert rate <= best + 1e-12 <= plan.most + 2e-12
        assert best - rate <= plan.gap + 1e-12
        assert plan.gap < (5e-4 if near else 1e-5)


def test_draws_follow_the_weights_and_take_no_impossible_token():
    weights = torch.tensor([0.0, 3.0, 0.0, 0.0, 1.0, 0.0])
    uniforms = np.array([0.0, 0.7499, 0.75, 0.999, np.nextafter(1.0, 0.0)])
    assert draw(weights, uniforms).tolist() == [1, 1, 4, 4, 4]
    law = BinnedLaw.target_of(undrafted_table(lambda: weights))
    np.testing.assert_array_equal(np.asarray(law), weights.numpy() / 4)
    assert law.draw(0.8) == 4
    table = bin_tables(weights[None], weights[None], [[1]])[0]
    rest = BinnedLaw.target_of(table) - 0.5 * BinnedLaw.target_of(table)
    assert rest.sum() == pytest.approx(0.5, abs=1e-15)
    assert rest.draw(np.nextafter(1.0, 0.0)) == 4


def test_ways_to_end_agree_with_the_rules_that_see_all_tokens():
    """Enough bins for all tokens to be alone: the exact rules' own decisions."""
    target, draft = (integer_weights(x) for x in rows(4, 1, 12))
    drafts = BinnedDrafts(draft[0], 3)
    draws = np.array([3, 5, 3])
    (table,) = bin_tables(target, draft, [draws.tolist()], 2048)
    p, q = (x[0].double().numpy() / float(x.double().sum()) for x in (target, draft))
    for name in ("traversal_hull", "level_sequential"):
        found = []
        for law, made in (
            (BinnedLaw.target_of(table), drafts), (p, WithReplacement(q, 3)),
        ):  # fmt: skip
            root = Node((), (), target=law)
            root.add_drafts(made, draws)
            for child in root.children.values():
                child.target = law
            found.append(get_rule(name).expected_accepted(root))
        assert found[0] == pytest.approx(found[1], abs=2e-3)
