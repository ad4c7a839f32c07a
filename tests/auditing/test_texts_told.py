"""What audits say of texts: only what was looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.moved_clock import Clock, moved_clock  # noqa: F401
from support.reused_states import verifier
from support.text_sessions import chain, of_numpy

import mdsd_opt as mo
from mdsd_opt.evidence import LEAST_CALLS

uniform = of_numpy()


def short_of_context(target: Any, draft: Any) -> list[int]:
    """Right, with a draft that is two tokens behind: whatever it drafts is verified."""
    return chain()(
        target, lambda text: [draft(text[: max(n - 2, 0)])[-1] for n in range(len(text) + 1)]
    )


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


@pytest.mark.parametrize("pace", [1e-3, 5e-3])
def test_a_portfolio_keeps_to_its_seconds(clock: Clock, pace: float) -> None:
    start = clock.now
    report = mo.audit_portfolio(clock.slow(verifier(), pace), 0, num_drafts=1, seconds=5)
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
