"""The exact answers against slower ones, and planted errors, which must be counted."""

from __future__ import annotations

import numpy as np
import pytest
from stress import reference
from stress.areas import run
from stress.problems import draw_case
from stress.weights import floating, rational
from support import oracles

import mdsd_opt as mo
from mdsd_opt.problem import certificate


@pytest.mark.parametrize("seed", range(8))
def test_exact_answers_are_those_of_the_oracles(seed):
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 5, (3, 4)) + np.eye(3, 4, dtype=int)
    p, q, r = (rational(row.tolist()) for row in numbers)
    both = oracles.independent([q.exact, r.exact])
    for contained, law in (
        (reference.with_replacement(q, 3), oracles.with_replacement(q.exact, 3)),
        (reference.without_replacement(q, 2), oracles.without_replacement(q.exact, 2)),
        (reference.of_law(both, 4), both),
    ):
        assert reference.optimum(p, contained) == oracles.optimum_by_flow(p.exact, law)
        for h, found in enumerate(contained):
            assert found == oracles.containment(law, [i for i in range(4) if h >> i & 1])


@pytest.mark.parametrize("numbers", [[1, 1, 3, 3, 3], [1e-17, 1, 1, 1e-17, 1], [1, 1, 2, 0, 1]])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_curves_of_two_weights_are_those_of_all_subsets(numbers, k):
    q, p = floating(numbers), rational([3, 1, 4, 1, 5])
    order = reference.ratio_order(p, q)
    contained = reference.without_replacement(q, k)
    expected = [contained[reference.mask_of(order[:j])] for j in range(len(order) + 1)]
    assert reference.two_weight_race_curve(q, order, k) == expected
    assert reference.best_prefix(p, order, expected) == reference.optimum(p, contained)
    even = rational([1] * 5)
    contained = reference.without_replacement(even, k)
    expected = [contained[2**j - 1] for j in range(6)]
    assert reference.uniform_race_curve(even, list(range(5)), k) == expected


def test_a_seed_gives_the_same_instance_again():
    first, second = (draw_case(np.random.default_rng([3, 1]), "mixture") for _ in range(2))
    assert str(first) == str(second)
    assert first.optimum == second.optimum


def _wrong(area, kind, seeds):
    counts = run(area, seeds).counts
    return sum(wrong for name, (_, wrong) in counts.items() if name.startswith(kind))


def test_a_containment_that_is_off_is_counted(monkeypatch):
    right = mo.WithReplacement._containment
    monkeypatch.setattr(
        mo.WithReplacement, "_containment", lambda self, subset: right(self, subset) + 2e-12
    )
    assert _wrong("schemes", "with replacement", range(2)) == 2


def test_evidence_that_is_believed_is_counted(monkeypatch):
    monkeypatch.setattr(certificate, "claim_violations", lambda *given: [])
    assert _wrong("evidence", "Solution", range(1)) > 10


def test_an_error_is_counted_and_printed_with_its_instance(monkeypatch):
    def fail(self):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(mo.TopKDrafts, "support_law", fail)
    tally = run("schemes", range(1))
    assert tally.counts["top-K"] == [1, 1]
    assert any("planted" in text and "TopKDrafts(" in text for text in tally.failures)
    assert all(text.startswith("schemes:0 ") for text in tally.failures)
