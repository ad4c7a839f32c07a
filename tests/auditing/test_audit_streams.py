"""Audits of random streams, on samplers that share what engines have shared, and on mended ones."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support import stream_toys as toys

import mdsd_opt as mo
from mdsd_opt.errors import ForeignFault, InvalidInput, UnknownName

FEW = partial(mo.audit_streams, vocab_size=0, num_trials=2_000)

#: Faults, and what is said of each.
FAULTS = [
    (toys.ResidualOfTheDraft, "the role is not in the key", "draft", "residual"),
    (toys.CoinInTheResidual, "the role is not in the key", "accept", "residual"),
    (toys.OneStateWithoutSeeds, "two requests without a seed", "a request", "the next one"),
    (toys.AddedKeys, "seed, position and role are mixed", "seed s,", "seed s + 1"),
    (toys.NoPosition, "the position is not in the key", "position 0", "position 1"),
]


def here(sampler: Any) -> Any:
    """A sampler that no other process can be given."""
    return lambda requests: sampler(requests)


@pytest.mark.parametrize(("toy", "how", "first", "second"), FAULTS, ids=lambda x: str(x)[:40])
def test_what_is_shared_is_found_and_named(toy: Any, how: str, first: str, second: str) -> None:
    report = FEW(here(toy(0)), 0)
    assert report.verdict_class == "lossy"
    assert how in report.verdict
    named = [pair for pair in report.shared if pair.how.startswith(how)]
    assert any(first in x.first and second in x.second for x in named)
    assert all(how in pair.how for pair in report.shared)  # and nothing else is


@pytest.mark.parametrize("toy", [toys.Toy, toys.CoinOfItsOwn, toys.Race])
def test_mended_samplers_are_not_accused_beyond_the_stated_rate(toy: Any) -> None:
    asked = partial(FEW, num_trials=500, false_alarm=0.05)
    reports = [asked(here(toy(seed)), seed) for seed in range(20)]
    accused = sum(report.verdict_class == "lossy" for report in reports)
    assert accused <= stats.binom.ppf(0.999, 20, 0.05)
    assert not any(violation for report in reports for violation in report.violations)


def test_the_output_over_seeds_is_as_far_off_as_its_law_says() -> None:
    """One token, exactly: what shared coins refuse and what their residual inverts to."""
    p, q = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    left = np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()
    ends = np.concatenate([[0.0], left.cumsum()])
    accept = np.minimum(1.0, p / q)
    law = q * accept
    for x in range(4):  # the uniform is above accept[x] and between two ends
        law += q[x] * np.maximum(ends[1:] - np.maximum(ends[:-1], accept[x]), 0.0)
    exact = np.abs(np.outer(law, law) - np.outer(p, p)).sum() / 2
    report = FEW(here(toys.CoinInTheResidual(0)), 0, num_trials=8_000)
    low, high = report.total_variation_interval
    assert low <= exact <= high
    assert exact > 0.05


def test_drafts_may_share_their_numbers_with_plain_samples() -> None:
    report = FEW(here(toys.Race(0)), 0)
    assert report.clean
    assert any("share their numbers" in note for note in report.notes)
    assert not any("share their numbers" in note for note in FEW(here(toys.Toy(0)), 0).notes)


def test_a_law_that_is_off_is_not_called_shared() -> None:
    report = FEW(here(toys.Biased(0)), 0)
    assert report.verdict_class == "lossy"
    assert "do not follow their law" in report.verdict
    assert "depend on each other" not in report.verdict


def test_a_seed_that_depends_on_its_batch_is_no_seed() -> None:
    report = FEW(here(toys.RowInTheKey(0)), 0)
    assert report.answer() == "FAIL"
    assert report.verdict.startswith("NOT REPEATABLE")
    assert "in a batch of" in report.verdict


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_bits_of_a_seed_that_are_not_read_are_told(bits: int) -> None:
    toy = toys.Toy(0)

    def cut(requests: list[mo.StreamRequest]) -> Any:
        return toy([replace(r, seed=r.seed and r.seed % 2**bits) for r in requests])

    report = FEW(cut, 0, num_trials=500, requests="seeded")
    told = [note for note in report.notes if "bits of a seed" in note]
    assert [f"only the lowest {bits} bits" in note for note in told] == [True] * (bits < 64)
    assert report.clean


def test_states_that_a_seed_begins_are_as_good_as_keys() -> None:
    """A generator for each request, kept by its name, which goes on by draws."""
    states: dict[int, np.random.Generator] = {}

    def drawn(requests: list[mo.StreamRequest]) -> list[int]:
        rngs = [states.setdefault(r.request, np.random.default_rng(r.seed)) for r in requests]
        laws = [np.exp(r.logits) for r in requests]
        return [int(g.choice(law.size, p=law)) for g, law in zip(rngs, laws, strict=True)]

    report = FEW(drawn, 0, num_trials=500)
    assert report.clean, report.verdict

    def by_seed(requests: list[mo.StreamRequest]) -> list[int]:
        """Two requests of one seed take turns."""
        renamed = [replace(r, request=-1 - (r.seed or r.request)) for r in requests]
        return drawn(renamed)

    found = FEW(by_seed, 0, num_trials=500)
    assert found.answer() == "FAIL"
    assert "does not give its tokens again" in found.verdict


def test_processes_that_begin_alike(monkeypatch: Any) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    alike = FEW(toys.SameInEveryProcess(0), 0)
    assert "a new process without a seed begins as the last one did" in alike.verdict
    right = FEW(toys.Toy(0), 0)
    assert right.clean
    assert not right.notes
    assert any(check.name.startswith("two processes") for check in right.checks)
    kept = FEW(here(toys.Toy(0)), 0)
    assert any("two processes were not compared" in note for note in kept.notes)


#: What becomes of an even uniform in a sampler.
FORMS = {
    "with 0": lambda u: np.floor(u * 2.0**24) / 2.0**24,
    "without 0": lambda u: np.ceil(u * 2.0**24) / 2.0**24,
    "of 53 bits": lambda u: u,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", FORMS)
def test_uniforms_of_few_bits_show_in_the_tail_of_a_wide_law(form: str, seed: int) -> None:
    rng = np.random.default_rng(seed)

    def raced(requests: list[mo.StreamRequest]) -> Any:
        size = requests[0].logits.size
        if size == 4:
            return rng.choice(4, len(requests), p=np.exp(requests[0].logits))
        # the race of equal tokens, by the law of the least of their uniforms
        least = -np.expm1(np.log(rng.random(len(requests))) / (size - 1))
        arrival = -np.log1p(-FORMS[form](least)) / np.exp(requests[0].logits[0])
        first = arrival < rng.standard_exponential(len(requests))
        some = rng.integers(0, size - 1, len(requests))
        return np.where(first, some + (some >= size // 2), size // 2)

    report = mo.audit_streams(raced, seed, roles=("target",), requests="unseeded")
    assert report.verdict_class == ("no deviation" if form == "of 53 bits" else "lossy")
    low, high = report.tail_observed
    assert (low <= report.tail_expected <= high) == report.clean
    assert not any("time" in note for note in report.notes)


def test_a_law_inverted_at_24_bits_has_every_fourth_of_the_unlikely_tokens() -> None:
    rng = np.random.default_rng(0)

    def inverted(requests: list[mo.StreamRequest]) -> Any:
        uniforms = rng.integers(1 << 24, size=len(requests)) / 2.0**24
        return np.searchsorted(np.exp(requests[0].logits).cumsum(), uniforms, side="right")

    report = mo.audit_streams(inverted, 0, roles=("target",), requests="unseeded")
    low, high = report.tail_observed
    assert low <= report.tail_expected <= high
    assert report.verdict_class == "lossy"
    assert "unlikely tokens of a wide law" in report.verdict


def test_calls_that_fail_are_not_judged() -> None:
    def broken(requests: list[mo.StreamRequest]) -> list[int]:
        raise RuntimeError("no device")

    assert FEW(broken, 0).answer() == "NOT JUDGED"
    assert "no device" in FEW(broken, 0).verdict
    assert FEW(lambda requests: [0.5] * len(requests), 0).answer() == "NOT JUDGED"
    assert FEW(lambda requests: [0], 0).answer() == "NOT JUDGED"
    none = FEW(lambda requests: None, 0).verdict
    assert none.startswith("NOT JUDGED: 1 call failed, e.g. InvalidInput: the answer has dtype")
    assert none.endswith("Give float or integer arrays.")
    never = FEW(lambda requests: [9] * len(requests), 0)
    assert never.answer() == "FAIL"
    assert "which its law rules out" in never.verdict


def test_an_async_sampler_is_refused_as_by_every_audit() -> None:
    async def later(requests: list[mo.StreamRequest]) -> list[int]:
        return [0] * len(requests)

    with pytest.raises(ForeignFault, match="later is an async function"):
        FEW(later, 0)


def test_budgets_are_counts_and_a_limit_of_time_is_named() -> None:
    cut = mo.audit_streams(here(toys.Toy(0)), 0, vocab_size=0, num_trials=2_000, seconds=1e-9)
    assert cut.num_trials == 3 * 512
    assert any("512 of 2,048 requests" in note and "seconds=1e-09" in note for note in cut.notes)
    whole = FEW(here(toys.Toy(0)), 0)
    assert whole.num_trials == 3 * 2_048


def test_input_is_checked() -> None:
    for given in ({"roles": ()}, {"roles": ("bonus",)}, {"vocab_size": 2}, {"vocab_size": 1 << 30}):
        with pytest.raises(InvalidInput):
            mo.audit_streams(toys.Toy(0), 0, **given)  # type: ignore[arg-type]
    with pytest.raises(UnknownName):
        mo.audit_streams(toys.Toy(0), 0, requests="none")
    with pytest.raises(InvalidInput, match="callable"):
        mo.audit_streams("toy", 0)  # type: ignore[arg-type]


def test_reports_have_their_numbers() -> None:
    report = FEW(here(toys.ResidualOfTheDraft(0)), 3)
    told = report.to_dict()
    assert told["answer"] == "FAIL"
    assert told["shared"][0]["how"] in str(report)
    assert report.example is not None
    assert report.example.seed == 3
    right = FEW(here(toys.Toy(0)), 3)
    assert right.answer() == "TOO WEAK"  # of so few requests
    assert right.answer(0.5) == "PASS"
    assert all(spot in str(right) for spot in right.not_seen)
