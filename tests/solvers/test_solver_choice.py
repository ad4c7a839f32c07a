"""The choice of "auto", made in advance, against what trying one method after another finds."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.drafts import (
    DraftScheme,
    PrefixDraftScheme,
    mixture,
    with_replacement,
    without_replacement,
)
from mdsd_opt.errors import InvalidInput, ProblemTooLarge
from mdsd_opt.solvers import choose
from mdsd_opt.solvers.method import LIMITS
from mdsd_opt.solvers.solving import _seconds_compiled


def q(vocab_size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([vocab_size, seed]).dirichlet(np.ones(vocab_size))


def problem_of(drafts: DraftScheme) -> mo.TransportProblem:
    return mo.TransportProblem(q(drafts.vocab_size, 9), drafts)


def two_without_replacement(v: int, k: int, other_k: int | None = None) -> DraftScheme:
    """No prefix order and no product form."""
    first = mo.WithoutReplacement(q(v, 0), k)
    second = mo.WithoutReplacement(q(v, 1), other_k or k)
    return mo.MixtureDrafts([(0.5, first), (0.5, second)])


def tried(problem: mo.TransportProblem, limits: dict[str, Any]) -> str:
    """The first of these methods that does not refuse."""
    solvers = mo.methods()
    if isinstance(problem.drafts, PrefixDraftScheme):
        return "subset_selection"
    without = {name: limits[name] for name in limits if name == "time_limit"}
    if mo.solve(problem, "submodular", **without).stats.get("proof_tiles") is not None:
        return "submodular"  # branch and bound: independent draws
    for name in ("full_lp", "max_flow"):
        try:
            solvers[name].solve(problem, **limits)
            return name
        except ProblemTooLarge:
            pass
    return "submodular"


SCHEMES = {
    "with replacement": mo.WithReplacement(q(6), 3),
    "more drafts than tokens": mo.WithoutReplacement(q(3), 5),
    "greedy": mo.GreedyDrafts(q(5), 3),
    "top-K": mo.TopKDrafts(q(5), 2),
    "one model, two lengths": mo.MixtureDrafts(
        [(0.5, mo.WithReplacement(q(5), 1)), (0.5, mo.WithReplacement(q(5), 3))]
    ),
    "a fixed set beside sorted drafts": mo.FixedPlusDrafts([2], mo.WithReplacement(q(5), 2)),
    "one token": mo.DraftSetLaw(1, {(0,): 1}),
    "nothing drafted": mo.DraftSetLaw(3, {(): 1}),
    "independent": mo.IndependentDrafts([q(6, 1), q(6, 2)]),
    "independent and one-hot": mo.IndependentDrafts([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]),
    "a fixed set beside independent drafts": mo.FixedPlusDrafts(
        [0], mo.IndependentDrafts([q(6, 1), q(6, 2)])
    ),
    "a mixture of independent drafts": mo.MixtureDrafts(
        [(0.5, mo.IndependentDrafts([q(5, 1), q(5, 2)])), (0.5, mo.WithReplacement(q(5, 3), 3))]
    ),
    "sets": mo.DraftSetLaw(4, {(0, 2): 0.5, (1,): 0.25, (): 0.25}),
    "a fixed set beside sets": mo.FixedPlusDrafts([1], mo.DraftSetLaw(4, {(0, 2): 0.5, (3,): 0.5})),
    "a mixture without a product form": two_without_replacement(6, 2),
    "greedy or independent": mo.MixtureDrafts(
        [(0.5, mo.GreedyDrafts(q(5), 2)), (0.5, mo.IndependentDrafts([q(5, 1), q(5, 2)]))]
    ),
    "too many to list": two_without_replacement(17, 16),
    "one of two too many to list": two_without_replacement(17, 2, 16),
    "too many beside a fixed set": mo.FixedPlusDrafts([0], two_without_replacement(17, 16)),
    "all of many tokens": two_without_replacement(16, 16),
}


def boundaries(problem: mo.TransportProblem) -> list[dict[str, Any]]:
    """Limits on both sides of every size that one of the methods compares with them."""
    supports, arcs = problem.drafts.count_supports()
    sizes = (arcs, 100 * problem.vocab_size)
    num_bytes = (1000 * arcs, 40 * arcs + 48 * supports, 2400 * problem.vocab_size)
    return [
        {},
        {"time_limit": 20.0},
        {"max_variables": 0},
        *({"max_variables": size - step} for size in sizes for step in (0, 1)),
        *({"max_bytes": size - step} for size in num_bytes for step in (0, 1)),
    ]


@pytest.mark.parametrize("name", SCHEMES)
def test_the_choice_is_what_trying_finds(name: str) -> None:
    problem = problem_of(SCHEMES[name])
    for limits in boundaries(problem):
        choice = choose(problem, limits)
        assert choice.method == tried(problem, limits), limits
        try:
            message = mo.solve(problem, **limits).message
        except ProblemTooLarge as refusal:
            message = str(refusal)
        told = f"auto took {choice.method}: {choice.reason}. "
        refused = choice.method == "submodular" and message.startswith("submodular (minimum")
        assert message.startswith(told) or refused


def test_the_table_of_the_docstring_has_no_empty_row() -> None:
    taken = {
        (choice.method, choice.reason.partition("order")[2])
        for drafts in SCHEMES.values()
        for limits in boundaries(problem_of(drafts))
        for choice in [choose(problem_of(drafts), limits)]
    }
    assert len(taken) == 5


class BuiltError(Exception):
    """The size was accepted, and the draft sets are being listed."""


@pytest.mark.parametrize(
    ("vocab_size", "num_drafts", "method"),
    [
        (707, 2, "full_lp"),  # 2 V (V - 1) arcs, of 1,000,000
        (708, 2, "max_flow"),
        (5793, 2, "max_flow"),  # of 2^26
        (5794, 2, "submodular"),
        (2000, 12, "submodular"),
        (17, 15, "full_lp"),  # K 2^K passes of Python, of 1,000,000
        (17, 16, "submodular"),
    ],
)
def test_the_boundaries_of_the_default_budget(
    vocab_size: int, num_drafts: int, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(*_: Any) -> Any:
        raise BuiltError

    for module in (with_replacement, without_replacement, mixture.SupportLaw):
        name = "from_sets" if isinstance(module, type) else "subsets_of_size"
        monkeypatch.setattr(module, name, built)
    problem = problem_of(two_without_replacement(vocab_size, num_drafts))
    assert choose(problem, {}).method == method
    for name in ("full_lp", "max_flow"):
        accepted = name == method or (name == "max_flow" and method == "full_lp")
        with pytest.raises(BuiltError if accepted else ProblemTooLarge):
            mo.solve(problem, name)


def test_the_choice_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in (mo.WithoutReplacement, mo.MixtureDrafts, mo.DraftSetLaw):
        monkeypatch.setattr(scheme, "support_law", None)
        monkeypatch.setattr(scheme, "containment", None)
    assert choose(problem_of(two_without_replacement(50, 2)), {}).method == "full_lp"


def test_auto_takes_the_limits_and_no_other_option() -> None:
    listed = ", ".join((*LIMITS, "tolerance", "verbose"))
    with pytest.raises(InvalidInput, match=f"'backend'. Its options: {listed}; name a method"):
        mo.solve(problem_of(SCHEMES["sets"]), backend="highs")
    shared = [o for o in mo.methods()["full_lp"].options if o in mo.methods()["max_flow"].options]
    assert list(LIMITS) == shared


@pytest.mark.parametrize("backend", ["highs", "cvxpy"])
def test_solvers_write_nothing_among_the_results(backend: str) -> None:
    """Not once for a process either, as HiGHS does; what is printed before and after stays."""
    code = f"""
import mdsd_opt as mo
print("before")
problem = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 2))
print(round(mo.solve(problem, "full_lp", backend="{backend}").acceptance_rate, 6))
"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["before", "0.86"]


def test_another_user_of_highs_may_have_started_its_threads() -> None:
    problem = mo.TransportProblem(q(5, 1), mo.WithReplacement(q(5), 2))
    for _ in range(2):
        rates = [
            mo.solve(problem, "full_lp", backend=x).acceptance_rate for x in ("cvxpy", "highs")
        ]
        assert rates[0] == pytest.approx(rates[1], abs=1e-7)


def test_a_compiler_that_another_thread_is_importing_has_taken_no_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A module stands in `sys.modules` before it has its functions."""
    monkeypatch.setitem(sys.modules, "mdsd_opt.base.numba_cache", ModuleType("half"))
    assert _seconds_compiled() == 0.0
