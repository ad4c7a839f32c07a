"""Generators that follow a script, the edges of the uniforms, and laws found by driving."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from wrong_verifiers import faultless

import mdsd_opt as mo
from mdsd_opt.auditing.scripted import LARGEST_UNIFORM, ScriptedBits
from mdsd_opt.errors import InvalidInput

TARGET = np.array([0.4, 0.3, 0.2, 0.1])
DRAFT = np.array([0.1, 0.2, 0.3, 0.4])
PROBLEM = mo.TransportProblem(TARGET, mo.WithReplacement(DRAFT, 2))


def test_scripted_bits_make_a_real_generator() -> None:
    bits = ScriptedBits()
    rng = bits.generator
    assert isinstance(rng, np.random.Generator)
    bits.restart({0: 0.0, 1: 0.25, 3: LARGEST_UNIFORM})
    drawn = rng.random(4)
    assert drawn[0] == 0.0
    assert drawn[1] == 0.25
    assert 0 < drawn[2] < 1
    assert drawn[3] == LARGEST_UNIFORM < 1
    assert bits.drawn == 4
    assert not bits.drew_bits


def test_scripted_uniforms_reach_every_kind_of_draw() -> None:
    bits = ScriptedBits()
    rng = bits.generator
    bits.restart({0: 0.0})
    assert rng.random(dtype=np.float32) == 0.0
    bits.restart({0: LARGEST_UNIFORM})
    assert rng.random(dtype=np.float32) == 1 - 2.0**-24
    bits.restart({0: 0.45})
    assert rng.choice(4, p=TARGET) == 1
    bits.restart({0: 0.5})
    assert rng.uniform(2, 3) == 2.5
    bits.restart({0: 0.0})
    assert rng.standard_exponential() == 0.0
    assert bits.drew_bits


def test_the_largest_uniform_is_the_largest() -> None:
    assert np.finfo(float).epsneg == (1.0 - LARGEST_UNIFORM)


def test_a_driven_law_is_that_of_the_rule() -> None:
    report = mo.audit(faultless, PROBLEM, 0, 2_000, method="driven")
    assert report.lossless
    assert report.p_value is None
    assert report.total_variation < 1e-12
    # recursive rejection sampling accepts 1 - (1 - r_1)(1 - r_2) with replacement
    residual = np.maximum(TARGET - DRAFT, 0)
    r1 = np.minimum(TARGET, DRAFT).sum()
    r2 = np.minimum(residual / residual.sum(), DRAFT).sum()
    assert report.acceptance_rate == pytest.approx(1 - (1 - r1) * (1 - r2), abs=1e-12)


def test_a_driven_law_shows_a_bias_that_no_sample_could() -> None:
    def verify(target: Any, draft: Any, drafts: Any, rng: np.random.Generator) -> int:
        if rng.random() < 1e-7:
            return 3
        return faultless(target, draft, drafts, rng)

    sampled = mo.audit(verify, PROBLEM, 0, 2_000, method="sampling")
    driven = mo.audit(verify, PROBLEM, 0, 2_000, method="driven")
    assert sampled.lossless
    assert not driven.lossless
    assert driven.total_variation == pytest.approx(0.9e-7, rel=1e-3)


@pytest.mark.parametrize(
    ("verify", "reason"),
    [
        (lambda p, q, x, rng: int(rng.random() < rng.random()), "depend on uniforms drawn before"),
        (lambda p, q, x, rng: int(rng.integers(4)), "raw bits"),
        (lambda p, q, x, rng: int(np.argmin(rng.random(16))) % 4, "more than 12 uniforms"),
        (lambda p, q, x, rng: 9, "outside 0..3"),
        (lambda p, q, x, rng: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_driven_is_refused(verify: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        mo.audit(verify, PROBLEM, 0, 100, method="driven")


WITH_ZERO = mo.TransportProblem([0.6, 0.4, 0.0], mo.WithReplacement([0.2, 0.3, 0.5], 2))


def accepts_at_zero(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> int:
    for x in drafts:
        if rng.random() * q[x] <= p[x]:
            return int(x)
        p = np.maximum(p - q, 0)
        p = p / p.sum()
    return int(rng.choice(3, p=p))


def races_into_nan(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> int:
    """0 / 0 is NaN, which argmin takes for the smallest."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return int(np.argmin(-np.log1p(-rng.random(3)) / p))


def overruns_the_table(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> int:
    """The cumulative sum ends just below one, so the largest uniform finds no token."""
    reached = np.cumsum(p) * (1 - 1e-15)
    return int(np.arange(3)[np.searchsorted(reached, rng.random(), side="right")])


@pytest.mark.parametrize(
    ("verify", "kind", "message"),
    [
        (accepts_at_zero, "impossible token", "token 2"),
        (races_into_nan, "impossible token", "token 2"),
        (overruns_the_table, "exception", "IndexError"),
    ],
)
def test_edges_are_found(verify: Any, kind: str, message: str) -> None:
    problem = WITH_ZERO
    report = mo.audit(verify, problem, 0, 2_000, method="sampling")
    assert not report.lossless
    assert report.num_violations == 0  # no sample shows it
    assert report.p_value is not None
    assert report.p_value > 1e-3
    assert report.edge_violations[0].kind == kind
    assert message in report.edge_violations[0].message
    assert "edge" in report.verdict


def test_exceptions_at_the_edge_are_violations() -> None:
    def verify(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> int:
        uniform = rng.random()
        return int(rng.choice(3, p=p)) if 1 // uniform else 0

    report = mo.audit(verify, WITH_ZERO, 0, 500, method="sampling")
    assert not report.lossless
    assert report.edge_violations[0].kind == "exception"
    assert "draw 0 equal to 0 raised ZeroDivisionError" in report.edge_violations[0].message


def test_a_strict_comparison_passes_the_edges() -> None:
    report = mo.audit(faultless, WITH_ZERO, 0, 2_000, method="sampling")
    assert report.lossless
    assert report.num_edge_probes > 50


def test_edge_probes_can_be_limited() -> None:
    report = mo.audit(faultless, WITH_ZERO, 0, 200, method="sampling", edge_probes=7)
    assert report.num_edge_probes == 7
    report = mo.audit(accepts_at_zero, WITH_ZERO, 0, 200, method="sampling", edge_probes=0)
    assert report.lossless


def test_a_driven_law_is_called_no_proof() -> None:
    """The probes may miss a step: whatever the law found looks like, nothing was proved."""
    report = mo.audit(faultless, PROBLEM, 0, 2_000, method="driven")
    assert report.law_proven_lossless is None
    assert "as far as the probes tell" in report.verdict
    biased = mo.audit(lambda *_: 0, PROBLEM, 0, 100, method="driven", edge_probes=0)
    assert biased.verdict.startswith("NOT LOSSLESS: as far as the probes tell")
    for shown in (str(report), str(biased)):
        assert "exact" not in shown
        assert "proven" not in shown
        assert (
            "as far as the probes tell"
            in dict(line.split("  ", 1) for line in shown.splitlines())["total variation"]
        )
