"""States of generators that are put back, copied, jumped and seeded, in all ways that are known."""

from __future__ import annotations

from typing import Any

import pytest
from support import reused_states
from support.reused_states import chain_of, of_legacy, of_made, of_python, of_rng, text_of, verifier

import mdsd_opt as mo

PROBLEM = mo.TransportProblem([0.4, 0.3, 0.2, 0.1], mo.WithReplacement([0.1, 0.2, 0.3, 0.4], 1))

CASES = dict(reused_states.CASES)
PARTS: dict[str, Any] = {
    "rng": of_rng,
    "default_rng": of_made,
    "numpy.random": of_legacy,
    "random": of_python,
}
try:
    import torch
except ImportError:
    pass
else:
    from support import torch_reused_states

    torch.set_num_threads(1)
    CASES |= torch_reused_states.CASES
    PARTS["torch"] = torch_reused_states.of_torch
    PARTS["torch.Generator"] = torch_reused_states.of_own


@pytest.fixture(autouse=True)
def _some_of_them(request: pytest.FixtureRequest) -> None:
    """A share of all kinds where that was asked for: the same ones each time."""
    scale = request.config.getoption("scale")
    if sum(map(ord, request.node.name)) % 1000 >= 1000 * scale:
        pytest.skip("left out by --scale")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("method", ["auto", "sampling"])
def test_numbers_that_come_twice_are_found(name: str, method: str) -> None:
    report = mo.audit(verifier(CASES[name](True)), PROBLEM, 0, 10_000, method=method)
    assert report.verdict_class == "lossy", report.verdict


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("method", ["auto", "sampling"])
def test_the_same_without_harm_is_not_accused(name: str, method: str) -> None:
    for seed in range(4):
        report = mo.audit(verifier(CASES[name](False)), PROBLEM, seed, 4_000, method=method)
        expected = "lossless" if report.method == "driven" else "no deviation"
        assert report.verdict_class == expected, report.verdict


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("is_wrong", [True, False])
def test_chains(name: str, is_wrong: bool) -> None:
    report = mo.audit_chain(chain_of(PARTS[name], is_wrong), rng=0, seconds=3_600.0)
    assert report.verdict_class == ("lossy" if is_wrong else "no deviation"), report.verdict
    assert is_wrong or sum(one.report.method == "driven" for one in report.tried) == 9


@pytest.mark.parametrize("name", [name for name in PARTS if name != "rng"])
@pytest.mark.parametrize("is_wrong", [True, False])
def test_texts(name: str, is_wrong: bool) -> None:
    report = mo.audit_text(text_of(PARTS[name], is_wrong), rng=0, seconds=3_600.0)
    assert report.verdict_class == ("lossy" if is_wrong else "no deviation"), report.verdict
