"""examples/shared_streams.py: the samplers that its test finds, and those that it cannot find."""

from __future__ import annotations

import numpy as np
import pytest
import shared_streams
from scipy import stats


@pytest.mark.parametrize("name", shared_streams.FOUND)
def test_shared_keys_are_found(name: str) -> None:
    pairs = shared_streams.shared_draws(shared_streams.FOUND[name], 1_000)
    assert pairs
    same_place = [pair for pair in pairs if "draft at 0 and accept at 0 of the same" in pair]
    assert bool(same_place) == (name == "the role is not in the key")


@pytest.mark.parametrize("name", shared_streams.NOT_FOUND)
def test_what_is_shared_elsewhere_is_not_found(name: str) -> None:
    assert shared_streams.shared_draws(shared_streams.NOT_FOUND[name]) == []
    assert shared_streams.shared_elsewhere(name) > 0.95


def test_right_keys_are_accused_at_the_stated_rate() -> None:
    rng = np.random.default_rng(0)

    def sampler(seeds, at, role, logits):  # type: ignore[no-untyped-def]
        return rng.choice(logits.size, seeds.size, p=np.exp(logits))

    accused = sum(bool(shared_streams.shared_draws(sampler, 500, 0.05)) for _ in range(40))
    assert accused <= stats.binom.ppf(0.999, 40, 0.05)


def test_p_values_are_those_of_pearson() -> None:
    table = np.random.default_rng(1).multinomial(3_000, np.full(16, 1 / 16)).reshape(4, 4)
    exact = stats.chi2_contingency(table, correction=False).pvalue
    assert shared_streams._p_value(table.astype(float)) == pytest.approx(exact, rel=0.05)


def test_the_example_tells_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    shared_streams.main()
    told = capsys.readouterr().out
    assert told.count("0 pairs found, and yet") == 3
    assert told.startswith("right keys: 0 pairs")
