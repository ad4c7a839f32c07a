"""Advice held against what others measured and published, with the right sign.

Each says which numbers are theirs; what they do not give is filled in, and named as such.
"""

from __future__ import annotations

import pytest

import mdsd_opt as mo
from mdsd_opt.formats import read_counts


def row(advice, drafts):
    return next(x for x in advice.rows if x.depth == drafts)


def alike(alpha, k, steps=20_000):
    """Totals of K drafts that are accepted at one rate."""
    return {
        "accepted": steps * sum(alpha**i for i in range(1, k + 1)),
        "drafted": steps * k,
        "depth": k,
    }


def test_a_draft_whose_cost_grows_with_the_batch_does_not_pay():
    """vLLM 26504: 56 tokens a second and 1.66 times plain at batch 1, .85 at batch 32.

    Filled in: three drafts at .766, rows free at batch 1, 75.4 ms of plain decoding and 137 of 128
    rows at batch 32. Theirs: the two speed-ups, 56 a second, a draft pass of 37 ms at batch 32.
    """
    counts = alike(0.766, 3)
    plain, first = 29.65, 6.78
    alone = mo.advise_from_counts(
        **counts, target_ms=plain, draft_ms=first, rows_ms={1: plain, 4: plain}
    )
    assert row(alone, 3).speedup.mean == pytest.approx(1.66, abs=0.01)
    assert row(alone, 3).tokens_per_second == pytest.approx(56.0, abs=0.3)
    assert alone.worth_it is True
    both = {"target_ms": {1: plain, 32: 75.4}, "rows_ms": {64: 96.0, 128: 137.0}, "batch": 32}
    forgotten = mo.advise_from_counts(**counts, draft_ms=first, **both)
    assert row(forgotten, 3).speedup.mean == pytest.approx(1.34, abs=0.01)
    assert forgotten.worth_it is None  # never a bare "worth it" by the cost of batch 1
    assert "a draft pass for 32 texts takes 6.78 ms as well" in forgotten.sentence
    measured = mo.advise_from_counts(**counts, draft_ms={1: first, 32: 37.0}, **both)
    assert row(measured, 3).speedup.mean == pytest.approx(0.85, abs=0.01)
    assert row(measured, 3).speedup.high < 1.0
    assert measured.worth_it is not True
    assert alone.depth >= 3 > 1 >= measured.rows[0].depth


def test_rows_that_are_not_free_do_not_pay():
    """SpecForge 339: .72 times plain measured where 1.37 is said with rows left free.

    Filled in: four drafts that come one by one at .622, each .188 of a target pass, and a pass over
    five rows of 2.58 times one over a row, from the two speed-ups; two rows take 2.2.
    """
    counts, target = alike(0.622, 4), 20.0
    free = mo.advise_from_counts(**counts, target_ms=target, draft_ms=0.188 * target)
    assert row(free, 4).speedup.mean == pytest.approx(1.37, abs=0.02)
    assert free.worth_it is None
    assert free.sentence.startswith("If rows are free: ")
    rows = {1: target, 2: 2.2 * target, 5: 2.58 * target}
    known = mo.advise_from_counts(**counts, target_ms=target, draft_ms=0.188 * target, rows_ms=rows)
    assert row(known, 4).speedup.mean == pytest.approx(0.72, abs=0.01)
    assert known.worth_it is False
    assert known.sentence.startswith("Not worth it: ")


def test_totals_of_llamacpp_are_read_and_not_taken_for_a_rate(tmp_path):
    """llama.cpp 24508: 1,093 of 1,717 drafts accepted, .637, with a stop by confidence.

    Filled in: 16 drafts at most, and 700 steps.
    """
    path = tmp_path / "server.log"
    path.write_text("draft acceptance rate = 0.63659 ( 1093 accepted / 1717 generated)\n")
    counts = read_counts(path, 16)
    assert counts.sum("accepted") / counts.sum("drafted") == pytest.approx(0.63659, abs=2e-5)
    stopped = mo.advise_from_counts(1093, 1717, depth=16, steps=700)
    first = row(stopped, 1).by_assumption
    # accepted of drafted is less than how often a draft that is reached is accepted
    assert first["alike"] > 1093 / 1717
    assert stopped.worth_it is None
