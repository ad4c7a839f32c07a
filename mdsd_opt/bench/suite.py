"""Benchmarks by name, and how they are run one after the other."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from mdsd_opt.base.checked import checked_integer
from mdsd_opt.base.keywords import renamed
from mdsd_opt.base.long_runs import available_threads
from mdsd_opt.base.seeds import Rng, drawn_seed
from mdsd_opt.bench.record import (
    BenchReport,
    Record,
    Settings,
    circumstances,
)
from mdsd_opt.errors import UnknownName

#: Subject of each benchmark, by name.
SUITE = {
    "solvers": "each method on growing transport problems: time, memory, certificate gap",
    "flows": "the same network by OR-tools, igraph, SciPy and POT, where they are installed",
    "batches": "acceptance rates of batches of logits, against sorting in NumPy, SciPy and PyTorch",
    "decisions": "one verification by each verifier, against the argsort route and the LP",
    "polyhedra": "double description in exact arithmetic: cones, polytopes, projections",
}


#: Cases that a quick run of each benchmark leaves out, by name.
LEFT_OUT = {
    "solvers": "more than 12 tokens (subset_selection: 2,048), K > 2, other drafts, CVXPY",
    "flows": "more than 12 tokens, K > 2, other drafts than with replacement",
    "batches": "more than 4,096 tokens, and all but 32,768 logits a batch",
    "decisions": "more than 2,048 tokens, bundled logits",
    "polyhedra": "all cases but the smallest",
}


@renamed("seed", "rng")
def run(
    names: Sequence[str] = (),
    *,
    quick: bool = False,
    rounds: int | None = None,
    threads: int | None = None,
    rng: Rng = 0,
    progress: Callable[[Record], None] | None = None,
    **chosen: Any,
) -> BenchReport:
    """BenchReport of the benchmarks of these names in `SUITE`; all of them unless named.

    Problems are drawn with `rng`. `progress` is called with every record as it is measured. What
    else is chosen are fields of
    `Settings`: vocab_sizes, num_drafts, methods, scheme, backend, problems and time_limit of
    `solvers`, verifiers of `decisions`.
    """
    for name in names:
        if name not in SUITE:
            raise UnknownName.among("benchmark", name, SUITE)
    for option, number in (("rounds", rounds), ("threads", threads)):
        if number is not None:
            checked_integer(number, option)
    settings = Settings(quick, rounds, threads or available_threads(), drawn_seed(rng), **chosen)
    where = circumstances()  # before the load of the benchmarks themselves
    records: list[Record] = []
    for name in names or SUITE:
        module = importlib.import_module(f"mdsd_opt.bench.{name}")
        for record in module.records(settings):
            records.append(record)
            if progress is not None:
                progress(record)
    return BenchReport(tuple(records), where)
