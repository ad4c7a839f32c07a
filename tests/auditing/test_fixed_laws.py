"""Laws that random ones never are stand in every audit: ties, residuals of unlike tokens, p = q."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.chain_verifiers import (
    by_rows,
    drawn,
    lengths,
    limit_laws,
    mistaken,
    residual,
    standard,
)
from support.text_sessions import softmax
from support.tree_rules import chain

import mdsd_opt as mo
from mdsd_opt.auditing import engines
from mdsd_opt.auditing.laws import fixed_laws, standard_laws
from mdsd_opt.auditing.trees import TableModel

#: NumPy's global generator.
NOISE: Any = np.random

FEWER: dict[str, Any] = {"rng": 0, "num_trials": 300, "driven_checks": 5}


@pytest.fixture
def few_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_laws(monkeypatch, "random", "tied", "reversed", "equal")


def left(p: Any, q: Any) -> Any:
    """Wrong: p itself where two of its entries are equal."""
    return p if np.unique(p).size < p.size else residual(p, q)


wrong_in_ties = mistaken(left=lambda p, q, x: left(p, q))


def test_small_laws_are_of_all_kinds() -> None:
    tied, falling, equal = fixed_laws(4)
    assert tied.target(()).tolist() == [0.25] * 4
    assert tied.draft(()) == pytest.approx([0.7, 0.1, 0.1, 0.1])
    assert falling.target(()) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert falling.draft((1, 3)).tolist() == falling.draft(()).tolist()  # four turns
    assert falling.draft((1,)) == pytest.approx([0.4, 0.1, 0.2, 0.3])
    assert np.count_nonzero(np.maximum(falling.target(()) - falling.draft(()), 0)) == 2
    assert equal.target((2,)).tolist() == equal.draft((2,)).tolist()
    for drafts in (1, 2, 3):
        laws = {one.name: one for one in standard_laws(drafts)}
        assert {"random", "tied", "reversed", "equal", "zeros", "certain target"} <= {*laws}
        for one in laws.values():
            for text in ((), (1,), (2, 3)):
                assert one.target(text).sum() == pytest.approx(1)
                assert one.draft(text).sum() == pytest.approx(1)


@pytest.mark.usefixtures("few_laws")
def test_chains_and_single_tokens_meet_ties() -> None:
    report = mo.audit_chain(wrong_in_ties, num_drafts=1, **FEWER)
    assert (report.verdict_class, report.worst.law) == ("lossy", "tied")
    assert report.worst.report.total_variation == pytest.approx(0.1125)
    assert mo.audit_chain(standard, num_drafts=1, **FEWER).verdict_class == "no deviation"

    def verify(target: Any, draft: Any, drafts: Any, rng: Any) -> int:
        return wrong_in_ties(np.array([target, target]), np.array([draft]), drafts)[0]

    report = mo.audit_portfolio(verify, num_drafts=1, **FEWER)
    assert (report.verdict_class, report.worst.law) == ("lossy", "tied")
    assert report.worst.report.total_variation == pytest.approx(0.1125)


@pytest.mark.parametrize("method", ["auto", "sampling"])
def test_trees_meet_ties_beside_the_laws_that_are_given(method: str) -> None:
    laws = TableModel(3, 6), TableModel(3, 7)
    options: dict[str, Any] = {"method": method, "num_trials": 4_000, "driven_checks": 5}
    report = mo.audit_tree(chain(left=left), *laws, "chain2", 0, **options)
    assert report.verdict_class == "lossy"
    assert report.laws == "on tied laws with V = 4, tried beside those given"
    assert mo.audit_tree(chain(), *laws, "chain2", 0, **options).clean


def test_engines_meet_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = engines.Adapter(
        package="numpy",
        tested=(np.__version__,),
        path="numpy.py",
        function="verify",
        made=lambda shipped: lambda p, q, drafts: tuple(wrong_in_ties(p, q, drafts)),
    )
    found = engines.audit_engine(adapter.engine("ties", any_version=False))
    assert found.verdict_class == "lossy"
    assert "tied laws" in found.verdict


def session(wrong: str = "") -> Callable[[Any, Any], list[int]]:
    """Drafts by a race of exponentials; what replaces a refused one, by another or the same."""

    def generate(target: Any, draft: Any) -> list[int]:
        text: list[int] = []
        while len(text) < 3:
            p, q = softmax(target(text)[-1]), softmax(draft(text)[-1])
            noise = NOISE.exponential(size=q.size)
            x = int(np.argmax(q / noise))
            if random.random() * q[x] < p[x]:
                text.append(x)
                continue
            if wrong != "noise of the draft":
                noise = NOISE.exponential(size=q.size)
            text.append(int(np.argmax((left if wrong == "ties" else residual)(p, q) / noise)))
        return text

    return generate


@pytest.mark.parametrize(
    ("wrong", "length", "num_texts"), [("noise of the draft", 1, 9_000), ("ties", 2, 20_000)]
)
def test_texts_meet_laws_that_show_what_random_ones_hide(
    wrong: str, length: int, num_texts: int
) -> None:
    options: dict[str, Any] = {"method": "sampling", "vocab_sizes": (4,), "length": length}
    report = mo.audit_text(session(wrong), 0, num_texts=num_texts, **options)
    assert report.verdict_class == "lossy", report.verdict


ragged, ties_in_rows = by_rows(standard), by_rows(wrong_in_ties)


def skips_rows_without_drafts(p: Any, q: Any, drafts: Any) -> list[list[int]]:
    tokens = ragged(p, q, drafts)
    return [row if n else [0] for row, n in zip(tokens, lengths(drafts), strict=True)]


def skips_batches_without_drafts(p: Any, q: Any, drafts: Any) -> list[list[int]]:
    return ragged(p, q, drafts) if max(lengths(drafts)) else [[0]] * len(p)


def takes_another_row_when_alone(p: Any, q: Any, drafts: Any) -> list[list[int]]:
    return ragged(p, q, drafts) if len(p) > 1 else [[int(np.argmax(p[0, 0]))]]


def one_uniform_where_laws_are_equal(p: Any, q: Any, drafts: Any) -> list[list[int]]:
    """Rows of one law are decided by the first of them."""
    if not (p[0, 0] == p[-1, 0]).all() or len(p) == 1:
        return ragged(p, q, drafts)
    once = drawn(p[0, 0])
    return [[once] for _ in range(len(p))]


@pytest.mark.parametrize(
    "verify",
    [
        skips_rows_without_drafts,
        skips_batches_without_drafts,
        takes_another_row_when_alone,
        one_uniform_where_laws_are_equal,
        pytest.param(ties_in_rows, id="ties_in_rows"),
    ],
)
def test_batches_meet_rows_of_all_kinds(verify: Any) -> None:
    report = mo.audit_chain(verify, rng=0, batch=3, num_trials=6_000)
    assert report.verdict_class == "lossy", report.verdict


def test_a_batch_that_takes_no_single_row_is_told_and_not_accused() -> None:
    def of_three(p: Any, q: Any, drafts: Any) -> list[list[int]]:
        if len(p) != 3:
            raise ValueError("three rows")
        return ragged(p, q, drafts)

    report = mo.audit_chain(of_three, rng=0, batch=3, num_trials=400)
    assert report.verdict_class == "no deviation"
    assert any(
        note.endswith("one row: not tried, as it raised ValueError: three rows")
        for note in report.notes
    )
    assert {one.report.num_trials for one in report.tried} != {400}  # rows of one law


def test_calls_that_fail_by_rounding_are_an_edge() -> None:
    """Where p = q but for the last bit, a residual may be nothing, once in 2^53 draws."""

    def verify(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> tuple[int, int]:
        p = p * (1.0 - 2.0**-53)
        for n, x in enumerate(drafts):
            if rng.random() >= p[n, x] / q[n, x]:
                left = np.maximum(p[n] - q[n], 0.0)
                return n, int(rng.choice(left.size, p=left / left.sum()))
        return len(drafts), int(rng.choice(p.shape[1], p=p[-1]))

    with np.errstate(invalid="ignore"):
        report = mo.audit_chain(verify, 0, num_drafts=1, num_trials=300, driven_checks=10)
    assert report.verdict_class == "edge", report.verdict
    assert 0.0 < report.edge_mass < 1e-12
    assert report.answer(1.0) == "EDGE"
