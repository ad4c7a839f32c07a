"""p-values of audits of lossless verifiers: never too small too often, and not far too large."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.auditing.output_checks import output_checks
from mdsd_opt.auditing.report import ACCEPTANCE_WEIGHT, Check
from mdsd_opt.auditing.settings import Settings

AUDITS = 800


def test_p_values_of_two_tokens_are_near_their_level() -> None:
    """Six checks of equal shares would give some 75 below .2, instead of 138."""
    rng = np.random.default_rng(0)
    settings = Settings(1e-6, 0.99, 0.99, 2_000)
    at_optimum = Check("acceptance", "", 1.0, weight=ACCEPTANCE_WEIGHT)
    found = []
    for _ in range(AUDITS):
        p, q = rng.dirichlet(np.ones(2), 2)
        problem = mo.TransportProblem(p, mo.WithReplacement(q, 1))
        checks = output_checks(problem, rng.choice(2, 2_000, p=p), rng)
        found.append(settings.combined([*checks, at_optimum]))
    for level in (0.5, 0.2, 0.1, 0.05):
        expected = level * AUDITS
        assert (np.array(found) <= level).sum() <= expected + 4 * np.sqrt(expected)
    assert (np.array(found) <= 0.2).sum() >= 105


def test_checks_that_see_nothing_of_their_own_are_left_out() -> None:
    rng = np.random.default_rng(0)
    names = {}
    for size in (2, 4, 40):
        law = np.full(size, 1 / size)
        problem = mo.TransportProblem(law, mo.WithReplacement(law, 2))
        checks = output_checks(problem, rng.choice(size, 2_000), rng)
        names[size] = [check.name for check in checks]
    assert names[2] == ["cells", "succession"]
    assert names[4] == ["cells", "single tokens", "succession"]
    assert names[40] == ["cells", "ratio groups", "rank groups", "single tokens", "succession"]


def test_weights_share_the_false_alarm_rate() -> None:
    settings = Settings(0.05, 0.99, 0.99, 10)
    light, heavy = Check("a", "", 0.001, weight=0.1), Check("b", "", 0.01)
    assert settings.combined([light, heavy]) == pytest.approx(0.011)
    assert settings.combined([heavy, heavy]) == 0.02
    assert settings.level([light, heavy]) == pytest.approx(0.05 / 1.1)
