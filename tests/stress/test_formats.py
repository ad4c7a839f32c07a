"""6,000 files of engines that were cut or changed, and how often intervals by counts cover."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.changed_files import CHANGES, NAMES, try_change, try_cut

from mdsd_opt.formats import AcceptedCounts, of_steps
from mdsd_opt.planning.count_advice import advice_from_counts
from mdsd_opt.planning.count_forecasts import forecasts

#: Files of each sample at scale 1, half of them cut: 6,000 in all.
FILES = 6_000 / len(NAMES)

#: Rates of requests are drawn from Beta(A, B), chains have K drafts.
A, B, K = 6.0, 3.0, 4
TRUTH = np.cumsum(np.cumprod((A + np.arange(K)) / (A + B + np.arange(K))))

LENGTHS = {
    "alike": lambda rng, size: 1 + rng.poisson(12, size),
    "geometric": lambda rng, size: rng.geometric(1 / 40, size),
    "long tailed": lambda rng, size: 1 + np.exp(rng.normal(3.0, 1.2, size)).astype(int),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_file_is_refused_or_can_be(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    number = max(1, round(FILES * request.config.getoption("scale") / 2))
    for seed in range(number):
        try_cut(tmp_path, name, 1_000 + seed)
        try_change(tmp_path, name, [*CHANGES][seed % len(CHANGES)], 1_000 + seed)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("requests", [3, 5, 8, 20, 100])
def test_intervals_of_requests_cover(lengths: str, requests: int) -> None:
    """Called 95 %: at least .93 over 1,000 runs."""
    rng, covered = np.random.default_rng([requests, len(lengths)]), np.zeros(K)
    for _ in range(1_000):
        rates, sizes = rng.beta(A, B, requests), LENGTHS[lengths](rng, requests)
        text = np.repeat(np.arange(requests), sizes)
        hits = rng.random((text.size, K)) < rates[text, None]
        counts = of_steps(np.cumprod(hits, axis=1).sum(axis=1), K, text)
        chains = [x.accepted for x in forecasts(counts, K)]
        covered += [x.low <= t <= x.high for x, t in zip(chains, TRUTH, strict=True)]
    assert (covered / 1_000 >= 0.93).all(), covered / 1_000
    assert any("95% intervals" in x for x in advice_from_counts(counts, None).notes)


@pytest.mark.parametrize("mean_length", [60, 800])
def test_intervals_of_lines_are_said_to_be_at_least_so_wide(mean_length: int) -> None:
    """Lines of 40 passes of 8 requests: they cover where requests are short, and not else."""
    rng, covered = np.random.default_rng(mean_length), np.zeros(K)
    for _ in range(400):
        counts = _lines(rng, mean_length)
        chains = [x.accepted for x in forecasts(counts, K)]
        covered += [x.low <= t <= x.high for x, t in zip(chains, TRUTH, strict=True)]
    assert (covered / 400 >= (0.93 - 0.011 if mean_length == 60 else 0.5)).all(), covered / 400
    notes = advice_from_counts(counts, None).notes
    assert any("at least" in x and "lines of the log" in x for x in notes)
    assert not any("95%" in x for x in notes)


def _lines(rng: np.random.Generator, mean_length: int, lines: int = 60) -> AcceptedCounts:
    passes, slots = 40, 8
    reached = np.zeros((lines, K))
    for _ in range(slots):
        rates, at = np.empty(lines * passes), 0
        while at < rates.size:
            length = rng.geometric(1 / mean_length)
            rates[at : at + length] = rng.beta(A, B)
            at += length
        hits = (rng.random((rates.size, K)) < rates[:, None]).cumprod(axis=1)
        reached += hits.reshape(lines, passes, K).sum(axis=1)
    steps = np.full(lines, float(passes * slots))
    return AcceptedCounts(
        reached.sum(axis=1), K * steps, steps, K, reached, unit="lines of the log"
    )
