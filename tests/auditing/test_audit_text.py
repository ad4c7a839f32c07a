"""Functions that draft, verify and go on by themselves: the law of the texts they write."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from support.moved_clock import Clock, moved_clock  # noqa: F401
from support.text_sessions import CORRECT, WRONG, block, chain, of_numpy, pick, restarted, softmax

import mdsd_opt as mo
from mdsd_opt.auditing.texts.driven_law import DrivenText, driven_text
from mdsd_opt.auditing.texts.session import Rounds, Session, Tables
from mdsd_opt.errors import InvalidInput, MdsdError, UnknownName
from mdsd_opt.evidence import LEAST_CALLS, Options

FOREVER = 1e9

OWN = np.random.default_rng(0)


def uniform() -> float:
    """From NumPy's global generator, which an audit serves."""
    return of_numpy()()


def law_of(generate: Any, tables: Tables, merges: bool, checks: int = 50) -> DrivenText:
    options = Options(num_trials=1, driven_checks=checks)
    return driven_text(Session(generate, tables, "numpy"), options, merges, FOREVER, 0)


@pytest.mark.parametrize("name", CORRECT)
def test_what_is_right_is_not_accused(name: str) -> None:
    report = mo.audit_text(CORRECT[name], 2, method="sampling", num_texts=400, seconds=300)
    assert report.clean, report.verdict
    assert report.verdict_class == "no deviation"
    assert 0.05 < report.detectable_bias < 1.0
    assert not report.lossless
    assert report.position is None


#: Those of `chain` go on behind the tokens that are compared.
DRIVEN = {name: CORRECT[name] for name in ("chain", "siblings", "one step")} | {
    "block verification": block(tokens=3)
}


@pytest.mark.parametrize("name", DRIVEN)
def test_the_law_of_what_is_right_is_the_target_s(name: str) -> None:
    for tables in (Tables(2, 3, 6), Tables(3, 2, 26, memory=1, zeros=True), Tables(1, 2, 0)):
        found = law_of(DRIVEN[name], tables, merges=False)
        assert found.fits or found.is_doubtful
        assert not found.log.count
        assert found.distance < 1e-12
        assert found.law.sum() == pytest.approx(1.0, abs=1e-12)
        assert found.num_merged == 0


def test_a_merged_tree_has_the_law_of_the_whole_one() -> None:
    for vocab_size, generate in (
        (2, chain(tokens=3)),
        (3, chain(fault="cut before the token", tokens=3)),
        (2, block(tokens=3)),
    ):
        tables = Tables(vocab_size, 2, 6)
        merged, whole = (law_of(generate, tables, merges) for merges in (True, False))
        assert merged.num_merged > 0
        assert merged.num_checks < whole.num_checks  # corners of what is there once
        np.testing.assert_allclose(merged.law, whole.law, rtol=0, atol=1e-12)


def test_the_law_of_what_is_wrong_is_that_of_a_formula() -> None:
    """After a refusal the target is drawn from: every round's law by recursion."""
    tables, length = Tables(3, 2, 3), 2
    found = law_of(chain(gamma=1, fault="target resampled"), tables, merges=False)
    texts = Session(chain(), tables, "numpy").texts

    def round_of(text: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        p, q, law = tables.target(text), tables.draft(text), {}
        for x, y in product(range(3), repeat=2):
            kept = min(1.0, p[x] / q[x])
            law[(*text, x, y)] = (
                law.get((*text, x, y), 0.0) + q[x] * kept * tables.target((*text, x))[y]
            )
            law[(*text, y)] = law.get((*text, y), 0.0) + q[x] * (1 - kept) * p[y]
        return law

    law = np.zeros(9)
    for first, mass in round_of(()).items():
        for text, more in round_of(first).items() if len(first) < length else [(first, 1.0)]:
            law[texts.place(text[:length])] += mass * more
    np.testing.assert_allclose(found.law, law, rtol=0, atol=1e-12)
    assert found.distance == pytest.approx(0.5 * np.abs(law - texts.law).sum(), abs=1e-12)
    assert found.position == 0


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found_in_a_sample(name: str) -> None:
    report = mo.audit_text(WRONG[name], 0, method="sampling", num_texts=2_000, seconds=300)
    assert not report.clean
    assert report.verdict_class == "lossy"
    assert "NOT LOSSLESS" in report.verdict
    interval = report.total_variation_interval
    assert interval.low <= report.total_variation <= interval.high
    assert report.num_checks is None


@pytest.mark.parametrize("name", ["overwritten before gathered", "cut at the token"])
def test_what_is_wrong_is_found_by_driving(name: str) -> None:
    report = mo.audit_text(WRONG[name], 0, method="driven", length=2, seconds=600, driven_checks=20)
    assert report.verdict_class == "lossy"
    assert report.total_variation > 1e-3
    assert f"exact up to {report.num_checks:,} random checks" in report.verdict
    assert report.total_variation_interval is None


@pytest.mark.parametrize(
    ("fault", "position"), [("target resampled", 0), ("bonus from the wrong row", 1)]
)
def test_it_says_where_the_law_parts_and_after_what(fault: str, position: int) -> None:
    found = law_of(chain(gamma=1, fault=fault), Tables(2, 2, 6), merges=False)
    assert found.position == position
    report = mo.audit_text(chain(gamma=1, fault=fault), 0, method="sampling", seconds=300)
    assert report.position == position
    assert f"from token {position + 1} on" in report.verdict
    events = {part.event: part.total_variation for part in report.after}
    assert sum(part.share for part in report.after) == pytest.approx(1.0)
    if position:
        assert events["accepted"] > 2 * events["refused"]  # which is noise
    else:
        assert list(events) == ["the start"]


def test_one_uniform_for_all_steps_is_dear_to_drive_and_found_all_the_same() -> None:
    report = mo.audit_text(WRONG["uniforms reused"], 0, max_calls=2_000, num_texts=4_000)
    assert report.verdict_class == "lossy"
    assert {one.method for one in report.tried} == {"sampling"}
    assert report.first_token_variation < 0.05  # each token by itself is right


def test_a_seed_that_is_set_in_every_call_is_named() -> None:
    report = mo.audit_text(chain(restarted(7)), 0, method="sampling", num_texts=300, seconds=300)
    assert report.causes == ("numpy.random.default_rng(7) begins anew in every call",)
    assert report.causes[0] in report.verdict
    driven = law_of(chain(restarted(7), tokens=2), Tables(2, 2, 6), merges=False)
    assert np.count_nonzero(driven.law) == 1  # what it really writes: one text


def test_seeds_that_do_no_harm_accuse_nobody() -> None:
    def generate(target: Any, draft: Any) -> list[int]:
        np.random.default_rng(0).random(3)
        return chain(tokens=1)(target, draft)

    report = mo.audit_text(generate, 0, method="sampling", num_texts=300, seconds=300)
    assert report.clean
    assert "begins anew" not in report.verdict


@pytest.mark.parametrize("often", [1.0, 0.3])
def test_calls_that_raise_are_not_judged(often: float) -> None:
    def generate(target: Any, draft: Any) -> list[int]:
        if uniform() < often:
            raise NameError("name 'tokens' is not defined")
        return chain(tokens=1)(target, draft)

    for method in ("auto", "sampling", "driven"):
        report = mo.audit_text(generate, 0, 1, method=method, num_texts=200, seconds=300)
        assert report.verdict_class == "not judged"
        assert not report.clean
        assert report.verdict.startswith("NOT JUDGED: ")
        assert "calls failed, e.g. a call raised NameError: name 'tokens'" in report.verdict


def test_what_is_wrong_whatever_failed_calls_would_give_is_said() -> None:
    def generate(target: Any, draft: Any) -> list[int]:
        if uniform() < 0.1:
            raise ValueError
        return [1]

    report = mo.audit_text(generate, 0, 1, method="driven", seconds=300)
    assert report.verdict_class == "lossy"
    assert 0.2 < report.total_variation < 0.9


@pytest.mark.parametrize("answer", [[], None, 3, ["a"], [0.5], [True]])
def test_what_is_no_text_is_not_judged(answer: Any) -> None:
    report = mo.audit_text(lambda target, draft: answer, 0, num_texts=50)
    assert report.verdict_class == "not judged"
    assert report.num_trials == 10


def test_a_token_that_does_not_exist_is_wrong() -> None:
    report = mo.audit_text(lambda target, draft: np.array([7]), 0, num_texts=50)
    assert report.verdict_class == "lossy"
    assert "token 7, outside 0.." in report.verdict


def test_a_model_is_asked_about_tokens_alone() -> None:
    report = mo.audit_text(lambda target, draft: target([-1]), 0, num_texts=50)
    assert "a model was asked about token -1, outside 0..2" in report.verdict
    assert report.verdict_class == "not judged"


def test_an_edge_is_no_lossy_law() -> None:
    def generate(target: Any, draft: Any) -> list[int]:
        p, q = softmax(target([])[0]), softmax(draft([])[0])
        x = pick(q, uniform())
        if uniform() * q[x] <= p[x]:  # at 0, p may be 0 as well
            return [x]
        return [pick(np.maximum(p - q, 0), uniform())]

    report = mo.audit_text(generate, 0, method="driven", length=2, seconds=300)
    assert report.verdict_class == "edge"
    assert report.total_variation < 1e-12
    assert "once in 2**53 draws" in report.verdict


def test_what_was_never_met_is_said() -> None:
    def generate(target: Any, draft: Any) -> list[int]:
        draft([])
        return [pick(softmax(target([])[0]), uniform())]

    report = mo.audit_text(generate, 0, method="sampling", num_texts=200)
    assert report.clean
    assert "Not seen: a draft that was accepted" in report.verdict
    full = mo.audit_text(chain(), 0, method="sampling", num_texts=200)
    assert "Not seen" not in full.verdict
    assert all(full.met[kind] > 20 for kind in ("accepted", "refused", "extra"))


def test_numbers_from_elsewhere_are_noted_and_judged_by_sampling() -> None:
    report = mo.audit_text(chain(lambda: OWN.random), 0, num_texts=300, seconds=300)
    assert report.clean
    assert report.method == "sampling"
    varied = "the outcome varied although no draw was served"
    served, repeated = report.notes
    assert served == f"{varied}: its random numbers come from where the audit does not reach"
    assert repeated.startswith("answers depend on earlier calls, or on random numbers from else")
    assert [value for label, value in report.rows() if label == "note"] == [*report.notes]
    inside = mo.audit_text(chain(tokens=1), 0, 1, num_texts=50, seconds=300)
    assert [note.split(",")[0] for note in inside.notes] == ["no answer depended on earlier calls"]
    driven = mo.audit_text(chain(lambda: OWN.random), 0, method="driven", num_texts=300)
    assert driven.verdict_class == "no deviation"
    assert driven.method == "sampling"
    assert driven.num_checks is None
    assert not driven.lossless
    assert driven.notes[-1].startswith("answers depend on earlier calls, or on random numbers")


def test_seeding_the_process_in_every_call_is_found() -> None:
    def generate(target: Any, draft: Any) -> list[int]:
        np.random.seed(0)  # noqa: NPY002
        return chain(tokens=1)(target, draft)

    report = mo.audit_text(generate, 0, 1, num_texts=300, seconds=300, method="sampling")
    assert report.verdict_class == "lossy"


def hidden(lengths: tuple[int, ...]) -> Any:
    """Drafts as many as the round's number says: no question shows that in advance."""

    def generate(target: Any, draft: Any) -> list[int]:
        text: list[int] = []
        for gamma in lengths:
            text += chain(
                gamma=gamma, tokens=1
            )(
                lambda ids: target([*text, *ids])[len(text) :],  # noqa: B023
                lambda ids: draft([*text, *ids])[len(text) :],  # noqa: B023
            )
        return text

    return generate


def test_state_that_no_question_shows_is_not_put_together() -> None:
    """A round of one draft after () and (0,), or of two after (0, 1): merging them would lie."""
    tables = Tables(2, 3, 6)
    merged = law_of(hidden((1, 2, 1)), tables, merges=True)
    whole = law_of(hidden((1, 2, 1)), tables, merges=False)
    assert whole.fits
    assert merged.distance < 1e-9


def test_a_law_that_only_a_merged_tree_finds_wrong_is_driven_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mdsd_opt.auditing import texts as audit

    driven = []

    def lying(session: Any, options: Options, merges: bool, **rest: Any) -> DrivenText:
        driven.append((session.tables.vocab_size, merges))
        texts = session.texts
        return DrivenText(
            tables=session.tables,
            texts=texts,
            law=texts.law[::-1] if merges else texts.law,
            distance=0.1 if merges else 0.0,
            excess=0.1 if merges else 0.0,
            tolerance=1e-9,
            rounding=1e-5,
            num_checks=options.driven_checks,
            num_merged=int(merges),
            seconds=9.0,
            unseen=0.01,
        )

    monkeypatch.setattr(audit, "driven_text", lying)
    report = mo.audit_text(chain(tokens=1), 0, 2, method="driven")
    assert report.clean, report.verdict
    assert driven == [
        (2, False), (4, True), (4, False), (3, True), (3, False), (2, False)
    ]  # fmt: skip


def test_a_slow_function_ends_in_time_and_a_bar_is_drawn(
    capsys: pytest.CaptureFixture, clock: Clock
) -> None:
    generate = clock.slow(chain(), 0.02)
    report = mo.audit_text(generate, 0, seconds=5, progress=True)
    assert report.num_trials == 126  # half of the time; then calls are repeated
    assert report.verdict_class == "no deviation"
    assert report.notes[-1] == "the time was up: not everything was tried. Give more than seconds=5"
    assert not report.lossless
    assert "pairs of models" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["auto", "driven", "sampling"])
def test_a_limit_of_time_is_named_and_nothing_is_called_lossless(method: str) -> None:
    options: dict[str, Any] = {"method": method, "num_texts": 300, "seconds": 0.001}
    report = mo.audit_text(chain(tokens=1), 0, 2, **options)
    assert report.verdict_class == "no deviation"
    assert report.method == "sampling"
    assert report.detectable_bias > 0.2
    assert not report.lossless
    assert report.notes[-1].startswith("the time was up: ")
    assert {trial.num_trials for trial in report.tried} == {LEAST_CALLS}


def test_a_law_that_needs_more_calls_is_sampled_and_a_note_says_so() -> None:
    report = mo.audit_text(chain(tokens=1), 0, 2, num_texts=300, max_calls=30, method="driven")
    assert report.notes[0] == "not driven at V = 2: it needs more than 30 calls (max_calls)"
    assert report.verdict_class == "no deviation"
    assert report.num_trials == 300


def test_what_is_driven_alone_is_lossless_and_beside_samples_has_no_deviation() -> None:
    driven = mo.audit_text(chain(tokens=1), 0, 2, method="driven")
    assert driven.verdict_class == "lossless"
    assert 0 < driven.detectable_bias < 0.05  # what the random checks can have missed
    assert driven.lossless
    assert driven.verdict.startswith(
        "lossless: the law of up to 2 tokens is the target's at V = 2, 3 and 4, exact up to"
    )
    both = mo.audit_text(chain(tokens=1), 0, 2, num_texts=300)
    assert both.verdict_class == "no deviation"
    assert both.num_checks == driven.num_checks
    assert 0.05 < both.detectable_bias < 0.5
    assert both.verdict.startswith("no deviation: the law of up to 2 tokens is the target's")
    assert "no deviation found in 600 texts" in both.verdict
    assert {trial.vocab_size for trial in both.tried} == {2, 3, 4, 2_048}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"length": 0}, InvalidInput),
        ({"length": 12}, InvalidInput),
        ({"length": 2.5}, InvalidInput),
        ({"library": "jax"}, UnknownName),
        ({"method": "guess"}, UnknownName),
        ({"rng": -1}, InvalidInput),
        ({"laws": (np.zeros(4), np.zeros(5))}, InvalidInput),
    ],
)
def test_what_is_asked_wrongly_is_refused(options: dict[str, Any], error: type[MdsdError]) -> None:
    with pytest.raises(error):
        mo.audit_text(chain(tokens=1), **options)
    with pytest.raises(InvalidInput, match="give a callable"):
        mo.audit_text("chain")


def test_rounds_tell_how_tokens_came() -> None:
    rounds = Rounds()
    for model, text in (
        ("draft", ()), ("draft", (1,)), ("target", (1, 0)),  # both accepted, 2 is extra
        ("draft", (1, 0, 2)), ("draft", (1, 0, 2, 0)), ("target", (1, 0, 2, 0, 1)),  # 1 refused
    ):  # fmt: skip
        rounds.hear(model, text)
    told = rounds.events((1, 0, 2, 0, 2, 1))
    assert told == ["accepted", "accepted", "extra", "accepted", "refused", "unknown"]
    one_by_one = Rounds()
    for model, text in (("draft", ()), ("draft", (1,)), ("target", ()), ("target", (1,))):
        one_by_one.hear(model, text)
    assert one_by_one.events((1, 1)) == ["accepted", "refused"]
    assert Rounds().events((0,)) == ["unknown"]
