"""What there is to try, and how much of it in a full run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stress import batches, budgets, evidence, large, schemes, solving, trees, verifying
from stress.tally import Tally


@dataclass(frozen=True)
class Area:
    """`check` tries what one generator draws; a full run takes the seeds from 0 to `seeds`."""

    check: Callable[[np.random.Generator, Tally], None]
    seeds: int


AREAS = {
    "schemes": Area(schemes.check, 2500),
    "solvers": Area(solving.check, 700),
    "evidence": Area(evidence.check, 300),
    "verifiers": Area(verifying.check, 900),
    "batches": Area(batches.check, 400),
    "many": Area(large.check, 500),
    "trees": Area(trees.check, 1500),
    "budgets": Area(budgets.check, 600),
}


def run(name: str, seeds: range) -> Tally:
    """Each seed has a generator of its own, so that it can be tried again alone."""
    tally = Tally(name)
    for seed in seeds:
        tally.seed = seed
        AREAS[name].check(np.random.default_rng([seed, *name.encode()]), tally)
    return tally
