"""Chains in batches, on laws of one's own, and under the sampling that they promise."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.chain_verifiers import by_rows, drawn, lengths, limit_laws, standard
from support.text_sessions import pick

import mdsd_opt as mo
from mdsd_opt.auditing import on_laws
from mdsd_opt.errors import InvalidInput


@pytest.fixture
def few_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_laws(monkeypatch, "random", "peaked")


ragged = by_rows(standard)


def next_row_s_draft_law(p: Any, q: Any, drafts: Any) -> list[list[int]]:
    turned = np.roll(q, -1, axis=0)
    return ragged(p, np.where(np.isnan(turned), q, turned), drafts)


def extra_token_of_the_first_row(p: Any, q: Any, drafts: Any) -> list[list[int]]:
    p, ends = p.copy(), lengths(drafts)
    for row, n in enumerate(ends):
        p[row, n] = p[0, ends[0]]
    return ragged(p, q, drafts)


def extra_token_of_the_padding(p: Any, q: Any, drafts: Any) -> list[list[int]]:
    """The last row of p is that of the longest chain alone; NaN is taken for zero."""
    answers = ragged(p, q, drafts)
    for row, n in enumerate(lengths(drafts)):
        if len(answers[row]) == n + 1 and answers[row][:n] == drafts[row, :n].tolist():
            law = np.nan_to_num(p[row, -1])
            answers[row][n] = drawn(law / law.sum()) if law.any() else 0
    return answers


def one_test_of_the_longest_row(p: Any, q: Any, drafts: Any) -> list[list[int]]:
    """A shorter chain is verified up to the end of the longest, with token -1 the last one."""
    q = np.where(np.isnan(q), 1.0 / q.shape[2], q)
    p = np.where(np.isnan(p), 1.0 / p.shape[2], p)
    return [standard(p[row], q[row], drafts[row]) for row in range(len(p))]


audited_rows = partial(mo.audit_chain, rng=0, batch=3, num_trials=1_500)


def in_forms(p: Any, q: Any, drafts: Any, form: str) -> Any:
    answers = ragged(p, q, drafts)
    longest = drafts.shape[1] + 1
    padded = np.array([[*row, *[-1] * (longest - len(row))] for row in answers])
    accepted = np.array([len(row) - 1 for row in answers])
    last = np.array([row[-1] for row in answers])
    return {
        "lists": answers,
        "padded": padded,
        "accepted and last": (accepted, last),
        "tokens and accepted": (padded, accepted),
    }[form]


@pytest.mark.parametrize("form", ["lists", "padded", "accepted and last", "tokens and accepted"])
def test_rows_that_are_right_pass_in_every_form(form: str) -> None:
    report = audited_rows(partial(in_forms, form=form), num_trials=600)
    assert report.verdict_class == "no deviation", report.verdict
    assert [one.law for one in report.tried] == ["row 1", "row 2", "row 3"]
    assert all(450 < one.report.num_trials < 700 for one in report.tried)
    assert {one.drafts for one in report.tried} == {"0 to 2 drafts"}
    assert 0.1 < report.detectable_bias < 0.3
    assert not report.lossless
    assert report.notes[0].startswith("answers are read as ")
    assert report.notes[1:] == (
        "rows have 0 to 2 drafts, padded with -1, and NaN behind their ends; in some calls none "
        "has drafts, all have 2, or all have one law; one row: in others",
    )
    assert all(level.accepted > 0 and level.refused > 0 for level in report.coverage.levels)


@pytest.mark.parametrize(
    "verify",
    [
        next_row_s_draft_law,
        extra_token_of_the_first_row,
        extra_token_of_the_padding,
        one_test_of_the_longest_row,
    ],
)
def test_rows_that_are_taken_for_others_are_found(verify: Any) -> None:
    report = audited_rows(verify)
    assert report.verdict_class == "lossy", report.verdict
    assert not report.lossless
    assert report.worst.law.startswith("row ")
    assert report.worst.law in report.verdict


def test_rows_with_enough_calls_are_lossless() -> None:
    report = mo.audit_chain(ragged, rng=0, batch=2, num_drafts=1)
    assert report.verdict_class == "no deviation"
    assert report.detectable_bias < 0.05
    assert report.lossless


def test_rows_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(InvalidInput, match="for 3 rows: return for each row its tokens"):
        audited_rows(lambda p, q, drafts: "yes")
    with pytest.raises(InvalidInput, match="fails on every call: it raised KeyError"):
        audited_rows(lambda p, q, drafts: {}["row"])
    for batch in (0, -1, 65):
        with pytest.raises(InvalidInput, match=f"batch is {batch}: give True, or 2 to 64 rows"):
            audited_rows(ragged, batch=batch)
    fails_at_times = audited_rows(
        lambda p, q, drafts: ragged(p, q, drafts) if drafts[0, 0] else {}["row"], num_trials=300
    )
    assert fails_at_times.verdict_class == "not judged"


def logits(vocab_size: int, rows: int = 5) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    target = rng.normal(0, 3, (rows, vocab_size))
    return target, target + rng.normal(0, 1, target.shape)


def cut(p: Any, q: Any, drafts: Any) -> list[int]:
    """The target's forty likeliest tokens alone are verified."""
    kept = np.where(p >= np.sort(p, axis=1)[:, [-min(40, p.shape[1])]], p, 0.0)
    return standard(kept / kept.sum(axis=1, keepdims=True), q, drafts)


def test_logits_of_ones_own_take_the_place_of_all_laws() -> None:
    own = logits(5_000)
    report = mo.audit_chain(standard, rng=0, laws=own, num_trials=600)
    assert report.verdict_class == "no deviation"
    assert [one.law for one in report.tried] == [f"given, row {n}" for n in (0, 1, 2)]
    assert {one.vocab_size for one in report.tried} == {5_000}
    assert report.num_checks is None
    assert "V up to 5,000" in report.verdict
    assert not report.lossless
    wrong = mo.audit_chain(cut, rng=0, laws=own, num_trials=600)
    assert wrong.verdict_class == "lossy"
    assert "only the" in wrong.verdict
    assert "likeliest tokens of the target come out" in wrong.verdict


def test_laws_are_rows_of_any_shape_over_one_vocabulary() -> None:
    target, draft = logits(30, 6)
    shaped = target.reshape(2, 3, 30), draft.reshape(2, 3, 30)
    flat = mo.audit_chain(standard, rng=0, laws=(target, draft), num_trials=250)
    same = mo.audit_chain(standard, rng=0, laws=shaped, num_trials=250)
    assert flat.total_variation == same.total_variation
    one = mo.audit_chain(standard, rng=0, laws=(target[0], draft[0]), num_trials=250)
    assert len(one.tried) == 1  # its last row stands for those that are missing
    fewer = mo.audit_chain(standard, rng=0, laws=(target[:3], draft[:2]), num_trials=250)
    assert len(fewer.tried) == 1  # nothing is drafted at the last place
    with pytest.raises(InvalidInput, match=r"\(6, 30\) and \(6, 29\): give logits"):
        mo.audit_chain(standard, rng=0, laws=(target, draft[:, 1:]))
    with pytest.raises(ValueError, match="NaN"):
        mo.audit_chain(standard, rng=0, laws=(target * np.nan, draft))


@pytest.mark.usefixtures("few_laws")
def test_wide_laws_have_the_sizes_that_are_asked_for() -> None:
    report = mo.audit_chain(standard, vocab_sizes=(20, 60), num_trials=250, driven_checks=5)
    assert [(one.law, one.vocab_size) for one in report.tried] == [
        ("random", 4),
        ("peaked", 4),
        ("long tail", 20),
        ("long tail", 60),
    ]
    assert report.verdict_class == "no deviation"
    found = mo.audit_chain(cut, vocab_sizes=(20, 400), num_trials=600, driven_checks=5)
    by_size = {one.vocab_size: one.verdict_class for one in found.tried}
    assert by_size[4] == "lossless"  # nothing is cut there
    assert by_size[20] == "no deviation"
    assert by_size[400] == "lossy"


PROMISE = mo.Sampling(temperature=0.6, top_k=3)


def sampling(target: mo.Sampling, draft: mo.Sampling) -> Any:
    """A verifier that applies this to the logits of both sides."""
    return lambda p, q, drafts: standard(target.law(p), draft.law(q), drafts)


AS_THEY_ARE = mo.Sampling()

under_promise = partial(
    mo.audit_chain, rng=0, takes="logits", num_trials=400, driven_checks=5, promise=PROMISE
)


@pytest.mark.usefixtures("few_laws")
def test_a_promise_that_is_kept_passes() -> None:
    report = under_promise(sampling(PROMISE, PROMISE))
    assert report.verdict_class == "no deviation", report.verdict
    assert [one.verdict_class for one in report.tried[:2]] == ["lossless", "lossless"]
    assert report.cause == ""
    assert all(level.accepted > 0 and level.refused > 0 for level in report.coverage.levels)


@pytest.mark.usefixtures("few_laws")
@pytest.mark.parametrize(
    ("target", "draft", "side"),
    [
        (AS_THEY_ARE, PROMISE, "the target is not filtered as was promised"),
        (PROMISE, AS_THEY_ARE, "the draft is not filtered as was promised"),
        (AS_THEY_ARE, AS_THEY_ARE, "neither side is filtered as was promised"),
    ],
)
def test_the_side_that_breaks_a_promise_is_named(
    target: mo.Sampling, draft: mo.Sampling, side: str
) -> None:
    report = under_promise(sampling(target, draft))
    assert report.verdict_class == "lossy", report.verdict
    assert report.cause == f"{side}: with that done beforehand, it is right"
    assert f"Cause: {report.cause}." in report.verdict


@pytest.mark.usefixtures("few_laws")
def test_what_is_wrong_beside_a_promise_names_no_side() -> None:
    def wrong(p: Any, q: Any, drafts: Any) -> list[int]:
        kept = PROMISE.law(p)
        tokens = standard(kept, PROMISE.law(q), drafts)
        return [*tokens[:-1], drawn(kept[len(tokens) - 1])]

    report = under_promise(wrong)
    assert report.verdict_class == "lossy"
    assert "promised" not in report.cause


@pytest.mark.usefixtures("few_laws")
def test_the_side_is_looked_for_where_the_deviation_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where V is small nothing is filtered: any side would seem to mend it there."""
    monkeypatch.setattr(on_laws, "_SIDE_CALLS", 400)
    top = mo.Sampling(top_k=40)

    def wrong(p: Any, q: Any, drafts: Any) -> list[int]:
        tokens = standard(top.law(p), top.law(q), drafts)
        return [*tokens[:-1], int(np.argmax(p[len(tokens) - 1]))] if p.shape[1] > 40 else tokens

    report = under_promise(wrong, promise=top, num_drafts=1)
    assert [one.verdict_class for one in report.tried] == [
        *["lossless"] * 2,
        "no deviation",
        "lossy",
    ]
    assert "promised" not in report.cause
    assert "where a draft was refused, the target's likeliest token comes, always" in report.cause


def test_rows_that_share_their_numbers_are_found() -> None:
    def shared(p: Any, q: Any, drafts: Any) -> list[list[int]]:
        u = random.random()
        return [[pick(law, u)] for law in p[:, 0]]

    report = audited_rows(shared, num_trials=400)
    assert report.verdict_class == "lossy"
    assert "from the check of rows" in report.verdict


@pytest.mark.usefixtures("few_laws")
def test_what_holds_on_other_laws_is_no_cause() -> None:
    """Where V is small no draft is accepted, which is right."""

    def wrong(p: Any, q: Any, drafts: Any) -> list[int]:
        return [drawn(p[0])] if p.shape[1] < 40 else [*drafts, drawn(p[1])]

    report = mo.audit_chain(wrong, num_drafts=1, num_trials=300, driven_checks=5)
    assert (report.worst.law, report.worst.vocab_size) == ("long tail", 2_048)
    assert report.cause.startswith("the draft's law is not used")


def test_a_number_of_calls_that_is_asked_for_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_laws, "_FIRST_CALLS", 100)
    monkeypatch.setattr(on_laws, "_CALLS_UP_TO", ((64, 250),))
    laws = np.log(np.random.default_rng(0).dirichlet(np.ones(8), (2, 3)))
    for asked, made in ((None, 250), (400, 400), (80, 80)):
        report = mo.audit_chain(
            standard, laws=tuple(laws), num_drafts=1, num_trials=asked, method="sampling"
        )
        assert {one.report.num_trials for one in report.tried} == {made}
