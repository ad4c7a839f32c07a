"""Are drafts really drawn from the law assumed?"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from scipy import stats
from support.strategies import Case, cases

import mdsd_opt as mo
from mdsd_opt.auditing.draft_audit import transform
from mdsd_opt.errors import InvalidInput

Q = np.array([0.4, 0.0, 0.3, 0.2, 0.1])
OTHER = np.array([0.1, 0.2, 0.3, 0.2, 0.2])
SCHEMES = {
    "with_replacement": mo.WithReplacement(Q, 3),
    "without_replacement": mo.WithoutReplacement(Q, 3),
    "whole_support": mo.WithoutReplacement(Q, 5),
    "greedy": mo.GreedyDrafts(Q, 3),
    "greedy_whole_support": mo.GreedyDrafts(Q, 6),
    "top_k": mo.TopKDrafts(Q, 2),
    "independent": mo.IndependentDrafts([Q, OTHER]),
    "set_law": mo.DraftSetLaw(5, {(0, 1): 0.5, (2,): 0.3, (): 0.2}),
    "fixed_plus": mo.FixedPlusDrafts([3], mo.WithReplacement(Q, 2)),
    "mixture": mo.MixtureDrafts(
        [
            (0.4, mo.WithReplacement(Q, 1)),
            (0.3, mo.WithReplacement(Q, 3)),
            (0.3, mo.WithoutReplacement(Q, 2)),
        ]
    ),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_draws_from_its_own_law(name: str) -> None:
    report = mo.audit_drafts(SCHEMES[name], SCHEMES[name], 0, 4_000)
    assert report.clean, report.verdict
    assert report.drafts_follow_law
    assert report.subject == "drafts"
    assert report.acceptance_rate is None


@given(cases(max_vocab=4, max_drafts=3))
def test_exactly_the_drawable_tuples_are_possible(case: Case) -> None:
    """Every tuple of tokens and padding, against the law enumerated from the definition."""
    k = case.drafts.num_drafts
    listed = set(case.law)
    first, inner = 0, case.drafts
    if inner.scheme == "fixed_plus":
        first, inner = inner.always_drafted.size, inner.beside_fixed or inner
    if inner.scheme == "set_law":  # in any order, behind the fixed tokens
        listed = {(*drafts[:first], *sorted(drafts[first:])) for drafts in listed}
    tuples = np.array(list(product(range(-1, len(case.target)), repeat=k)), dtype=np.int64)
    _, possible = transform(case.drafts, tuples, np.random.default_rng(0))
    for row, verdict in zip(tuples.tolist(), possible.tolist(), strict=True):
        drawn = tuple(i for i in row if i >= 0)
        padded_last = row == [*drawn, *[-1] * (k - len(drawn))]
        if inner.scheme == "set_law":
            rest = sorted(i for i in row[first:] if i >= 0)
            distinct = len(set(rest)) == len(rest)
            assert verdict == (distinct and (*row[:first], *rest) in listed)
        else:
            assert verdict == (padded_last and drawn in listed)


@given(cases(max_vocab=4, max_drafts=3))
def test_transformed_tuples_tile_the_cube(case: Case) -> None:
    """The volume of uniforms that a tuple is sent to is its probability.

    The transform of a tuple is uniform on a box: its sides are read off from noise 0 and noise 1.
    """
    k = case.drafts.num_drafts
    law = {key + (-1,) * (k - len(key)): mass for key, mass in case.law.items()}
    tuples = np.array(list(law), dtype=np.int64).reshape(len(law), k)

    class Constant:
        def __init__(self, value: float) -> None:
            self.value = value

        def random(self, shape: Any) -> Any:
            return np.full(shape, self.value)

    low, _ = transform(case.drafts, tuples, Constant(0.0))  # type: ignore[arg-type]
    high, _ = transform(case.drafts, tuples, Constant(1.0))  # type: ignore[arg-type]
    assert (low >= -1e-12).all()
    assert (high <= 1 + 1e-12).all()
    volumes = (high - low).prod(axis=1)
    np.testing.assert_allclose(volumes, [float(mass) for mass in law.values()], atol=1e-12)
    # no two boxes overlap: some side separates them
    for n in range(len(law)):
        apart = (high[:n] <= low[n] + 1e-12) | (low[:n] >= high[n] - 1e-12)
        assert apart.any(axis=1).all()


def test_repeats_where_there_should_be_none_are_impossible() -> None:
    report = mo.audit_drafts(SCHEMES["with_replacement"], SCHEMES["without_replacement"], 0, 300)
    assert not report.clean
    assert report.p_value == 0.0
    assert report.violations[0].kind == "impossible drafts"
    assert "NOT FROM THIS LAW" in report.verdict
    assert "cannot be drawn under WithoutReplacement" in report.verdict


def test_missing_repeats_are_found() -> None:
    report = mo.audit_drafts(SCHEMES["without_replacement"], SCHEMES["with_replacement"], 0, 300)
    assert not report.clean
    assert report.num_violations == 0
    repeats = next(check for check in report.checks if check.name == "repeats")
    assert repeats.p_value < 1e-12


def test_a_draft_of_probability_zero_is_impossible() -> None:
    drafts = SCHEMES["with_replacement"].sample(np.random.default_rng(0), 1_000)
    drafts[17, 2] = 1
    report = mo.audit_drafts(lambda rng, size: drafts, SCHEMES["with_replacement"], 0, 1_000)
    assert report.num_violations == 1
    assert report.violations[0].drafts == tuple(drafts[17].tolist())


@pytest.mark.parametrize(
    ("temperature", "num_trials"), [(1.25, 4_000), (0.8, 4_000)], ids=["warmer", "colder"]
)
@pytest.mark.parametrize("name", ["with_replacement", "without_replacement", "greedy"])
def test_another_temperature_is_found(name: str, temperature: float, num_trials: int) -> None:
    scheme = type(SCHEMES[name])
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=3_000)
    assumed = scheme(mo.softmax(logits), 2)  # type: ignore[call-arg]
    other = scheme(mo.softmax(logits, temperature), 2)  # type: ignore[call-arg]
    report = mo.audit_drafts(other, assumed, 0, num_trials)
    assert not report.clean
    assert mo.audit_drafts(assumed, assumed, 0, num_trials).clean


def test_drafts_that_depend_on_each_other_are_found() -> None:
    """Each draft follows q, but the second is the first one's neighbour half of the time."""
    rng = np.random.default_rng(0)
    q = np.full(1_000, 1 / 1_000)
    scheme = mo.WithReplacement(q, 2)

    def sample(rng: np.random.Generator, size: int) -> Any:
        drafts = scheme.sample(rng, size)
        near = rng.random(size) < 0.5
        drafts[near, 1] = (drafts[near, 0] + 1) % 1_000
        return drafts

    report = mo.audit_drafts(sample, scheme, rng, 1_000)
    assert not report.clean
    by_name = {check.name: check.p_value for check in report.checks}
    assert by_name["single tokens"] > 1e-4
    assert by_name["each draft"] > 1e-4
    assert by_name["neighbouring drafts"] < 1e-20


def test_one_token_too_often_is_found_among_many() -> None:
    q = np.full(50_000, 1 / 50_000)

    def sample(rng: np.random.Generator, size: int) -> Any:
        return np.where(rng.random((size, 2)) < 0.004, 7, rng.integers(50_000, size=(size, 2)))

    report = mo.audit_drafts(sample, mo.WithReplacement(q, 2), 0, 2_000)
    assert not report.clean
    assert report.tokens[0].token == 7
    assert len(report.tokens) == 1


def test_false_alarms_come_as_rarely_as_stated() -> None:
    alarms = sum(
        not mo.audit_drafts(scheme, scheme, seed, 200, false_alarm=0.05).clean
        for seed in range(40)
        for scheme in SCHEMES.values()
    )
    assert stats.binom.sf(alarms - 1, 400, 0.05) > 1e-4


def test_samplers_of_one_tuple_and_of_many() -> None:
    scheme = SCHEMES["independent"]
    one = mo.audit_drafts(lambda rng: scheme.sample(rng), scheme, 0, 500)
    many = mo.audit_drafts(scheme.sample, scheme, 0, 500)
    assert one.clean
    assert many.clean


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (3, "sample is 3"),
        (lambda rng, size: np.zeros((size, 2), int), r"shape \(50, 2\).*\(50, 3\)"),
        (lambda rng, size: np.zeros((size, 3)), "dtype float64"),
        (lambda rng: [0, 1], r"shape \(50, 2\)"),
        (lambda rng, size: 1 // 0, "sample failed with ZeroDivisionError"),
        (lambda rng, size: [[1], [2, 3]], "sample failed"),
    ],
)
def test_malformed_samples_are_errors(sample: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        mo.audit_drafts(sample, SCHEMES["with_replacement"], 0, 50)


def test_tokens_outside_the_vocabulary_are_impossible() -> None:
    drafts = np.full((50, 3), 9)
    report = mo.audit_drafts(lambda rng, size: drafts, SCHEMES["with_replacement"], 0, 50)
    assert report.num_violations == 50
    assert not report.clean


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (lambda: [0, 1, 2], "sample is called with (rng), and takes ()"),
        (lambda rng, size, law: [0] * 3, "sample is called with (rng, size), and takes (rng, size"),
        (lambda *, rng: [0] * 3, "sample is called with (rng), and takes (*, rng)"),
    ],
)
def test_a_sampler_of_another_signature_ends_before_the_first_call(sample: Any, expected: str):
    with pytest.raises(InvalidInput) as told:
        mo.audit_drafts(sample, SCHEMES["with_replacement"])
    assert str(told.value).startswith(expected)
