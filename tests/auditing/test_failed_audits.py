"""What an audit that is not passed says: one example to repeat, and no interval that holds 0."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.auditing import engines, on_laws
from mdsd_opt.auditing.engines.engine import Drafted, Engine
from mdsd_opt.auditing.laws import TableModel
from mdsd_opt.evidence import Bar
from mdsd_opt.trees import parse_topology

PROBLEM = mo.TransportProblem([0.5, 0.3, 0.2, 0.0], mo.WithReplacement([0.1, 0.2, 0.3, 0.4], 1))
TABLES = TableModel(3, seed=6), TableModel(3, seed=7)


def drafted(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    return int(drafts[0])


def rarely_impossible(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
    return 3 if rng.random() < 0.01 else int(rng.choice(4, p=target))


def in_turn() -> Callable[..., int]:
    """Tokens that follow the target one by one, and come in the same order again and again."""
    tokens = cycle(np.random.default_rng(0).permutation([0] * 50 + [1] * 30 + [2] * 20).tolist())
    return lambda target, draft, drafts, rng: next(tokens)


def on_tree(root: Any, rng: np.random.Generator) -> list[int]:
    return [int(root.draws[0]), 0]


def chain(p: Any, q: Any, drafts: Any) -> Any:
    return [*drafts, 0]


def text(target: Any, draft: Any) -> list[int]:
    return [int(np.argmax(draft([])[0]))]


def trace(law: Any) -> Any:
    rng = np.random.default_rng(0)
    target = np.tile([0.5, 0.3, 0.2], (400, 1))
    return mo.audit_trace(target, None, np.empty((400, 0), int), rng.choice(3, 400, p=law))


AUDITS: dict[str, Callable[[], Any]] = {
    "a token too often": lambda: mo.audit(drafted, PROBLEM, 5, 500, method="sampling"),
    "driven": lambda: mo.audit(drafted, PROBLEM, 5, 300, method="driven"),
    "an impossible token": lambda: mo.audit(rarely_impossible, PROBLEM, 5, 500, method="sampling"),
    "outputs in turn": lambda: mo.audit(in_turn(), PROBLEM, 5, 3_000, edge_probes=0),
    "drafts": lambda: mo.audit_drafts(
        mo.WithReplacement([0.4, 0.3, 0.2, 0.1], 1), PROBLEM.drafts, 5, 500
    ),
    "drafts beside tokens": lambda: mo.audit(
        lambda p, q, x, rng: int(rng.choice(4, p=p)), PROBLEM, 5, 500,
        sample=mo.WithReplacement([0.4, 0.3, 0.2, 0.1], 1).sample,
    ),
    "a tree": lambda: mo.audit_tree(on_tree, *TABLES, "chain2", 5),
    "a sampled tree": lambda: mo.audit_tree(on_tree, *TABLES, "chain2", 5, 500, method="sampling"),
    "chains": lambda: mo.audit_chain(chain, 5, num_trials=300),
    "verifiers": lambda: mo.audit_portfolio(drafted, 5, num_trials=300),
    "texts": lambda: mo.audit_text(text, 5, num_texts=300),
    "sampled texts": lambda: mo.audit_text(text, 5, num_texts=300, method="sampling"),
    "recorded steps": lambda: trace([0.2, 0.3, 0.5]),
}  # fmt: skip


@pytest.mark.parametrize("kind", AUDITS)
def test_a_failure_has_an_example_and_no_interval_that_holds_zero(kind: str) -> None:
    report = AUDITS[kind]()
    assert report.answer(1.0) == "FAIL"
    example = report.example
    assert example.seed == (0 if kind == "recorded steps" else 5)
    assert f"seed {example.seed}" in example.said
    assert example.said in str(report)
    assert report.to_dict()["example"]["where"] == example.where
    if example.tokens:
        assert 0 <= example.stated != example.counted <= 1
        assert example.calls <= report.num_trials
    else:
        wrong = [v.message for v in (*report.violations, *report.edge_violations)]
        wrong += [f"{c.looks_for} (check of {c.name})" for c in report.checks if c.p_value < 1e-9]
        assert any(example.where.startswith(one) for one in wrong)
        assert kind != "drafts beside tokens" or "tuple" in example.where
    interval = report.total_variation_interval
    assert interval is None or interval.low > 0 or kind == "drafts beside tokens"


def test_the_example_of_a_law_has_its_probabilities() -> None:
    report = AUDITS["driven"]()
    assert (report.example.where, report.example.calls) == (report.violations[0].message, 0)
    example = AUDITS["a tree"]().example
    assert (example.calls, len(example.tokens)) == (0, 3)
    assert (example.tokens[1] == 0) == (example.counted > 0)  # the second token is always 0


def test_what_passes_has_none() -> None:
    report = mo.audit("optimal", PROBLEM, 5, 2_000)
    assert (report.answer(1.0), report.example) == ("PASS", None)
    assert "example" not in dict(report.rows())


def test_the_search_for_causes_counts_towards_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still, but for the search, which takes a hundred seconds of it."""
    clock, deadlines = [0.0], []

    def search(*arguments: Any) -> str:
        deadlines.append(arguments[4])
        clock[0] += 100.0
        return "found"

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(on_laws, "behaviour", search)
    report = mo.audit_chain(chain, 0, num_trials=200, seconds=30)
    assert deadlines == [30.0]
    assert report.seconds == 100.0
    assert report.cause == "found"


def test_an_engine_that_cannot_be_driven_is_sampled_until_it_can_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_a_seed(target: Any, rng: np.random.Generator) -> int:
        own = np.random.default_rng(int(rng.integers(2**32)))
        return int(own.choice(target.size, p=target))

    class Mine(Engine):
        def __call__(self, target: Any, draft: Any, drafts: Any, rng: Any) -> int:
            return with_a_seed(target, rng)

    def few(*given: Any, **options: Any) -> Any:
        return mo.audit_tree(*given, num_trials=300, **options)

    monkeypatch.setattr(engines, "audit_tree", few)
    chain = Drafted(parse_topology("chain1"))
    engine = Mine(
        "mine", "mine", "1", "mine", "", lambda root, rng: [with_a_seed(root.target, rng)], chain
    )
    found = engines.audit_engine(engine)
    assert (found.zeros.method, found.zeros.num_trials) == ("sampling", 20_000)
    assert found.zeros.answer() == "PASS"
    assert found.zeros.notes[0].startswith("not driven")
    assert Bar().answer(found) == "TOO WEAK"  # 300 steps of the tree
    assert found.example is None
