"""Draws that an engine makes from other generators than the one it is given."""

from __future__ import annotations

import random
import threading
from operator import le
from random import random as bound_before
from typing import Any

import numpy as np
import pytest
from support.reused_states import CASES, verifier

import mdsd_opt as mo
from mdsd_opt.auditing import served
from mdsd_opt.auditing.tape import Tape

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
    first, second = (
        mo.audit(verify, PROBLEM, 5, 500, method="sampling").to_dict() for _ in range(2)
    )
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
    verify = verifier(lambda _: (random.random(), random.random()), accepts=le)
    report = mo.audit(verify, WITH_ZERO, 0, 300, method="sampling")
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


def in_a_thread() -> float:
    drawn = []
    thread = threading.Thread(target=lambda: drawn.append(random.random()))
    thread.start()
    thread.join()
    return drawn[0]


@pytest.mark.parametrize("draw", [bound_before, in_a_thread], ids=["bound", "thread"])
def test_a_draw_that_no_source_answers_is_sampled(draw: Any) -> None:
    """It is seeded by the audit as all others are."""

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        return int(np.searchsorted(np.cumsum(p)[:-1], draw(), side="right"))

    reports = [mo.audit(verify, PROBLEM, 3, 2_000) for _ in range(2)]
    assert reports[0].to_dict() == reports[1].to_dict()
    assert (reports[0].verdict_class, reports[0].method) == ("no deviation", "sampling")
    assert reports[0].notes == (
        "not driven, and sampled: its outcome varied although no draw was served",
    )


IN_A_CALL = ("rng", "rng copied", "rng jumped", "rng spawned", "numpy.random", "random")
ACROSS_CALLS = ("rng at the end", "rng kept", "random kept", "random seeded twice")


@pytest.mark.parametrize(
    ("name", "method"),
    [*((name, "auto") for name in (*IN_A_CALL, *ACROSS_CALLS)), ("random", "sampling")],
)
def test_a_state_that_comes_back_brings_its_numbers_back(name: str, method: str) -> None:
    """All kinds are in the folder `stress`."""
    wrong, right = (
        mo.audit(
            verifier(CASES[name](is_wrong)),
            PROBLEM,
            0,
            2_000,
            method=method,
            edge_probes=32,
            driven_checks=50,
        )
        for is_wrong in (True, False)
    )
    assert wrong.verdict_class == "lossy", wrong.verdict
    expected = "lossless" if right.method == "driven" else "no deviation"
    assert right.verdict_class == expected, right.verdict


def test_a_state_from_an_earlier_call_is_named_with_its_line() -> None:
    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        random.seed(3)
        return int(np.searchsorted(np.cumsum(p)[:-1], random.random(), side="right"))

    report = mo.audit(verify, PROBLEM, 0, 200)
    line = verify.__code__.co_firstlineno + 2
    assert report.verdict_class == "lossy"
    assert report.notes == (
        "not driven, and sampled: it draws from a state that a generator was in at an earlier "
        f"call, at test_audit_served.py:{line}",
    )


def test_other_numbers_of_one_state_are_not_made_up() -> None:
    """What of two uniforms is in three integers, only the generator itself knows."""

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        state = random.getstate()
        random.getrandbits(8)
        random.setstate(state)
        return int(np.searchsorted(np.cumsum(p)[:-1], random.random(), side="right"))

    report = mo.audit(verify, PROBLEM, 0, 500)
    assert (report.verdict_class, report.method) == ("no deviation", "sampling")


def test_a_generator_that_was_kept_goes_on() -> None:
    """The one of the first call, in driving as in sampling."""

    class Keeps:
        rng = None

        def __call__(self, p: Any, q: Any, drafts: Any, rng: Any) -> int:
            self.rng = self.rng or rng
            return verifier()(p, q, drafts, self.rng)

    for method in ("auto", "sampling"):
        assert mo.audit(Keeps(), PROBLEM, 0, 2_000, method=method).clean


def test_what_is_read_of_served_generators_is_what_it_would_be() -> None:
    with served(Tape()) as serving, serving.inside:
        bits = serving.rng.bit_generator
        assert bits.state["bit_generator"] == "PCG64"
        assert isinstance(bits, np.random.PCG64)
        assert np.random.get_state()[0] == "MT19937"  # noqa: NPY002
        assert len(serving.rng.spawn(3)) == 3
        assert serving.rng.exponential([1.0, 2.0], (3, 2)).shape == (3, 2)
        assert serving.rng.gumbel([0.0, 1.0]).shape == (2,)
        assert isinstance(serving.rng.uniform(), float)
        assert serving.rng.random(2, out=np.zeros(2)).dtype == np.float64
        assert serving.rng.standard_exponential(2, dtype=np.float32).dtype == np.float32
        with pytest.raises(ValueError, match="scale < 0"):
            serving.rng.exponential(-1.0)
        for kind in (np.random.Philox, np.random.SFC64, np.random.PCG64DXSM, np.random.MT19937):
            own = np.random.Generator(kind())
            state = own.bit_generator.state
            first = own.random(3).tolist()
            assert len(set(first)) == 3
            own.bit_generator.state = state
            assert own.random(3).tolist() == first


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
