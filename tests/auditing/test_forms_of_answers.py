"""Answers of chains in the forms that engines give them: none is wrong by its form, nor right."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
from support.chain_verifiers import LOSSY, limit_laws, mistaken, residual, standard

import mdsd_opt as mo
from mdsd_opt.auditing import chains

#: Ids that stand behind the tokens, by V, and what the number counts: the accepted ones, or all.
PADDINGS: dict[str, Callable[[int], int]] = {
    "0": lambda v: 0,
    "V - 1": lambda v: v - 1,
    "V": lambda v: v,
    "-1": lambda v: -1,
}
FORMS = list(product(PADDINGS, ("accepted", "all"), ("first", "last")))

WRONG = {
    "residual is p": LOSSY["target resampled"],
    "all are accepted": LOSSY["everything accepted"],
    "bonus from q": mistaken(bonus=lambda p, q: q[-1]),
    "the last one is 0": lambda p, q, drafts: [*standard(p, q, drafts)[:-1], 0],
    "argmax of the residual": mistaken(
        left=lambda p, q, x: np.eye(p.size)[np.argmax(residual(p, q))]
    ),
}


def formed(verify: Any, padding: str, counts: str, where: str) -> Any:
    """The function with its answers as (tokens padded, number), or the other way round."""

    def answering(p: Any, q: Any, drafts: Any) -> Any:
        tokens = verify(p, q, drafts)
        row = np.full(len(drafts) + 1, PADDINGS[padding](p.shape[1]))
        row[: len(tokens)] = tokens
        number = len(tokens) - (counts == "accepted")
        return (number, row) if where == "first" else (row, number)

    return answering


@pytest.fixture(autouse=True)
def few_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_laws(monkeypatch, "reversed")
    monkeypatch.setattr(chains, "wide_laws", lambda length, sizes: [])


def audited(verify: Any, **options: Any) -> Any:
    few = {"num_trials": 1_000, "edge_probes": 0, "method": "sampling", "detect": 0.3}
    return mo.audit_chain(verify, **few, **options)


@pytest.mark.parametrize("form", FORMS, ids=[", ".join(form) for form in FORMS])
def test_right_ones_pass_in_every_form(form: Any) -> None:
    report = audited(formed(standard, *form))
    assert report.answer() == "PASS", report.verdict
    (told,) = [note for note in report.notes if note.startswith("answers are read as")]
    count = "how many drafts were accepted"
    if form[1] == "all":
        count = "how many tokens, the last one included"
    is_plain = form[0] == "-1" and "(tokens, ...)" in told  # the number is not needed
    assert is_plain or count in told, told


@pytest.mark.parametrize(("form", "wrong"), [*zip(FORMS, cycle(WRONG), strict=False)], ids=str)
def test_wrong_ones_fail_in_every_form(form: Any, wrong: str) -> None:
    report = audited(formed(WRONG[wrong], *form))
    assert report.verdict_class == "lossy", report.verdict


@pytest.mark.parametrize("counts", ["accepted", "all"])
@pytest.mark.parametrize("verify", [standard, *WRONG.values()], ids=["right", *WRONG])
def test_the_last_token_with_either_number(verify: Any, counts: str) -> None:
    def answering(p: Any, q: Any, drafts: Any) -> Any:
        tokens = verify(p, q, drafts)
        return len(tokens) - (counts == "accepted"), tokens[-1]

    assert audited(answering).answer() == ("PASS" if verify is standard else "FAIL")


@pytest.mark.parametrize(
    ("form", "batch"), list(zip(FORMS[1::4], [3, True] * 2, strict=True)), ids=str
)
def test_batches_in_every_form(form: Any, batch: Any) -> None:
    def answering(verify: Any) -> Any:
        def rows(p: Any, q: Any, drafts: Any) -> Any:
            known = [row[row >= 0] for row in drafts]
            each = [verify(*one) for one in zip(p, q, known, strict=True)]
            padded = np.full((len(each), drafts.shape[1] + 1), PADDINGS[form[0]](p.shape[2]))
            for row, tokens in zip(padded, each, strict=True):
                row[: len(tokens)] = tokens
            numbers = np.array([len(tokens) - (form[1] == "accepted") for tokens in each])
            return (numbers, padded) if form[2] == "first" else (padded, numbers)

        return rows

    def of_rows(p: Any, q: Any, drafts: Any) -> Any:
        return standard(p[: len(drafts) + 1], q, drafts)

    assert audited(answering(of_rows), batch=batch).clean
    wrong = answering(lambda p, q, drafts: WRONG["residual is p"](p[: len(drafts) + 1], q, drafts))
    assert audited(wrong, batch=batch).verdict_class == "lossy"


@pytest.mark.parametrize("batch", [False, 3])
def test_what_no_form_fits_is_not_judged_and_shown(batch: Any) -> None:
    """Padding by a token, without a number: nobody can know which tokens count."""
    one = formed(standard, "0", "all", "last")

    def answering(p: Any, q: Any, drafts: Any) -> Any:
        if not batch:
            return one(p, q, drafts)[0]
        rows = zip(p, q, [row[row >= 0] for row in drafts], strict=True)
        padded = [list(one(p[: len(x) + 1], q, x)[0]) for p, q, x in rows]
        return [row + [0] * (p.shape[1] - len(row)) for row in padded]

    report = audited(answering, batch=batch)
    assert report.answer() == "NOT JUDGED"
    assert "answers are tokens" in report.verdict
    assert "gave " in report.verdict
