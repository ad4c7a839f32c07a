"""What audits say of texts: only what was looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.moved_clock import Clock, moved_clock  # noqa: F401
from support.text_sessions import TOKENS, Rows, chain, of_numpy, pick, softmax

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import LEAST_CALLS

uniform = of_numpy()


def short_of_context(target: Any, draft: Any) -> list[int]:
    """Right, with a draft that is two tokens behind: whatever it drafts is verified."""
    text: list[int] = []
    while len(text) < TOKENS:
        known, drafts = text[:-2], list[int]()
        laws = []
        for _ in range(2):
            laws.append(softmax(draft(known + drafts)[-1]))
            drafts.append(pick(laws[-1], uniform()))
        p = softmax(target(text + drafts))[len(text) :]
        for n, x in enumerate(drafts):
            if uniform() * laws[n][x] >= p[n][x]:
                text.append(pick(np.maximum(p[n] - laws[n], 0), uniform()))
                break
            text.append(x)
        else:
            text.append(pick(p[-1], uniform()))
    return text


def test_questions_that_do_not_fit_tell_nothing_of_drafts() -> None:
    few = {"method": "sampling", "num_texts": 300, "vocab_sizes": [8]}
    report = mo.audit_text(short_of_context, 0, **few)  # type: ignore[arg-type]
    assert report.clean
    assert "Not seen" not in report.verdict
    assert "Not known, by the questions to the models: " in report.verdict
    assert "a token after drafts that were all accepted" in report.verdict
    right = mo.audit_text(chain(), 0, **few)  # type: ignore[arg-type]
    assert "Not known" not in right.verdict
    assert right.met["extra"] > 100


def least_length(least: int) -> Callable[[Any, Any], Any]:
    """No token 0 among the first tokens."""

    def law(text: Any, logits: Any) -> Any:
        ruled_out = (np.arange(logits.size) == 0) & (len(text) < least)
        return softmax(np.where(ruled_out, -np.inf, logits))

    return law


def keeps(law: Callable[[Any, Any], Any], late: int = 0) -> Callable[..., list[int]]:
    """Rejection along two drafts under a promise, which ends `late` rows too late."""

    def generate(target: Any, draft: Any, text: list[int]) -> list[int]:
        begin, text = len(text), list(text)
        while len(text) < begin + TOKENS:
            drafts: list[int] = []
            for _ in range(2):
                drafts.append(pick(softmax(draft(text + drafts)[-1]), uniform()))
            before, rows = len(text), Rows(target, draft, text + drafts)
            logits = np.asarray(target(text + drafts))
            for n, x in enumerate([*drafts, None]):
                p, q = law([0] * max(before + n - late, 0), logits[before + n]), rows.q[before + n]
                if x is None:
                    text.append(pick(p, uniform()))
                elif uniform() * q[x] < p[x]:
                    text.append(x)
                else:
                    text.append(pick(np.maximum(p - q, 0), uniform()))
                    break
        return text[begin:]

    return generate


def test_beginnings_show_promises_that_change_late() -> None:
    promise = least_length(8)
    few = {"method": "sampling", "num_texts": 400, "vocab_sizes": [8]}
    right = mo.audit_text(keeps(promise), 0, promise=promise, **few)  # type: ignore[arg-type]
    assert right.clean, right.verdict
    begun = [one.models for one in right.tried if "behind" in one.models]
    assert len(begun) == 4
    most = max(int(one.split("behind ")[1].split()[0]) for one in begun) + TOKENS
    assert f"The promise was tried on texts of up to {most} tokens." in right.verdict
    wrong = mo.audit_text(keeps(promise, 1), 0, promise=promise, **few)  # type: ignore[arg-type]
    assert wrong.verdict_class == "lossy"


def test_without_beginnings_the_longest_text_is_named() -> None:
    def generate(target: Any, draft: Any) -> list[int]:
        return keeps(as_it_is)(target, draft, [])

    def as_it_is(text: Any, logits: Any) -> Any:
        return softmax(logits)

    few = {"method": "sampling", "num_texts": 500, "vocab_sizes": [64]}
    report = mo.audit_text(generate, 0, promise=as_it_is, **few)  # type: ignore[arg-type]
    assert "The promise was tried on texts of up to 5 tokens." in report.verdict
    assert "texts of up to" not in mo.audit_text(generate, 0, **few).verdict  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["auto", "sampling"])
def test_laws_that_are_named_are_met_on_the_one_path_of_a_greedy_promise(method: str) -> None:
    tied = [0]

    def greedy(target: Any, draft: Any) -> list[int]:
        text: list[int] = []
        while len(text) < 2:
            row = np.asarray(target(text)[-1])
            draft(text)
            tied[0] += row.size == 4 and np.count_nonzero(row == row.max()) > 1
            text.append(int(row.argmax()))
        return text

    report = mo.audit_text(
        greedy,
        0,
        promise=mo.Sampling(temperature=0),
        method=method,
        num_texts=300,
        vocab_sizes=[64],
        driven_checks=5,
    )
    named = [one.models for one in report.tried if "tied" in one.models]
    assert named == ["V = 4, 2 tokens, tied laws"]
    assert tied[0] > 0
    assert sum("V = 4" in one.models for one in report.tried) == 3


@pytest.mark.parametrize(
    "given",
    [
        {"drafted": 10, "accepted": 20},
        {"accepted": 20},
        {"drafted": -1},
        {"drafted": 10, "accepted": -1},
        {"drafted": float("nan")},
        {"num_first": float("nan")},
        {"num_first": -1},
    ],
)
def test_counts_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    laws = np.full((2, 3, 4), 0.25)
    with pytest.raises(InvalidInput, match="|".join(given)):
        mo.audit_tokens(laws, np.zeros((2, 3), int), **given)


@pytest.mark.parametrize("pace", [1e-3, 5e-3])
def test_a_portfolio_keeps_to_its_seconds(clock: Clock, pace: float) -> None:
    def verify(target: Any, draft: Any, drafts: Any, rng: Any) -> int:
        x = int(drafts[0])
        if rng.random() * draft[x] < target[x]:
            return x
        left = np.maximum(target - draft, 0)
        return int(rng.choice(left.size, p=left / left.sum()))

    start = clock.now
    report = mo.audit_portfolio(clock.slow(verify, pace), 0, num_drafts=1, seconds=5)
    # those of the law that was begun, and its edges
    assert clock.now - start < 5 + pace * (LEAST_CALLS + 128)
    assert any("the time was up" in note for note in report.notes)
    calls = [one.report.num_trials for one in report.tried if one.report]
    assert min(calls) >= LEAST_CALLS
    assert max(calls) < 3 * min(calls)  # each law has its part of the time


@pytest.mark.parametrize("method", ["auto", "sampling"])
def test_texts_that_take_long_keep_to_their_seconds(method: str, clock: Clock) -> None:
    start = clock.now
    mo.audit_text(clock.slow(chain(), 0.05), 0, seconds=7, method=method)
    assert clock.now - start < 7 + 0.05 * LEAST_CALLS


def served_rows(promises: list[Any]) -> Callable[..., list[list[int]]]:
    """Chains of rows, each under a sampling of its own."""

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> list[list[int]]:
        answers = []
        with np.errstate(divide="ignore"):
            for row, promise in enumerate(promises):
                tokens: list[int] = []
                for n, x in enumerate([*drafts[row], -1]):
                    law = promise.law(np.log(p[row, n]))
                    if x < 0:
                        tokens.append(int(rng.choice(law.size, p=law)))
                        break
                    q_n = promise.law(np.log(q[row, n]))
                    if rng.random() * q_n[x] < law[x]:
                        tokens.append(int(x))
                        continue
                    left = np.maximum(law - q_n, 0)
                    tokens.append(int(rng.choice(left.size, p=left / left.sum())))
                    break
                answers.append(tokens)
        return answers

    return verify


def test_each_row_keeps_a_promise_of_its_own() -> None:
    greedy, sampled = mo.Sampling(temperature=0), mo.Sampling(temperature=0.7, top_k=5)
    rows = [sampled, greedy, sampled]
    right = mo.audit_chain(served_rows(rows), 0, batch=3, promise=rows, num_trials=600)
    assert right.clean, right.verdict
    swapped = served_rows([sampled, sampled, greedy])
    wrong = mo.audit_chain(swapped, 0, batch=3, promise=rows, num_trials=600)
    assert [one.verdict_class for one in wrong.tried][1:] == ["lossy", "lossy"]
    assert wrong.tried[0].report.clean
    with pytest.raises(InvalidInput, match="2 promises and 3 rows"):
        mo.audit_chain(served_rows(rows), 0, batch=3, promise=rows[:2])
    with pytest.raises(InvalidInput, match="goes with batch=B"):
        mo.audit_chain(served_rows(rows), 0, promise=rows)
