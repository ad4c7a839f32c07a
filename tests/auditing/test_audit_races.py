"""Weights of races are recovered from who wins."""

from __future__ import annotations

import numpy as np
import pytest

from mdsd_opt.auditing.driving.races import EXPONENTIAL, UNIFORM, NoRace, race_weights


def recovered(weights: list[float], within=EXPONENTIAL):
    w = np.array(weights)
    return race_weights(lambda row: int(np.argmax(w / np.array(row))), w.size, within, 0)


@pytest.mark.parametrize(
    "weights",
    [
        [0.2, 0.3, 0.5],
        [0.0, 0.3, 0.0, 0.7],
        [1.0, 1e-4],
        [0.0, 0.05, 1e-8, 7e-9, 0.02],  # what rounding leaves of a residual
        [1e-8, 0.05, 3e-8],
    ],
)
def test_weights_are_found(weights):
    expected = np.array(weights) / sum(weights)
    np.testing.assert_allclose(recovered(weights), expected, rtol=1e-6, atol=1e-9)


def test_weights_of_gumbel_noise_are_found():
    np.testing.assert_allclose(recovered([0.2, 0.0, 0.8], UNIFORM), [0.2, 0.0, 0.8], atol=1e-6)


def test_a_row_that_decides_nothing_and_what_is_no_race():
    assert race_weights(lambda row: 3, 4, EXPONENTIAL, 0) is None
    with pytest.raises(NoRace):
        race_weights(lambda row: int(np.argmax(row)), 3, EXPONENTIAL, 0)
    assert recovered([1.0, 1e-12]) is None  # too little to ever win
