"""Advice by counts: forecasts against runs of other lengths, decisions with their conditions."""

from __future__ import annotations

import json
import math
import shlex

import numpy as np
import pytest
from support import engine_logs as logs

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput
from mdsd_opt.formats import Run, of_steps
from mdsd_opt.planning import advice_of_run, counts_given
from mdsd_opt.planning.count_forecasts import forecasts

KNOWN = {"target_ms": 20.0, "draft_ms": 2.0, "rows_ms": {1: 20.0, 17: 24.0}}


def row(advice, drafts):
    return next(x for x in advice.rows if x.depth == drafts and x.kind != "as run")


# --- forecasts ---


def test_shorter_chains_are_known_by_position():
    advice = mo.advise_from_counts(by_position=([720, 500, 340], 1000), **KNOWN)
    for k, accepted in ((1, 0.72), (2, 1.22), (3, 1.56)):
        assert row(advice, k).accepted.mean == pytest.approx(accepted)
        assert len({round(x, 9) for x in row(advice, k).by_assumption.values()}) == 1
    # the last rate is .68, that of all tries 1560 / 2220; the line falls by .02 a draft
    further = row(advice, 4).by_assumption
    assert further["like the last"] == pytest.approx(1.56 + 0.34 * 0.68)
    assert further["alike"] == pytest.approx(1.56 + 0.34 * 1560 / 2220)
    assert further["fading"] == pytest.approx(1.56 + 0.34 * 0.66, abs=2e-3)
    assert further["uneven"] == further["like the last"]
    rising = mo.advise_from_counts(by_position=([600, 420, 315], 1000), **KNOWN)  # .6, .7, .75
    assert row(rising, 4).by_assumption["uneven"] == pytest.approx(1.335 + 0.315 * 0.825)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.85, 1.0])
def test_totals_of_drafts_that_are_alike(alpha):
    k, steps = 5, 10_000
    accepted = steps * sum(alpha**i for i in range(1, k + 1))
    counts = counts_given(accepted, steps * k, depth=k)
    for x in forecasts(counts, 12):
        expected = sum(alpha**i for i in range(1, x.depth + 1))
        assert x.by_assumption["alike"] == pytest.approx(expected, abs=1e-9)
        assert x.accepted.low - 1e-9 <= expected <= x.accepted.high + 1e-9
    at_k = forecasts(counts, 12)[k - 1].by_assumption
    assert [*at_k.values()] == pytest.approx([accepted / steps] * 3)


def test_intervals_hold_what_totals_allow():
    """Each step accepts all of its drafts or none, or the first ones are accepted in full."""
    counts = counts_given(1500, 3000, depth=3)
    found = [x.accepted for x in forecasts(counts, 4)]
    assert found[0].low <= 0.5 < 1.0 <= found[0].high
    assert found[3].low <= 1.5 < 2.0 <= found[3].high


def test_totals_have_the_law_of_each_assumption():
    """Steps that differ by a Beta law, and rates that fade, are forecast by their own names."""
    from mdsd_opt.planning.count_forecasts import EVENNESS, FADING

    depth = np.arange(12)
    laws = {
        "uneven": np.cumprod((0.6 * EVENNESS + depth) / (EVENNESS + depth)),
        "fading": np.cumprod(np.maximum(1 - 0.2 * FADING**depth, 0)),
    }
    for name, reached in laws.items():
        counts = counts_given(1e5 * reached[:4].sum(), depth=4, steps=1e5)
        found = [x.by_assumption[name] for x in forecasts(counts, 12)]
        assert found == pytest.approx(np.cumsum(reached), abs=1e-9)


def test_a_run_at_seven_drafts_tells_what_two_and_four_bring():
    rng = np.random.default_rng(1)
    hits = rng.random((4000, 7)) < 0.74
    seven = np.cumprod(hits, axis=1).sum(axis=1)
    costs = {"target_ms": 12.0, "draft_ms": 1.5, "rows_ms": {1: 12.0, 8: 13.0}}
    told = mo.advise_from_counts(seven.sum(), 7 * seven.size, depth=7, **costs)
    for k in (2, 4):
        new = np.cumprod(rng.random((4000, k)) < 0.74, axis=1).sum(axis=1)
        ran = mo.advise_from_counts(new, depth=k, **costs)
        there = row(told, k)
        assert there.speedup.low < row(ran, k).speedup.mean < there.speedup.high
        assert there.by_assumption["alike"] == pytest.approx(new.mean(), rel=0.03)


def test_intervals_cover():
    """Requests with rates of their own; nominal 95 %, and 400 runs have a deviation of 1.1 %."""
    a, b, k, runs = 6.0, 3.0, 4, 400
    depth = np.arange(k)
    truth = np.cumsum(np.cumprod((a + depth) / (a + b + depth)))
    rng = np.random.default_rng(0)
    covered = np.zeros(k)
    for _ in range(runs):
        rates, lengths = rng.beta(a, b, 30), 1 + rng.poisson(12, 30)
        text = np.repeat(np.arange(30), lengths)
        hits = rng.random((text.size, k)) < rates[text, None]
        counts = of_steps(np.cumprod(hits, axis=1).sum(axis=1), k, text)
        chains = [x.accepted for x in forecasts(counts, k)]
        covered += [x.low <= t <= x.high for x, t in zip(chains, truth, strict=True)]
    assert (abs(covered / runs - 0.95) < 0.02 + 0.011).all(), covered / runs


def test_intervals_over_steps_would_be_too_narrow():
    run = logs.a_run(requests=12, seed=5)
    steps = np.concatenate(run.requests)
    texts = np.repeat(np.arange(12), [len(x) for x in run.requests])
    by_text, by_step = (
        forecasts(of_steps(steps, 3, given), 3)[2].accepted for given in (texts, None)
    )
    assert by_text.mean == pytest.approx(by_step.mean)
    assert by_text.high - by_text.low > by_step.high - by_step.low


def test_many_groups_are_added_up():
    rng = np.random.default_rng(2)
    steps = np.cumprod(rng.random((5000, 3)) < 0.7, axis=1).sum(axis=1)
    whole = forecasts(of_steps(steps, 3), 3)[2].accepted
    half = 1.96 * steps.std() / math.sqrt(steps.size)
    assert (whole.high - whole.low) / 2 == pytest.approx(half, rel=0.1)


# --- decisions ---


def test_nothing_is_worth_it_without_costs():
    advice = mo.advise_from_counts(1093, 1717, depth=5)
    assert advice.worth_it is None
    assert advice.sentence.startswith("Nothing is known of costs: ")
    assert "a draft takes less than 0.64 of one" in advice.sentence  # of a pass of the target
    assert advice.best.depth == 5
    assert [x.depth for x in advice.rows] == [5, 4, 3, 2, 1, 0]


def test_free_rows_are_a_condition_and_a_no_needs_none():
    given = {"by_position": ([720, 500, 340], 1000), "target_ms": 20.0}
    free = mo.advise_from_counts(**given, draft_ms=2.0)
    assert free.worth_it is None
    assert free.sentence.startswith("If rows are free: ")
    assert "rows_ms" in free.settled_by
    known = mo.advise_from_counts(**given, draft_ms=2.0, rows_ms=KNOWN["rows_ms"])
    assert known.worth_it is True
    assert known.sentence.startswith("Worth it: ")
    dear = mo.advise_from_counts(**given, draft_ms=30.0)  # however cheap rows are
    assert dear.worth_it is False
    assert dear.sentence.startswith("Not worth it, even if rows are free: ")
    assert dear.depth == 0


def test_one_number_is_a_drafts_cost_at_batch_one():
    given = {"by_position": ([720, 500, 340], 1000), "rows_ms": lambda rows: 20.0 + 0.01 * rows}
    one = mo.advise_from_counts(**given, target_ms=20.0, draft_ms=2.0, batch=32)
    assert one.worth_it is None
    assert "if a draft pass for 32 texts takes 2 ms as well" in one.sentence.lower()
    by_batch = mo.advise_from_counts(**given, target_ms=20.0, draft_ms={1: 2.0, 32: 3.0}, batch=32)
    assert by_batch.worth_it is True
    assert by_batch.costs.draft_pass() == 3.0


def test_parallel_drafts_cost_one_pass():
    given = {"by_position": ([720, 500, 340], 1000), **KNOWN}
    serial, parallel = (mo.advise_from_counts(**given, draft_passes=n) for n in (None, 1))
    assert row(serial, 3).step_ms - row(parallel, 3).step_ms == pytest.approx(2 * 2.0)
    assert parallel.best.depth > serial.best.depth


def test_a_best_length_is_the_fastest():
    advice = mo.advise_from_counts(by_position=([720, 500, 340], 1000), **KNOWN)
    for x in advice.rows[:-1]:
        step = 20.0 + 0.25 * x.depth + 2.0 * x.depth
        if x.depth:
            assert x.step_ms == pytest.approx(step)
        assert x.speedup.mean == pytest.approx((1 + x.accepted.mean) * 20.0 / (x.step_ms or 20.0))
    assert advice.best is advice.rows[0]
    assert sorted(advice.rows, key=lambda x: x.speedup, reverse=True)[0] is advice.best


def test_what_was_measured_beats_what_is_assumed():
    """An engine that stops by confidence: how other lengths would do is not in its counts."""
    advice = mo.advise_from_counts(179, 297, depth=5, steps=149, **KNOWN)
    assert advice.best.kind == "as run"
    assert advice.depth == 5
    assert "always, never fewer" in advice.settled_by
    both = row(advice, 5).by_assumption
    assert both["fading"] == pytest.approx(179 / 149)
    assert both["alike"] > both["fading"]


def test_what_would_settle_it_is_said():
    few = mo.advise_from_counts(
        [1, 0, 2, 0, 1, 0], depth=2, target_ms=20.0, draft_ms=6.0, rows_ms={1: 20.0, 9: 22.0}
    )
    assert few.worth_it is None
    assert few.sentence.startswith("Not settled: ")
    assert "steps instead of 6" in few.settled_by
    wide = mo.advise_from_counts(3183, 5000, depth=5, **KNOWN)
    assert "with acceptance by position" in wide.settled_by


def test_shares_leave_chance_out():
    advice = mo.advise_from_counts(by_position=[0.72, 0.5, 0.34], **KNOWN)
    assert row(advice, 3).accepted.low == pytest.approx(1.56)
    assert "chance left out" in advice.sentence
    with_steps = mo.advise_from_counts(by_position=[0.72, 0.5, 0.34], steps=100, **KNOWN)
    assert row(with_steps, 3).accepted.low < 1.5


# --- what training would bring, and flags ---


def test_the_acceptance_that_a_speedup_takes():
    advice = mo.advise_from_counts(by_position=([720, 500, 340], 1000), speedup=2.2, **KNOWN)
    alpha = float(advice.wanted.split("acceptance of ")[1].split()[0])
    best = {
        a: max(
            (1 + sum(a**i for i in range(1, k + 1))) * 20.0 / (20.0 + 2.25 * k)
            for k in range(1, 17)
        )
        for a in (alpha - 0.01, alpha + 0.01)
    }
    assert best[alpha - 0.01] < 2.2 < best[alpha + 0.01]
    assert advice.wanted.endswith("the first draft has 0.72.")
    never = mo.advise_from_counts(by_position=([720], 1000), speedup=30.0, **KNOWN)
    assert never.wanted.startswith("No acceptance gives a speed-up of 30 at these costs")


@pytest.mark.parametrize("name", ["policies", "lengths_by_batch", "num_drafts"])
def test_what_left_says_what_to_take(name):
    with pytest.raises(AttributeError, match=f"{name} left CountAdvice: "):
        getattr(mo.advise_from_counts(5, 9, depth=3), name)


def test_flags_start_engines_with_the_advised_chain():
    advice = mo.advise_from_counts(by_position=([720, 500, 340], 1000), **KNOWN)
    flags = {name: shlex.split(line) for name, line in advice.flags.items()}
    assert json.loads(flags["vLLM"][1]) == {"num_speculative_tokens": advice.depth}
    steps, drafts = (flags["SGLang"][1 + flags["SGLang"].index(f"--speculative-{x}")]
                     for x in ("num-steps", "num-draft-tokens"))  # fmt: skip
    assert (int(steps), int(drafts)) == (advice.depth, advice.depth + 1)
    assert flags["llama.cpp"][:2] == ["--spec-draft-n-max", str(advice.depth)]
    dear = mo.advise_from_counts(by_position=([720, 500, 340], 1000), target_ms=20.0, draft_ms=30.0)
    assert dear.flags == {}


# --- what is given ---


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "give accepted, by_position, or a file"),
        ({"accepted": 5}, "give depth"),
        ({"accepted": 5, "depth": 3}, "give drafted, or the number of steps"),
        ({"accepted": 9, "drafted": 5, "depth": 3}, "accepted is 9, but drafted is 5"),
        ({"accepted": 0, "drafted": 0, "depth": 3}, "no step with a draft"),
        ({"accepted": 1, "drafted": 90, "depth": 3, "steps": 5}, "but steps x depth is 15"),
        ({"accepted": math.nan, "drafted": 9, "depth": 3}, "accepted is nan"),
        ({"accepted": "x" * 3}, "does not exist"),
        ({"accepted": [1, 2]}, "give depth"),
        ({"accepted": [1, 4], "depth": 3}, "integers from 0 to depth"),
        ({"accepted": [1, 2], "depth": 3, "sequence": [1]}, "sequence names 1 steps"),
        ({"by_position": ([5, 6], 10)}, r"by_position \[1\] is 6, but by_position \[0\] is 5"),
        ({"by_position": ([5, 4], 3)}, r"by_position \[0\] is 5, but steps is 3"),
        ({"by_position": [50, 40]}, "give \\(counts, number of steps\\)"),
        ({"by_position": ([5, 4], 10), "depth": 3}, "2 positions, and depth is 3"),
        ({"accepted": 5, "drafted": 9, "depth": 3, "target_ms": 20}, "without draft_ms"),
        ({"accepted": 5, "drafted": 9, "depth": 3, "draft_ms": 2}, "without target_ms"),
        ({"accepted": 5, "drafted": 9, "depth": 3, "speedup": 2}, "depends on costs"),
        ({"accepted": 5, "drafted": 9, "depth": 3, "speedup": 0, **KNOWN}, "speedup is 0"),
        ({"accepted": 5, "drafted": 9, "depth": 3, "max_drafts": 0}, "max_drafts is 0"),
        ({"accepted": 5, "drafted": 9, "depth": 3, "batch": 0}, "batch_size is 0"),
        ({"accepted": 5, "drafted": 9, "depth": 2.5}, "depth is 2.5: give an integer"),
        ({"accepted": 5, "drafted": 9, "depth": math.nan}, "depth is nan: give a number"),
        ({"accepted": [1, 2], "depth": [3, 2.5]}, "integers from 0 to depth"),
        ({"accepted": [], "depth": 3}, "no step with a draft"),
        ({"accepted": 5, "drafted": 9, "depth": 3, "max_drafts": 3.5}, "max_drafts is 3.5: give"),
        ({"accepted": 5, "drafted": 9, "depth": 3, **KNOWN, "batch": 1.5}, "batch_size is 1.5"),
        ({"accepted": 5, "drafted": 9, "depth": 3, **KNOWN, "draft_passes": 0.5}, "passes is 0.5"),
        (
            {"accepted": 5, "drafted": 9, "depth": 3, "draft_ms": 2, "target_ms": {1: 9, "a": 3}},
            "target_ms is a table of texts from 1 on",
        ),
        ({"accepted": 5, "drafted": 9, "depth": 3, "confidence": 1}, "confidence is 1"),
        (
            {"accepted": 5, "drafted": 9, "depth": 3, "target_ms": 20, "draft_ms": {0: 1}},
            "draft_ms is a table of texts",
        ),
        (
            {"accepted": 5, "drafted": 9, "depth": 3, "target_ms": 20,
             "draft_ms": lambda batch: -1.0},
            "takes -1.0 ms",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(given, told):
    with pytest.raises((InvalidInput, ValueError), match=told):
        mo.advise_from_counts(**given)


def test_the_printed_advice_begins_with_the_decision_and_has_the_best_five():
    advice = mo.advise_from_counts(by_position=([720, 500, 340], 1000), **KNOWN)
    lines = str(advice).splitlines()
    assert lines[0] == advice.sentence
    table = lines[-len(advice.rows[:5]) :]
    assert [line.split()[0] for line in table] == [x.name for x in advice.rows[:5]]
    assert max(map(len, table)) <= 80


def test_what_may_turn_a_decision_is_noted_first():
    advice = mo.advise_from_counts(1440, 3000, depth=3, target_ms=20.0, draft_ms=2.0)
    assert advice.notes[0] == "taken in favour of drafts: rows are free"


def test_one_cost_alone_is_judged_in_one_place():
    """It takes the place of the run's own, and rows without the other are an error."""
    counts = {"accepted": 5, "drafted": 9, "depth": 3}
    with pytest.raises(InvalidInput, match="costs without draft_ms"):
        mo.advise_from_counts(**counts, target_ms=20, rows_ms={1: 20, 8: 22})
    run = Run(counts_given(**counts), (), ())
    with pytest.raises(InvalidInput, match="verify_ms goes with target_ms"):
        advice_of_run(run, verify_ms=1.0)
    with pytest.raises(InvalidInput, match="target_ms is nan"):
        advice_of_run(run, target_ms=float("nan"))
    with pytest.raises(InvalidInput, match="costs without target_ms"):
        advice_of_run(run, draft_ms=2.0)
    assert advice_of_run(run).costs is None
    assert advice_of_run(run, draft_passes=0, target_ms=20.0).costs.draft_pass() == 0.0
