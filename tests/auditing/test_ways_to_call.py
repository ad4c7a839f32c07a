"""Functions of another signature are never called in vain."""

from __future__ import annotations

from typing import Any

import pytest

import mdsd_opt as mo
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.errors import InvalidInput


def wrong_at(call: str) -> Any:
    """An audit of a function that takes one argument, and how often that was called."""
    calls = []

    def verify(one: Any) -> Any:
        calls.append(one)

    problem = mo.TransportProblem([0.5, 0.5], mo.WithReplacement([0.3, 0.7], 1))
    table = TableModel(3, 6)
    audits: dict[str, Any] = {
        "verifier": lambda: mo.audit(verify, problem),
        "verifier, laws of all kinds": lambda: mo.auditing.audit_portfolio(verify),
        "chain": lambda: mo.audit_chain(verify),
        "rows": lambda: mo.audit_chain(verify, batch=3),
        "tree": lambda: mo.audit_tree(verify, table, table, "chain1"),
        "tree, laws of all kinds": lambda: mo.audit_tree(verify),
        "text": lambda: mo.audit_text(verify),
    }
    return audits[call], calls


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("verifier", "target, draft, drafts, rng"),
        ("verifier, laws of all kinds", "target, draft, drafts, rng"),
        ("chain", "p, q, drafts"),
        ("rows", "p, q, drafts"),
        ("tree", "root, rng"),
        ("tree, laws of all kinds", "root, rng"),
        ("text", "target, draft"),
    ],
)
def test_wrong_signatures_end_before_the_first_call(call: str, expected: str) -> None:
    audit, calls = wrong_at(call)
    with pytest.raises(InvalidInput) as refused:
        audit()
    assert f"is called with ({expected}), and takes (" in str(refused.value)
    assert not calls
