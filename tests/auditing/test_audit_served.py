"""Draws that an engine makes from other generators than the one it is given."""

from __future__ import annotations

import random
import sys
import threading
from random import random as bound_before
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.auditing import served
from mdsd_opt.errors import UnservedDraw

PROBLEM = mo.TransportProblem([0.4, 0.3, 0.2, 0.1], mo.WithReplacement([0.1, 0.2, 0.3, 0.4], 1))
WITH_ZERO = mo.TransportProblem([0.6, 0.4, 0.0], mo.WithReplacement([0.2, 0.3, 0.5], 1))


def of_python(p: Any, q: Any, drafts: Any, rng: Any) -> int:
    x = int(drafts[0])
    if random.random() * q[x] < p[x]:
        return x
    return random.choices(range(len(p)), np.maximum(p - q, 0).tolist())[0]


def of_numpy(p: Any, q: Any, drafts: Any, rng: Any) -> int:
    x = int(drafts[0])
    if np.random.rand() * q[x] < p[x]:  # noqa: NPY002
        return x
    left = np.maximum(p - q, 0)
    return int(np.random.choice(len(p), p=left / left.sum()))  # noqa: NPY002


@pytest.mark.parametrize("verify", [of_python, of_numpy])
def test_the_audit_answers_for_every_generator(verify: Any) -> None:
    first, second = (mo.audit(verify, PROBLEM, 5, 500).to_dict() for _ in range(2))
    assert first == second  # it depends on the audit's seed alone
    assert first["verdict_class"] == "no deviation"
    assert not first["lossless"]  # a bias of .2 may be hidden
    assert first["num_edge_probes"] > 20
    driven = mo.audit(verify, PROBLEM, 0, 200, method="driven")
    assert driven.verdict_class == "lossless"
    assert driven.lossless
    assert driven.total_variation < 1e-12


def test_choices_by_number_are_exact_branches() -> None:
    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        return random.choice([0, 0, 0, 0, 1, 1, 1, 2, 2, 3])

    report = mo.audit(verify, PROBLEM, 0, 200, method="driven")
    assert report.clean
    assert report.total_variation < 1e-15


def test_an_edge_of_another_generator_is_reached() -> None:
    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        x = int(drafts[0])
        if random.random() * q[x] <= p[x]:
            return x
        return random.choices(range(len(p)), np.maximum(p - q, 0).tolist())[0]

    report = mo.audit(verify, WITH_ZERO, 0, 300)
    assert not report.clean
    assert "draw 0 (uniform) equal to 0, once in 2**53 draws, gave token 2" in report.verdict


def test_the_generators_are_left_as_they_were() -> None:
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    methods = random.random, random.getrandbits, dict(vars(random._inst))  # type: ignore[attr-defined]
    with served(0):
        served_numbers = random.random(), random.uniform(2, 3), np.random.rand()  # noqa: NPY002
        with served(0):
            assert random.random() == served_numbers[0]
        random.shuffle([1, 2, 3])
    after = random.getstate(), np.random.get_state()  # noqa: NPY002
    assert after[0] == states[0]
    assert all(np.array_equal(a, b) for a, b in zip(after[1], states[1], strict=True))
    left = random.random, random.getrandbits, dict(vars(random._inst))  # type: ignore[attr-defined]
    assert left == methods
    assert 2 <= served_numbers[1] < 3


def in_a_thread() -> int:
    thread = threading.Thread(target=random.random)
    thread.start()
    thread.join()
    return 0


@pytest.mark.parametrize("method", ["sampling", "driven"])
@pytest.mark.parametrize(
    "draw", [bound_before, in_a_thread, lambda: random.seed(0)], ids=["bound", "thread", "seed"]
)
def test_a_draw_past_the_audit_is_refused(draw: Any, method: str) -> None:
    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        draw()
        return int(rng.choice(4, p=p))

    calls = []
    with pytest.raises(UnservedDraw, match="past the audit"):
        mo.audit(lambda *a: calls.append(0) or verify(*a), PROBLEM, 0, 50_000, method=method)
    assert len(calls) == 1  # and not after fifty thousand of them


def test_where_no_draw_is_reached_the_report_says_so() -> None:
    class Own:
        """Draws from a generator that nobody can see."""

        rng = np.random.default_rng(0)

        def __call__(self, p: Any, q: Any, drafts: Any, rng: Any) -> int:
            return int(self.rng.choice(4, p=p))

    report = mo.audit(Own(), PROBLEM, 0, 500)
    assert report.num_edge_probes == 0
    assert dict(report.rows())["edges of the draws"].startswith("not probed")
    seen = mo.audit(of_python, PROBLEM, 0, 500)
    assert f"{seen.num_edge_probes} calls" in dict(seen.rows())["edges of the draws"]


def test_draws_from_mlx_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its generator keeps its state in arrays; a list of them stands in for it here."""
    state = [np.array([0, 1], np.uint32)]
    stand_in = SimpleNamespace(random=SimpleNamespace(state=state))
    monkeypatch.setitem(sys.modules, "mlx.core", stand_in)

    def draws_there(target: Any, draft: Any, drafts: Any, rng: Any) -> int:
        state[0] = state[0] + 1
        return int(drafts[0])

    with pytest.raises(UnservedDraw, match=r"mlx.*, which is not served"):
        mo.audit(draws_there, PROBLEM, 0, 100)
    assert mo.audit("rrs", PROBLEM, 0, 100).clean
