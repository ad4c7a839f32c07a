"""The bias that a report says would have been found is found, in the directions hardest to see."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from support.hidden_bias import (
    BEYOND,
    FOUND,
    SEEDS,
    biased,
    found_in,
    low_bit_lost,
    problem_of,
    sampled_from,
    window,
    zipf,
)
from support.reused_states import verifier

import mdsd_opt as mo
from mdsd_opt.auditing.checks import any_bias, direction_check
from mdsd_opt.evidence import random_checks, unseen_bias


@pytest.mark.parametrize(("law", "length"), [([0.5, 0.3, 0.2], 8), ([0.9, 0.1, 0.0], 10)])
def test_a_bet_that_sees_every_direction_has_exact_errors(law: list[float], length: int) -> None:
    """Over all sequences of outcomes: a p-value of alpha or less has a probability of alpha."""
    p = np.array(law)
    outcomes = np.array(list(itertools.product(np.flatnonzero(p).tolist(), repeat=length)))
    masses = p[outcomes].prod(axis=1)
    p_values = np.array([direction_check(p, row).p_value for row in outcomes])
    order = np.argsort(p_values)
    assert masses.sum() == pytest.approx(1)
    assert (np.cumsum(masses[order]) <= p_values[order] * (1 + 1e-9))[p_values[order] < 1].all()
    assert p_values.min() < 0.2


def test_a_bias_of_the_stated_size_is_found_in_every_direction() -> None:
    p, trials, level = zipf(300), 6_000, 1e-7
    size = any_bias(p, trials, level, 0.99)
    assert size < 0.2
    names = []
    for name, m in biased(p, BEYOND * size):
        names.append(name)
        assert 0.5 * np.abs(m - p).sum() == pytest.approx(BEYOND * size)
        found = 0
        for seed in range(SEEDS):
            outcomes = np.random.default_rng(seed).choice(p.size, trials, p=m)
            found += direction_check(p, outcomes).p_value < level
        assert found >= FOUND, name
    assert len(names) > 4
    rng = np.random.default_rng(0)
    right = [direction_check(p, rng.choice(p.size, trials, p=p)).p_value for _ in range(SEEDS)]
    assert min(right) > 1e-3


def test_ids_that_lose_a_bit_are_found_and_both_numbers_have_their_words() -> None:
    """No class of tokens by p/q shows that; a bias of .156 was said to be below .018."""
    problem = problem_of(zipf(30_000))
    wrong = low_bit_lost(problem.target)
    assert 0.1 < 0.5 * np.abs(wrong - problem.target).sum() < 0.5
    report = mo.audit(sampled_from(wrong), problem, 0, batched=True)
    assert report.verdict_class == "lossy"
    right = mo.audit(sampled_from(problem.target), problem, 0, batched=True)
    assert right.verdict_class == "no deviation"
    assert (right.direction, right.classes) == (
        "in any direction",
        "between classes of tokens by p/q",
    )
    assert right.class_bias < 0.02 < 0.04 < right.detectable_bias < 0.06
    told = (
        f"a bias of {right.detectable_bias:.2g} in any direction (one of {right.class_bias:.2g} "
        "between classes of tokens by p/q) would have been found with probability 0.99"
    )
    assert told in right.verdict
    assert right.to_dict()["class_bias"] == right.class_bias
    assert right.trials_needed(right.detectable_bias) == pytest.approx(100_000, rel=0.01)


def test_where_tokens_are_compared_one_by_one_there_are_no_classes() -> None:
    problem = problem_of(np.array([0.4, 0.3, 0.2, 0.1]))
    report = mo.audit(sampled_from(problem.target), problem, 0, 4_000, batched=True)
    assert (report.direction, report.class_bias, report.classes) == ("in any direction", None, "")
    assert f"a bias of {report.detectable_bias:.2g} in any direction would" in report.verdict


def test_random_checks_go_where_drafts_are_likely() -> None:
    shares = np.array([0.7, 0.2, 0.0999, 0.0001])
    checks, unseen = random_checks(shares, 100, 0.99)
    assert sum(checks) == pytest.approx(1_600, rel=0.02)
    assert checks[-1] == 10
    assert unseen == pytest.approx(unseen_bias(1_600, 0.99), rel=0.01)
    # one part that differs, as rarely as that, is missed once in a hundred times
    for share, check in zip(shares, checks, strict=True):
        if share > unseen:
            assert (1 - unseen / share) ** check <= 0.0101


def test_what_random_checks_could_have_missed_is_said_and_more_is_found() -> None:
    """A window of two uniforms is no step of either, and is met by chance alone.

    Up to .25 of the first one the draft is accepted, which is what is wrongly given in the window.
    """
    problem = mo.TransportProblem([0.4, 0.3, 0.2, 0.1], mo.WithReplacement([0.1, 0.2, 0.3, 0.4], 1))
    options: dict[str, Any] = {"method": "driven", "driven_checks": 40, "edge_probes": 0}
    passed = mo.audit(verifier(), problem, 0, 100, **options)
    assert passed.verdict_class == "lossless"
    hidden = passed.detectable_bias
    assert hidden == pytest.approx(unseen_bias(40 * 16, 0.99), rel=0.02)
    assert f"random checks (below {hidden:.2g} may be hidden)" in passed.verdict
    width = np.sqrt(BEYOND * hidden / 0.4)
    found = found_in(
        mo.audit(window(3, width, 0.3 + seed / 40), problem, seed, 100, **options)
        for seed in range(SEEDS)
    )
    assert found >= FOUND


def test_laws_that_are_all_certain_show_nothing() -> None:
    tokens = np.random.default_rng(0).integers(0, 5, (40, 8))
    report = mo.audit_tokens(np.eye(5)[tokens], tokens, drafted=1_000)
    assert (report.verdict_class, report.finding) == ("not judged", "no choice")
    assert "every law has one possible token" in report.verdict
    steps = tokens.ravel()
    trace = mo.audit_trace(np.eye(5)[steps], None, np.empty((steps.size, 0), int), steps)
    assert trace.verdict_class == "not judged"
    assert "every law has one possible token" in trace.verdict
    # where some laws leave a choice, they alone count
    laws = np.eye(5)[tokens]
    laws[:, ::2] = 0.2
    half = mo.audit_tokens(laws, tokens, drafted=1_000)
    whole = mo.audit_tokens(np.full((40, 8, 5), 0.2), tokens, drafted=1_000)
    assert half.verdict_class == whole.verdict_class == "no deviation"
    assert half.detectable_bias > 1.3 * whole.detectable_bias
    assert "towards one of the laws bet on would have been found" in whole.verdict


def test_records_say_between_which_bins_their_number_holds() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(40), (2, 400))
    tokens = np.array([rng.choice(40, p=row) for row in p])
    drafts = np.array([rng.choice(40, p=row) for row in q])[:, None]
    report = mo.audit_trace(p, q, drafts, tokens)
    told = "towards one of the laws bet on"
    assert report.direction == told
    assert told in report.verdict
    assert report.class_bias is None
