"""E-processes: their mean, their bounds, and what they say of right and wrong engines."""

from __future__ import annotations

import itertools
import math
import os

import numpy as np
import pytest
from support.server_runs import Toy, true_distance
from support.toy_engines import HELD_OUT, RIGHT, SMALL, WRONG, Chain, plain

import mdsd_opt as mo
from mdsd_opt.errors import InvalidDistribution, InvalidInput
from mdsd_opt.servers import Bets, Law, Shown, detectable_distance
from mdsd_opt.servers.laws import distance, law_of_logprobs
from mdsd_opt.servers.wealth import NUM_BETS, STAKES, bet_of_previous, bets_of_draft, bets_of_law

LAWS = {
    "plain": Law([4, 7, 1], [0.5, 0.3, 0.2], 0.0),
    "with a rest": Law([4, 7], [0.5, 0.3], 0.2),
    "open": Law([4, 7], [0.6, 0.4], None),
    "certain": Law([3], [1.0], 0.0),
    "tied": Law(range(9), [1 / 9] * 9),
    "peaked": Law(range(40), [0.999, *[0.001 / 39] * 39]),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_every_bet_has_mean_zero_and_never_ruins(law):
    draft = Law([7, 4, 20], [0.6, 0.3, 0.1])
    tables = [bets_of_law(law)]
    if (bets := bets_of_draft(law, draft)) is not None:
        tables.append(bets.table)
    if (table := bet_of_previous(law, draft)) is not None:
        tables.append(table)
    for gains, swings, favoured in tables:
        assert gains @ law.p == pytest.approx(0.0, abs=1e-12)
        assert (1.0 + STAKES[-1] * gains > 0.0).all()
        assert swings == pytest.approx(gains.max(1) - gains.min(1))
        assert favoured == pytest.approx((gains > 0) @ law.p)


@pytest.mark.parametrize("tau", [0.0, 0.05])
def test_the_mean_e_value_of_two_tokens_is_one_at_most(tau):
    """Summed over both tokens; the uniforms within cells are drawn, at another seed each time."""
    laws = [Law([0, 1, 2], [0.6, 0.3, 0.1]), Law([2, 0], [0.7, 0.2], 0.1)]
    draft = Law([0, 2], [0.2, 0.8])
    # as far from the laws as the tolerance allows, where most is won
    sent = [
        np.array([0.6 - tau, 0.3, 0.1 + tau]),
        np.array([0.7 - tau, 0.2, 0.1 + tau]),
    ]
    tokens = [[0, 1, 2], [2, 0, 9]]
    means = []
    for seed in range(120):
        total = 0.0
        for (a, first), (b, second) in itertools.product(*map(enumerate, tokens)):
            evidence = Bets(seed)
            evidence.new_text()
            evidence.add(first, laws[0], Shown(1, 0, 5, 1, laws[1], draft, 0.3))
            evidence.add(second, laws[1], Shown(1, 1, first, 0, laws[0], draft, 0.9))
            total += sent[0][a] * sent[1][b] * math.exp(evidence.log_e(tau))
        means.append(total)
    assert np.mean(means) <= 1.0 + 4 * np.std(means) / len(means) ** 0.5
    if tau == 0.0:  # a martingale
        assert np.mean(means) == pytest.approx(1.0, abs=5 * np.std(means) / len(means) ** 0.5)


def test_the_number_of_bets_is_counted():
    evidence = Bets(0)
    assert len(evidence.parts(0.0)) == NUM_BETS
    assert evidence.log_e(0.0) == pytest.approx(0.0)


def test_evidence_falls_with_the_tolerance_and_the_bound_inverts_it():
    evidence, law = Bets(0), Law([0, 1], [0.5, 0.5])
    for n in range(400):
        evidence.add(0 if n % 4 else 1, law, Shown(0))  # three of four
    values = [evidence.log_e(tau) for tau in (0.0, 0.01, 0.1, 0.3)]
    assert values == sorted(values, reverse=True)
    low = evidence.distance_at_least(0.01)
    assert 0.1 < low < 0.25
    assert evidence.log_e(low) == pytest.approx(math.log(100.0), abs=1e-3)


def test_impossible_tokens_accuse_beyond_the_tolerance_alone():
    law = Law([0, 1], [0.5, 0.5], 0.0)
    rare, many = Bets(0), Bets(0)
    rng = np.random.default_rng(0)
    for n in range(4_000):
        token = int(rng.integers(2))
        rare.add(9 if n % 1_000 == 999 else token, law, Shown(0))
        many.add(9 if n % 20 == 19 else token, law, Shown(0))
    assert rare.num_impossible == 4
    assert rare.log10_e(0.002) < 2.0
    assert many.log10_e(0.002) > 6.0
    assert many.distance() == pytest.approx(0.05, abs=0.005)


def test_the_bound_and_the_estimate_do_not_exceed_the_distance():
    for seed in range(3):
        rng, law = np.random.default_rng(seed), Law(range(4), [0.4, 0.3, 0.2, 0.1])
        sent = [0.5, 0.3, 0.15, 0.05]
        evidence = Bets(seed)
        for n in range(3_000):
            if n % 8 == 0:
                evidence.new_text()
            evidence.add(int(rng.choice(4, p=sent)), law, Shown(n))
        assert evidence.distance_at_least(0.01) <= 0.1
        assert evidence.distance() == pytest.approx(0.1, abs=0.03)


def test_temperature_and_likeliest_token_have_intervals():
    rng, logits = np.random.default_rng(0), np.random.default_rng(1).normal(size=12) * 2
    evidence = Bets(0)
    law = Law.of(mo.softmax(logits))
    sent = mo.softmax(logits, temperature=0.8)
    for n in range(6_000):
        evidence.add(int(rng.choice(12, p=sent)), law, Shown(n))
    estimate, (low, high) = evidence.temperature(2.6)
    assert low < 0.8 < high < 0.9
    assert low < estimate < high
    excess, (least, most) = evidence.top_excess(2.6)
    assert least < sent.max() - law.p[0] < most
    assert excess > 0.03


def test_what_would_have_been_found_is_found():
    """Mixtures with the likeliest token at the size that a report names, at its power."""
    toy = Toy()
    size = detectable_distance(3_000, 0.002, 1e-6, 1.2816)  # with a probability of .9
    weight = size / float(np.mean(1.0 - toy.pair.p.max(1)))

    def engine(pair, state, rng):
        if rng.random() < weight:
            return [int(pair.p[state].argmax())], 1, 1
        return [pair.of_target(state, rng)], 1, 0

    found = [toy.audit(engine, 3_000, seed, with_control=False).finding for seed in range(3)]
    assert found.count("no control") >= 2


class TestLaw:
    def test_cells_in_falling_order_and_a_rest(self):
        law = Law([5, 2], [0.2, 0.5])
        assert law.ids.tolist() == [2, 5]
        assert law.p == pytest.approx([0.5, 0.2, 0.3])
        assert (law.cell(2), law.cell(5), law.cell(77)) == (0, 1, 2)

    def test_the_impossible_has_no_cell(self):
        assert Law([1], [1.0]).cell(2) is None
        assert Law.of([0.5, 0.0, 0.5]).cell(1) is None

    def test_onto_the_cells_of_another(self):
        law, other = Law([1, 2], [0.5, 0.3], 0.2), Law([2, 9], [0.6, 0.4])
        assert law.onto(other) == pytest.approx([0.0, 0.6, 0.4])
        assert Law([1], [1.0]).onto(Law([2], [1.0])) is None

    def test_distance_on_what_both_list(self):
        assert distance(Law([1, 2], [0.6, 0.4]), Law([2, 1], [0.6, 0.4])) == pytest.approx(0.2)
        assert distance(Law([1], [0.6], 0.4), Law([1, 3], [0.5, 0.5])) == pytest.approx(0.1)

    def test_record_and_back(self):
        for law in LAWS.values():
            again = Law.from_record(law.to_record())
            assert again.p == pytest.approx(law.p)
            assert (again.ids.tolist(), again.is_open) == (law.ids.tolist(), law.is_open)

    @pytest.mark.parametrize(
        ("ids", "p"),
        [([1, 1], [0.5, 0.5]), ([1], [-1.0]), ([1], [math.nan]), ([1], [1.5]), ([], [])],
    )
    def test_no_law(self, ids, p):
        with pytest.raises(InvalidDistribution):
            Law(ids, p)

    def test_raw_log_probabilities_and_a_sampler(self):
        logits = np.random.default_rng(0).normal(size=50) * 3
        raw = mo.softmax(logits)
        order = np.argsort(-raw)
        listed = {int(i): math.log(raw[i]) for i in order[:20]}
        for options in (
            {},
            {"top_k": 5},
            {"temperature": 0.5, "top_k": 7},
            {"min_p": 0.2},
            {"temperature": 2.0, "min_p": 0.1},
            {"top_p": 0.8},
            {"top_p": 0.85, "min_p": 0.09},
            {"top_k": 4, "top_p": 0.8, "min_p": 0.09},
            {"top_k": 4, "top_p": 0.8, "joint": True},
            {"top_k": 9, "top_p": 0.85, "min_p": 0.09, "joint": True},
        ):
            law = law_of_logprobs(listed, mo.Sampling(**options), True)
            exact = mo.softmax(logits, **options)
            held = law.ids.size
            assert law.p[:held] == pytest.approx(exact[law.ids], abs=1e-9), options
        law = law_of_logprobs(listed, mo.Sampling(temperature=0.5), True)
        exact = mo.softmax(logits, temperature=0.5)[order[:20]]
        assert law.is_open
        assert law.p == pytest.approx(exact / exact.sum())
        assert law_of_logprobs({1: -0.69, 2: -0.70}, mo.Sampling(temperature=0.0), True) is None
        with pytest.raises(InvalidDistribution, match="top_p"):
            law_of_logprobs(listed, mo.Sampling(temperature=0.5, top_p=0.9), True)
        joint = mo.Sampling(temperature=0.5, top_k=7, top_p=0.9, joint=True)
        with pytest.raises(InvalidDistribution, match=r"after its sampler$"):
            law_of_logprobs(listed, joint, True)

    def test_the_token_that_was_added_to_a_list_is_dropped(self):
        listed = {1: math.log(0.5), 2: math.log(0.3), 8: math.log(0.01)}
        law = law_of_logprobs(listed, mo.Sampling(), True, 2)
        assert law.ids.tolist() == [1, 2]
        assert law.cell(8) == 2


# --- engines

QUICK = ("residual is p", "residual of the row before", "a filter is lost", "temperature 0.7 for 1")


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_engine_is_not_accused(name):
    report = Toy().audit(RIGHT[name], 1_000, 3, with_control=False)
    assert report.verdict_class == "no deviation"
    assert report.log10_e < 3.0


@pytest.mark.parametrize("name", QUICK)
def test_a_wrong_engine_is_lossy(name):
    report = Toy.of(name).audit(WRONG[name], 1_000, 4)
    assert (report.verdict_class, report.finding) == ("lossy", "tokens deviate")
    assert report.later.at_least <= true_distance(Toy.of(name).pair, WRONG[name]) + 0.02
    assert "LOSSY" in report.verdict


def test_without_a_control_nothing_is_lossy():
    report = Toy().audit(WRONG["residual is p"], 1_000, 4, with_control=False)
    assert (report.verdict_class, report.finding) == ("not judged", "no control")
    assert not report.lossless


@pytest.mark.skipif("SERVER_TABLES" not in os.environ, reason="some minutes: make test-servers")
class TestWholeTables:
    """`make test-servers` runs them."""

    @pytest.mark.parametrize("run", range(60))
    def test_no_right_run_is_accused(self, run):
        name = list(RIGHT)[run % len(RIGHT)]
        report = Toy().audit(RIGHT[name], 8_000, 2_000 + run, run % 2 == 0, with_control=False)
        assert report.verdict_class == "no deviation", name

    @pytest.mark.parametrize("name", WRONG)
    def test_every_wrong_engine_above_a_tenth_is_lossy(self, name):
        toy = Toy.of(name)
        assert true_distance(toy.pair, WRONG[name]) > 0.1
        for seed in range(3):
            assert toy.audit(WRONG[name], 3_000, seed).verdict_class == "lossy"

    @pytest.mark.parametrize("name", {**SMALL, **HELD_OUT})
    def test_bounds_hold_on_what_bets_were_not_chosen_for(self, name):
        toy, engine = Toy.of(name), {**SMALL, **HELD_OUT}[name]
        true = true_distance(toy.pair, engine)
        report = toy.audit(engine, 3_000, 5)
        assert report.later.at_least <= true + 0.02
        assert report.verdict_class == "lossy" or true < 0.1


def test_noise_within_the_tolerance_is_not_accused():
    """An engine whose own laws are .01 away at each state, as of another arithmetic."""
    toy = Toy()
    rng = np.random.default_rng(0)
    other = toy.pair.p * np.exp(0.04 * rng.normal(size=toy.pair.p.shape))
    other /= other.sum(1, keepdims=True)
    away = float(np.abs(other - toy.pair.p).sum(1).max() / 2)
    assert 0.01 < away < 0.05

    def engine(pair, state, rng):
        return [int(rng.choice(pair.size, p=other[state]))], 1, 1

    report = toy.audit(engine, 3_000, 1, with_control=False, tolerance=away)
    assert report.verdict_class == "no deviation"


def test_a_chain_of_one_token_has_nothing_to_bet_on():
    report = mo.audit_tokens([[{3: 1.0}] * 5] * 4, [[3] * 5] * 4, drafted=8)
    assert (report.verdict_class, report.finding) == ("not judged", "no choice")
    assert report.log10_e < 0.5


def test_plain_texts_where_nothing_was_drafted_are_not_judged():
    report = Toy().audit(plain, 700, 1)
    assert (report.verdict_class, report.finding) == ("not judged", "nothing drafted")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"false_alarm": 0.0}, "false_alarm"),
        ({"tolerance": -1.0}, "tolerance"),
        *(({"num_first": x}, "num_first") for x in (-1, math.nan)),
        *(({"drafted": x}, "drafted") for x in (-1, math.nan)),
        *(({"drafted": 10, "accepted": x}, "accepted") for x in (20, -1)),
        ({"accepted": 20}, "accepted"),
        ({"logprobs": "cooked"}, "raw or processed"),
    ],
)
def test_bad_options(options, told):
    with pytest.raises(InvalidInput, match=told):
        mo.audit_tokens([[0.5, 0.5]], [0], **options)


def test_a_chain_counts_its_drafts():
    assert Chain(depth=1)(Toy().pair, 0, np.random.default_rng(0))[1] == 1
