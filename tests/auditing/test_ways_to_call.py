"""Functions of another signature are never called in vain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import mdsd_opt as mo
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.errors import InvalidInput

PROBLEM = mo.TransportProblem([0.5, 0.5], mo.WithReplacement([0.3, 0.7], 1))
TABLE = TableModel(3, 6)

#: Audits, and what each of them gives a function.
AUDITS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "verifier": (lambda f: mo.audit(f, PROBLEM), "target, draft, drafts, rng"),
    "verifier, laws of all kinds": (mo.audit_portfolio, "target, draft, drafts, rng"),
    "chain": (mo.audit_chain, "p, q, drafts"),
    "rows": (lambda f: mo.audit_chain(f, batch=3), "p, q, drafts"),
    "tree": (lambda f: mo.audit_tree(f, TABLE, TABLE, "chain1"), "root, rng"),
    "tree, laws of all kinds": (mo.audit_tree, "root, rng"),
    "text": (mo.audit_text, "target, draft"),
}


@pytest.mark.parametrize("call", AUDITS)
def test_wrong_signatures_end_before_the_first_call(call: str) -> None:
    calls = []

    def verify(one: Any) -> None:
        calls.append(one)

    audit, expected = AUDITS[call]
    with pytest.raises(InvalidInput) as refused:
        audit(verify)
    assert f"is called with ({expected}), and takes (" in str(refused.value)
    assert not calls
