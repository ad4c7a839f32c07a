"""Options are checked once; a limit that is reached is named, and takes "lossless" away."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from operator import le
from typing import Any

import numpy as np
import pytest
from support.chain_verifiers import LOSSY, limit_laws, standard
from support.moved_clock import Clock, moved_clock  # noqa: F401
from support.reused_states import verifier

import mdsd_opt as mo
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.decoding import get_rule
from mdsd_opt.errors import InvalidInput, MdsdError, ProblemTooLarge, UnknownName
from mdsd_opt.evidence import Options
from mdsd_opt.evidence.settings import MAX_CALLS

WRONG_OPTIONS: list[tuple[dict[str, Any], type[MdsdError], str]] = [
    ({"method": "enumeration"}, UnknownName, "method"),
    ({"method": None}, UnknownName, "method"),
    *(
        ({name: value}, InvalidInput, f"{name} is {value!r}: give a number between 0 and 1")
        for name in ("false_alarm", "power", "confidence")
        for value in (0, 1, -0.5, 1.5, math.nan, "half", None, 0.5j)
    ),
    *(
        ({name: value}, InvalidInput, f"{name} is {value!r}: give an integer of at least 1")
        for name in ("num_trials", "max_calls")
        for value in (0, -1, 2.5, "many", None)
    ),
    *(
        ({"seconds": value}, InvalidInput, f"seconds is {value!r}: give a positive number")
        for value in (0, -1.0, math.nan, "long", None)
    ),
    ({"tolerance": -1.0}, InvalidInput, "tolerance"),
    ({"tolerance": math.nan}, InvalidInput, "tolerance"),
    ({"num_trials": 200_000_001}, ProblemTooLarge, "take fewer trials, probes or drafts"),
    ({"num_trials": 60_000_000, "num_drafts": 4}, ProblemTooLarge, "of K=4 drafts"),
]


@pytest.mark.parametrize(("options", "error", "message"), WRONG_OPTIONS)
def test_options_out_of_range_are_refused(
    options: dict[str, Any], error: type[MdsdError], message: str
) -> None:
    with pytest.raises(error) as told:
        Options(**{"num_trials": 10} | options)
    assert message in str(told.value)


def test_options_in_range_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(num_trials=10, max_calls=1, tolerance=0.0, false_alarm=1e-6, power=0.99)
    assert options.method == "auto"
    of_numpy = {"num_trials": np.int64(10), "false_alarm": np.float64(1e-6)}
    assert replace(options, **of_numpy, power=np.float64(0.99)) == options
    least = math.nextafter(0.0, 1.0)
    assert Options(num_trials=10, seconds=least).seconds == least
    assert Options(num_trials=10).max_calls == MAX_CALLS
    assert Options(num_trials=10).deadline() == math.inf
    with monkeypatch.context() as clock:
        clock.setattr(time, "perf_counter", lambda: 100.0)
        assert Options(num_trials=10, seconds=5).deadline() == 105.0
    assert Options(num_trials=200_000_000, edge_probes=0).num_trials == 200_000_000
    with pytest.raises(TypeError):
        Options()  # type: ignore[call-arg]  # how much is to be done is always said


PROBLEM = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 1))
LAWS = TableModel(3, 6), TableModel(3, 7)
ROWS = np.array([[0.5, 0.5]] * 8)

#: Audits with few calls, by what each of them is given.
AUDITS: dict[str, Any] = {
    "audit": lambda **options: mo.audit("rrs", PROBLEM, 0, **options),
    "audit_chain": lambda **options: mo.audit_chain(standard, 0, **options),
    "audit_drafts": lambda **options: mo.audit_drafts(PROBLEM.drafts, PROBLEM.drafts, 0, **options),
    "audit_portfolio": lambda **options: mo.audit_portfolio("rrs", 0, **options),
    "audit_text": lambda **options: mo.audit_text(lambda p, q: [0], 0, 1, **options),
    "audit_trace": lambda **options: mo.audit_trace(
        ROWS, None, np.empty((8, 0), int), np.arange(8) % 2, **options
    ),
    "audit_tree": lambda **options: mo.audit_tree(
        get_rule("rrs").verify, *LAWS, "chain1", 0, **options
    ),
}


@pytest.mark.parametrize(
    ("option", "value"),
    [("num_trials", 0), ("seconds", 0), ("max_calls", 0), ("false_alarm", 1), ("power", 0)],
)
@pytest.mark.parametrize("name", sorted(AUDITS.keys() - {"audit_drafts", "audit_trace"}))
def test_every_audit_checks_them(name: str, option: str, value: int) -> None:
    given = "num_texts" if (name, option) == ("audit_text", "num_trials") else option
    with pytest.raises(InvalidInput, match=f"{option} is"):
        AUDITS[name](**{given: value})


@pytest.mark.usefixtures("few_laws")
@pytest.mark.parametrize("name", AUDITS)
def test_options_of_all_audits_and_keywords_are_the_same(name: str) -> None:
    audit = AUDITS[name]
    rates = {"false_alarm": 1e-4, "power": 0.9, "confidence": 0.95, "detect": 0.9}
    rest = mo.AuditOptions(num_trials=300, max_calls=2_000, edge_probes=8, driven_checks=5)
    by_options, by_keywords = (
        audit(options=replace(rest, **rates)),
        audit(options=rest, **rates),
    )
    told = by_options.to_dict()
    for timed in ("seconds", "tried"):
        told.pop(timed, None)
    assert {key: by_keywords.to_dict()[key] for key in told} == told
    assert (by_options.power, by_options.detect) == (0.9, 0.9)
    with pytest.raises(TypeError, match="unexpected keyword argument 'calls'"):
        audit(calls=3)
    with pytest.raises(InvalidInput, match="options is 3"):
        audit(options=3)


@pytest.mark.usefixtures("few_laws")
def test_the_bias_that_may_be_hidden_decides_about_a_pass() -> None:
    found = AUDITS["audit"](num_trials=500, method="sampling")
    assert found.clean
    assert found.answer() == "TOO WEAK"
    assert found.answer(detect=0.9) == "PASS"
    assert AUDITS["audit"](num_trials=500, method="sampling", detect=0.9).answer() == "PASS"


@pytest.fixture
def few_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_laws(monkeypatch, "random", "tied", "reversed")


#: From best to worst of what may be said of a function that is right; the last one where no time is
#: left to look again at what chance made odd.
CLASSES = ("lossless", "no deviation", "not settled")


@pytest.mark.usefixtures("few_laws")
@pytest.mark.parametrize("method", ["auto", "driven", "sampling"])
def test_a_limit_of_time_is_named_and_never_makes_a_verdict_better(
    method: str, clock: Clock
) -> None:
    options: dict[str, Any] = {"rng": 0, "num_trials": 400, "driven_checks": 5, "method": method}
    report = mo.audit_chain(clock.slow(standard, 0.02), seconds=10, **options)
    assert report.verdict_class in CLASSES[1:]
    assert report.detectable_bias > 0.2
    assert not report.lossless
    assert any(
        note.startswith("the time was up: 0 of 3 small laws were driven") for note in report.notes
    )
    assert sum(one.report.num_trials for one in report.tried) < 800
    whole = mo.audit_chain(standard, **options)
    assert CLASSES.index(whole.verdict_class) <= CLASSES.index(report.verdict_class)
    assert not any("the time was up" in note for note in whole.notes)
    wrong = mo.audit_chain(clock.slow(LOSSY["target resampled"], 0.02), seconds=10, **options)
    assert not wrong.lossless


def from_target(root: Any, rng: np.random.Generator) -> list[int]:
    return [int(rng.choice(root.target.size, p=root.target))]


def test_a_limit_of_time_is_named_on_trees(clock: Clock) -> None:
    slow = clock.slow(from_target, 0.05)
    report = mo.audit_tree(slow, *LAWS, "chain2", 0, 300, seconds=6, edge_probes=0)
    assert report.verdict_class == "no deviation"
    assert report.method == "sampling"
    assert report.notes[0] == (
        "the time was up: its law was not driven, and is sampled. Give more than seconds=6"
    )


@pytest.mark.usefixtures("few_laws")
def test_too_few_calls_for_driving_are_told_and_the_law_is_sampled() -> None:
    report = mo.audit_chain(standard, rng=0, num_trials=400, driven_checks=5, max_calls=20)
    assert report.verdict_class == "no deviation"
    assert {one.report.method for one in report.tried} == {"sampling"}
    assert report.num_checks is None
    for one in report.tried[:2]:
        assert one.report.notes == (
            "not driven, and sampled: it needs more than 20 calls (max_calls)",
        )
    wrong = mo.audit_chain(LOSSY["target resampled"], rng=0, num_trials=1_000, max_calls=20)
    assert wrong.verdict_class == "lossy"
    tree = mo.audit_tree(from_target, *LAWS, "chain2", 0, 300, max_calls=5)
    assert tree.verdict_class == "no deviation"
    assert tree.notes == ("not driven, and sampled: it needs more than 5 calls (max_calls)",)


@pytest.mark.usefixtures("few_laws")
def test_more_calls_let_less_be_hidden() -> None:
    def biases(num_trials: int) -> list[float]:
        report = mo.audit_chain(standard, rng=0, num_trials=num_trials, driven_checks=5)
        assert report.verdict_class == "no deviation"
        return [one.report.detectable_bias for one in report.tried]

    few, more = biases(250), biases(1_000)
    assert few[:3] == more[:3]  # driven
    assert all(0.04 < bias < 0.06 for bias in few[:3])  # unseen by 5 * 16 random checks
    for least, less in zip(more[3:], few[3:], strict=True):
        assert 0.05 < least < 0.6 * less < 0.6


@pytest.mark.parametrize(
    ("draw", "bits"),
    [
        (lambda rng: rng.random(), 53),
        (lambda rng: rng.random(dtype=np.float32), 24),
        (lambda rng: rng.integers(1 << 24) / (1 << 24), 24),
        (lambda rng: rng.integers(1 << 53) / (1 << 53), 53),
    ],
)
def test_an_edge_is_as_rare_as_the_bits_that_count(draw: Any, bits: int) -> None:
    """A draft of target probability zero passes where the draw is 0."""
    verify = verifier(lambda rng: (draw(rng), rng.random()), accepts=le)
    drafts = mo.WithReplacement([0.1, 0.2, 0.3, 0.4], 1)
    problem = mo.TransportProblem([0.5, 0.5, 0.0, 0.0], drafts)
    report = mo.audit(verify, problem, 0, 2_000, method="sampling")
    assert (report.verdict_class, report.edge_mass) == ("edge", 2.0**-bits)
    assert f"once in 2**{bits} draws" in report.verdict
    assert report.answer(1.0, 2.0**-60) == "FAIL"
    assert report.answer(1.0, 2.0**-24) == "EDGE"


def test_a_portfolio_says_why_laws_were_not_driven() -> None:
    def verify(root: Any, rng: Any) -> list[int]:
        return traversal(root, np.random.default_rng(int(rng.integers(2**32))))

    traversal = get_rule("traversal").verify
    report = mo.audit_portfolio(verify, 0, tree="2x1", num_trials=300)
    reasons = [note for note in report.notes if note.startswith("not driven")]
    assert reasons, report.notes
    assert "(laws: random" in reasons[0]


def test_a_text_too_long_to_drive_says_so() -> None:
    report = mo.audit_text(lambda target, draft: [0] * 9, length=9, method="driven", num_texts=50)
    assert any("more than 100 texts of 9 tokens" in note for note in report.notes)
