"""What is wrong is never called lossless, and what is right is never called lossy: some of each."""

from __future__ import annotations

import numpy as np
import pytest
from support.planted_chains import BY_LAW, Parts, right_ones, wrong_ones

import mdsd_opt as mo
from mdsd_opt.auditing.laws import standard_laws, wide_laws

WRONG = wrong_ones()


def test_the_oracle_knows_what_is_right():
    for laws in standard_laws(1):
        p = np.array([laws.target((0,) * n) for n in range(3)])
        q = np.array([laws.draft((0,) * n) for n in range(2)])
        assert Parts().distance(p, q) < 1e-12
        nothing_left = laws.name == "certain target" or np.array_equal(p[:-1], q)
        assert nothing_left or BY_LAW["residual is p"].distance(p, q) > 1e-3


@pytest.mark.exhaustive
def test_a_fault_that_no_law_shows_is_not_called_lossless():
    hidden = Parts(accept=lambda p, q, x: 1.0 if x == 777 else min(1.0, p[x] / q[x]))
    report = mo.audit_chain(hidden.made(), rng=0)
    assert report.verdict_class == "no deviation"
    wide = wide_laws(3)[-1]
    distance = hidden.distance(np.array(wide.rows), np.array(wide.draft_rows))
    assert 0 < distance < report.detectable_bias


@pytest.mark.exhaustive
def test_a_fault_in_every_so_many_calls_is_told_by_its_period():
    report = mo.audit_chain(WRONG["the argmax in every 50th call"](), rng=0, num_trials=4_000)
    assert report.verdict_class == "lossy"
    assert any("a multiple of 50 calls apart" in note for note in report.notes)


@pytest.mark.exhaustive
def test_what_rounds_is_an_edge():
    verify, options = right_ones()["block, by_choice, numpy float32"]
    report = mo.audit_chain(verify, rng=0, **options)
    assert report.verdict_class == "edge"
    assert report.total_variation < 1e-6
    assert "as float32 arithmetic can be" in report.verdict


@pytest.mark.parametrize("kind", ["exact_match, by_sum, numpy", "standard, by_choice, numpy"])
def test_what_is_right_passes(kind):
    verify, options = right_ones()[kind]
    report = mo.audit_chain(verify, rng=0, **options)
    assert report.verdict_class == "no deviation", report.verdict
    assert report.lossless
    assert 0 < report.detectable_bias < 0.05
