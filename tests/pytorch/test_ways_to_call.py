"""Functions for chains are called with the arrays that they take: PyTorch's where NumPy's raise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.chain_verifiers import limit_laws, standard

import mdsd_opt as mo
from mdsd_opt.auditing import chains
from mdsd_opt.errors import InvalidInput


@pytest.fixture(autouse=True)
def few_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_laws(monkeypatch, "reversed")
    monkeypatch.setattr(chains, "wide_laws", lambda length, sizes: [])


FEW: dict[str, Any] = {"num_trials": 400, "edge_probes": 0, "method": "sampling", "detect": 1.0}


def of_tensors(p: Any, q: Any, drafts: Any, wrong: bool = False) -> list[int]:
    """Rejection token by token in PyTorch's own words, which arrays do not know."""
    ratio = (p[:-1].gather(1, drafts[:, None]) / q.gather(1, drafts[:, None]))[:, 0].clamp(max=1)
    for n in range(len(drafts)):
        if torch.rand(()) >= ratio[n]:
            left = (p[n] - q[n]).abs() if wrong else (p[n] - q[n]).clamp(min=0)
            return [*drafts[:n].tolist(), int(torch.multinomial(left, 1))]
    return [*drafts.tolist(), int(torch.multinomial(p[-1], 1))]


@pytest.mark.parametrize("batch", [False, True])
def test_tensors_are_tried_where_arrays_raise(batch: bool) -> None:
    def verify(p: Any, q: Any, drafts: Any, wrong: bool = False) -> Any:
        row = slice(None) if not batch else 0
        return of_tensors(p[row], q[row], drafts[row], wrong)

    report = mo.audit_chain(verify, batch=batch, **FEW)
    assert report.answer() == "PASS", report.verdict
    told = [note for note in report.notes if "PyTorch tensors" in note]
    assert len(told) == 1
    assert told[0].startswith("called with PyTorch tensors, as arrays raised ")
    wrong = mo.audit_chain(lambda *given: verify(*given, wrong=True), batch=batch, **FEW)
    assert wrong.answer() == "FAIL"
    asked = mo.audit_chain(verify, batch=batch, library="torch", **FEW)
    assert asked.answer() == "PASS"
    assert not any("PyTorch tensors" in note for note in asked.notes)
    with pytest.raises(InvalidInput, match="fails on every call"):
        mo.audit_chain(verify, batch=batch, library="numpy", **FEW)


def test_arrays_that_are_taken_stay() -> None:
    kinds = set()

    def verify(p: Any, q: Any, drafts: Any) -> list[int]:
        kinds.add(type(p))
        return standard(p, q, drafts)

    mo.audit_chain(verify, **FEW)
    assert kinds == {np.ndarray}


def test_where_both_raise_both_are_named() -> None:
    def verify(p: Any, q: Any, drafts: Any) -> list[int]:
        raise KeyError(type(p).__module__)

    with pytest.raises(InvalidInput, match=r"KeyError: 'numpy', and with PyTorch.*'torch'"):
        mo.audit_chain(verify, **FEW)
