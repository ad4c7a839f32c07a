"""Generators that follow a script, the edges of the uniforms, and laws found by driving."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from support.moved_clock import Clock, moved_clock  # noqa: F401
from wrong_verifiers import faultless

import mdsd_opt as mo
from mdsd_opt.auditing import served
from mdsd_opt.auditing.randomness.sources import DOUBLE, GRIDS, EdgeSource
from mdsd_opt.auditing.tape import Tail, Tape
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import random_checks

TARGET = np.array([0.4, 0.3, 0.2, 0.1])
DRAFT = np.array([0.1, 0.2, 0.3, 0.4])
PROBLEM = mo.TransportProblem(TARGET, mo.WithReplacement(DRAFT, 2))


def scripted(*values: int) -> Tape:
    """A tape whose first uniforms are these multiples of 2**-53."""
    tape = Tape()
    tape.restart(values, Tail(0))
    return tape


def test_a_tape_makes_a_real_generator() -> None:
    tape = scripted(0, 2**51, DOUBLE.size - 1)
    with served(tape) as serving:
        assert isinstance(serving.rng, np.random.Generator)
        drawn = serving.rng.random(4)
    assert drawn[:3].tolist() == [0.0, 0.25, 1 - 2.0**-53]
    assert 0 < drawn[3] < 1
    assert len(tape.seen) == 4
    assert not tape.trouble


def test_scripted_uniforms_reach_every_kind_of_draw() -> None:
    def drawn(fraction: float, draw: Any) -> Any:
        with served(scripted(int(fraction * 2.0**53))) as serving:
            return draw(serving.rng)

    assert drawn(0.45, lambda rng: rng.choice(4, p=TARGET)) == 1
    assert drawn(0.5, lambda rng: rng.uniform(2, 3)) == 2.5
    assert drawn(2.0**-30, lambda rng: rng.random(dtype=np.float32)) == 0.5  # of 24 bits
    assert drawn(0.0, lambda rng: rng.standard_exponential()) == 0.0
    tape = scripted(0)
    with served(tape) as serving:
        serving.rng.standard_normal()
    assert tape.trouble.startswith("it draws raw bits")


def test_edges_are_those_of_the_type() -> None:
    source = EdgeSource(np.random.default_rng(0))
    with served(source) as serving:
        rng = serving.rng
        for upper, end in ((False, 0.0), (True, 1 - 2.0**-24)):
            source.restart(1, upper)
            assert 0 < rng.random() < 1
            assert rng.random(dtype=np.float32) == end
            assert source.rarity == 24
            assert source.drawn == 2
        source.restart(2, upper=True)
        rng.random(2)
        assert source.rarity is None  # it was not reached


@pytest.mark.parametrize(
    ("name", "highest", "zeros"),
    [("float32", 24, 1), ("float16", 11, 2**12), ("bfloat16", 8, 2**15)],
)
def test_grids_round_as_torch_does(name: str, highest: int, zeros: int) -> None:
    """bfloat16: 0 once in 512 draws, as what rounds up to 1 becomes 0."""
    grid = GRIDS[name]
    values = grid.values(np.arange(grid.size))
    assert values.max() == grid.highest == 1 - 2.0**-highest
    assert abs(int((values == 0).sum()) - zeros) <= 1 + (zeros > 1)
    assert np.log2(grid.size / (values == 0).sum()) == pytest.approx(grid.rarity, abs=0.01)
    if name == "float16":
        assert (values == values.astype(np.float16)).all()


def test_a_driven_law_is_that_of_the_rule() -> None:
    report = mo.audit(faultless, PROBLEM, 0, 2_000, method="driven")
    assert report.clean
    assert report.p_value is None
    assert report.total_variation < 1e-12
    # recursive rejection sampling accepts 1 - (1 - r_1)(1 - r_2) with replacement
    residual = np.maximum(TARGET - DRAFT, 0)
    r1 = np.minimum(TARGET, DRAFT).sum()
    r2 = np.minimum(residual / residual.sum(), DRAFT).sum()
    assert report.acceptance_rate == pytest.approx(1 - (1 - r1) * (1 - r2), abs=1e-12)


def test_a_driven_law_shows_a_bias_that_no_sample_could() -> None:
    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        if rng.random() < 1e-7:
            return 3
        return faultless(target, draft, drafts, rng)

    sampled = mo.audit(verify, PROBLEM, 0, 2_000, method="sampling")
    driven = mo.audit(verify, PROBLEM, 0, 2_000, method="driven")
    assert sampled.verdict_class == "no deviation"
    assert sampled.detectable_bias > 1e-7
    assert not driven.clean
    assert driven.total_variation == pytest.approx(0.9e-7, rel=1e-3)


def inverted(p: Any, x: Any) -> int:
    return int(np.searchsorted(np.cumsum(p)[:-1], x, side="right"))


@pytest.mark.parametrize(
    ("verify", "reason"),
    [
        (lambda p, q, x, rng: inverted(p, (rng.random() + rng.random()) % 1), "uniforms drawn"),
        (lambda p, q, x, rng: inverted(p, rng.integers(1 << 40) / 2.0**40), "raw bits"),
        (lambda p, q, x, rng: inverted(p, rng.random(16)[3]), "more than 12 uniforms"),
    ],
)
def test_what_cannot_be_driven_is_sampled_and_a_note_says_why(verify: Any, reason: str) -> None:
    report = mo.audit(verify, PROBLEM, 0, 2_000, method="driven", max_calls=1_000_000)
    assert report.method == "sampling"
    assert report.num_trials == 2_000
    assert report.num_checks is None
    assert report.verdict_class == "no deviation"
    assert 0.05 < report.detectable_bias < 0.2
    assert not report.lossless
    assert len(report.notes) == 1
    assert report.notes[0].startswith("not driven, and sampled: ")
    assert reason in report.notes[0]
    assert dict(report.rows())["note"] == report.notes[0]
    assert mo.audit(verify, PROBLEM, 0, 2_000, method="sampling").notes == ()


@pytest.mark.parametrize(
    ("verify", "reason"),
    [
        (lambda p, q, x, rng: int(rng.random() < rng.random()), "depend on uniforms drawn before"),
        (lambda p, q, x, rng: int(rng.integers(2)), "raw bits"),
        (lambda p, q, x, rng: int(np.argmin(rng.random(16))) % 2, "more than 12 uniforms"),
        (lambda p, q, x, rng: 9, "outside 0..3"),
    ],
)
def test_what_is_wrong_and_cannot_be_driven_is_found_all_the_same(verify: Any, reason: str) -> None:
    report = mo.audit(verify, PROBLEM, 0, 2_000, method="driven")
    assert report.verdict_class == "lossy"
    assert report.method == "sampling"
    assert reason in report.notes[0]


def test_what_fails_on_every_call_is_refused() -> None:
    with pytest.raises(InvalidInput, match="fails on every call: it raised ZeroDivisionError"):
        mo.audit(lambda p, q, x, rng: 1 // 0, PROBLEM, 0, 100, method="driven")


def test_what_takes_too_long_to_drive_is_sampled_and_a_note_says_so(clock: Clock) -> None:
    calls = []

    def slow(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> int:
        calls.append(0)
        clock.now += 1.0
        return inverted(p, rng.random())

    report = mo.audit(slow, PROBLEM, 0, 100, method="driven", seconds=20, edge_probes=0)
    assert report.verdict_class == "no deviation"
    assert report.method == "sampling"
    assert len(calls) < 400
    assert report.notes[0] == (
        "the time was up: its law was not driven, and is sampled; all of it needs about 4,900 "
        "calls, 98.0 minutes at the speed of this function: give seconds=5880"
    )
    assert not report.lossless


WITH_ZERO = mo.TransportProblem([0.6, 0.4, 0.0], mo.WithReplacement([0.2, 0.3, 0.5], 2))


def accepts_at_zero(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> int:
    for x in drafts:
        if rng.random() * q[x] <= p[x]:
            return int(x)
        p = np.maximum(p - q, 0)
        p = p / p.sum()
    return int(rng.choice(3, p=p))


def races_into_nan(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> int:
    """0 / 0 is NaN, which argmin takes for the smallest."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return int(np.argmin(-np.log1p(-rng.random(3)) / p))


def overruns_the_table(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> int:
    """The cumulative sum ends just below one, so the largest uniform finds no token."""
    reached = np.cumsum(p) * (1 - 1e-15)
    return int(np.arange(3)[np.searchsorted(reached, rng.random(), side="right")])


@pytest.mark.parametrize(
    ("verify", "kind", "message"),
    [
        (accepts_at_zero, "impossible token", "token 2"),
        (races_into_nan, "impossible token", "token 2"),
        (overruns_the_table, "exception", "IndexError"),
        (
            lambda p, q, x, rng: 1 // rng.random() and int(rng.choice(3, p=p)),
            "exception",
            "draw 0 (uniform) equal to 0, once in 2**53 draws, raised ZeroDivisionError",
        ),
    ],
)
def test_edges_are_found(verify: Any, kind: str, message: str) -> None:
    problem = WITH_ZERO
    report = mo.audit(verify, problem, 0, 2_000, method="sampling")
    assert not report.clean
    assert report.num_violations == 0  # no sample shows it
    assert report.p_value is not None
    assert report.p_value > 1e-3
    assert report.edge_violations[0].kind == kind
    assert message in report.edge_violations[0].message
    assert report.verdict_class == "edge"
    assert report.edge_mass == 2.0**-53
    assert "EDGE ONLY of probability 1.1e-16" in report.verdict


def test_a_strict_comparison_passes_the_edges_and_probes_can_be_limited() -> None:
    audit = partial(mo.audit, problem=WITH_ZERO, rng=0, num_trials=2_000, method="sampling")
    report = audit(faultless)
    assert report.clean
    assert report.num_edge_probes > 50
    assert audit(faultless, edge_probes=7).num_edge_probes == 7
    assert audit(accepts_at_zero, edge_probes=0).clean


def test_a_driven_law_says_up_to_how_many_checks() -> None:
    """A step that none of the checks met stays hidden: nothing was proved."""
    report = mo.audit(faultless, PROBLEM, 0, 2_000, method="driven")
    assert report.law_proven_lossless is None
    assert report.num_checks is not None
    assert report.num_checks >= 16 * 200  # of each of the 16 draft tuples
    biased = mo.audit(
        lambda *_: 0, PROBLEM, 0, 100, method="driven", edge_probes=0, driven_checks=5
    )
    shares = PROBLEM.drafts.tuple_law()[1]
    checks = sum(random_checks(shares, 5, 0.99)[0]) + 16 * 4  # with four corners of the one leaf
    assert biased.num_checks == checks
    assert biased.verdict.startswith(f"NOT LOSSLESS: exact up to {checks} random checks")
    for shown in (report, biased):
        up_to = f"exact up to {shown.num_checks:,} random checks"
        assert up_to in shown.verdict
        assert up_to in dict(shown.rows())["total variation"]
        assert "proven" not in str(shown)


CHAIN = mo.TransportProblem([0.4, 0.3, 0.3], mo.WithReplacement([0.2, 0.3, 0.5], 1))


@pytest.mark.parametrize(("above", "distance"), [(0.994, 1.2e-3), (0.99995, 1e-5)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_step_that_shows_only_at_the_end_of_a_later_draw_is_found(
    above: float, distance: float, seed: int
) -> None:
    """With four fixed continuations in the middle of the range it was called lossless."""

    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        x, first, second = int(drafts[0]), rng.random(), rng.random()
        if second > above and first > 0.5:
            return 0
        if first * draft[x] < target[x]:
            return x
        left = np.maximum(target - draft, 0)
        return int(np.searchsorted(np.cumsum(left / left.sum()), rng.random(), side="right"))

    report = mo.audit(verify, CHAIN, seed, 200, method="driven", edge_probes=0)
    assert not report.clean
    assert report.total_variation == pytest.approx(distance, rel=1e-9)


def test_a_counterexample_becomes_a_continuation() -> None:
    """The step of the first draw shows only in a window of the second."""

    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        first, second = rng.random(), rng.random()
        if 0.31 < second < 0.33:
            return 0 if first < 0.4567 else 1
        return int(np.searchsorted(np.cumsum(target), second, side="right"))

    # each of the three tuples misses the window in one of 2e5 audits
    report = mo.audit(verify, CHAIN, 0, 200, method="driven", edge_probes=0, driven_checks=600)
    assert not report.clean
    # the window belonged to token 0
    assert report.total_variation == pytest.approx(0.02 * (1 - 0.4567), rel=1e-9)


@pytest.mark.parametrize("start", [0.32, 0.511, 0.93])
def test_a_window_between_the_points_of_the_grid_is_found(start: float) -> None:
    """Both sides of it give the same; a random check falls into it."""

    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        first = rng.random()
        if start < first < start + 0.02:
            return 0
        return int(np.searchsorted(np.cumsum(target), rng.random(), side="right"))

    report = mo.audit(verify, CHAIN, 0, 200, method="driven", edge_probes=0)
    assert not report.clean
    assert report.total_variation == pytest.approx(0.02 * 0.6, rel=1e-9)


def test_failures_are_outcomes_with_their_mass() -> None:
    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        first = rng.random()
        if first < 0.11:
            raise KeyError(first)
        if first > 0.9:
            return 7
        return int(np.searchsorted(np.cumsum(target), rng.random(), side="right"))

    report = mo.audit(verify, CHAIN, 0, 300, method="driven", edge_probes=0)
    assert not report.clean
    assert report.total_variation == pytest.approx(0.21, abs=1e-9)
    shown = " ".join(violation.message for violation in report.violations)
    assert "raised KeyError" in shown
    assert "probability 0.11 given these drafts" in shown
    assert "token 7, outside 0..2: probability 0.1 given" in shown


def test_an_impossible_token_comes_with_its_probability() -> None:
    report = mo.audit(accepts_at_zero, WITH_ZERO, 0, 300, method="driven", edge_probes=0)
    assert not report.clean
    assert report.total_variation < 1e-12
    message = report.violations[0].message
    assert "token 2 has probability zero, yet comes out with drafts [2, " in message
    assert "draw 0 (uniform) equal to 0, once in 2**53 draws: probability" in message
    # 2 as the first draft, or as the second after a rejected 1
    left = np.maximum(np.array([0.6, 0.4]) - [0.2, 0.3], 0)
    refused = 0.2 * max(0, 1 - 0.6 / 0.2) + 0.3 * max(0, 1 - 0.4 / 0.3) + 0.5
    mass = (0.5 + refused * 0.5) * 2.0**-53
    assert left.sum() == pytest.approx(0.5)
    assert f"probability {mass:.3g} in all" in message
