"""Adversarial instances by the hundred thousand against exact rationals.

A failure names its area and seed: ``--only AREA:SEED`` tries that one again.
"""

from __future__ import annotations

from math import ceil

import pytest
from stress.areas import AREAS, run

#: Tests of each area, so that processes share the work.
CHUNKS = 20


def pytest_generate_tests(metafunc):
    only = metafunc.config.getoption("only")
    if only is not None:
        area, seed = only.split(":")
        chunks = [pytest.param(area, range(int(seed), int(seed) + 1), id=only)]
    else:
        scale = metafunc.config.getoption("scale")
        chunks = []
        for name, area in AREAS.items():
            seeds = ceil(area.seeds * scale)
            step = ceil(seeds / CHUNKS)
            chunks += [
                pytest.param(name, range(start, min(start + step, seeds)), id=f"{name}-{start}")
                for start in range(0, seeds, step)
            ]
    metafunc.parametrize(("area", "seeds"), chunks)


def test_against_exact_rationals(area, seeds, record_property):
    tally = run(area, seeds)
    record_property(
        "stress", [[area, kind, *count] for kind, count in sorted(tally.counts.items())]
    )
    if tally.failures:
        shown = "\n".join(tally.failures)
        pytest.fail(f"{len(tally.failures)} wrong:\n{shown}", pytrace=False)
