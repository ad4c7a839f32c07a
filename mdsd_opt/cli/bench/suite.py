"""The benchmarks by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mdsd_opt.base.long_runs import available_threads
from mdsd_opt.cli.bench.record import Record, Report, circumstances
from mdsd_opt.errors import InvalidInput, UnknownName


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure.

    Attributes
    ----------
    quick : bool
        Small sizes and few rounds: seconds instead of minutes.
    rounds : int or None
        How often everything is timed; each benchmark has its own number unless given.
    threads : int
        For what can use threads.
    seed : int
    """

    quick: bool = False
    rounds: int | None = None
    threads: int = 1
    seed: int = 0


#: Name -> what it measures.
SUITE = {
    "solvers": "each method on growing transport problems: time, memory, certificate gap",
    "flows": "the same network by OR-tools, igraph, SciPy and POT, where they are installed",
    "batches": "acceptance rates of batches of logits, against sorting in NumPy, SciPy and PyTorch",
    "decisions": "one verification by each verifier, against the argsort route and the LP",
    "polyhedra": "double description in exact arithmetic: cones, polytopes, projections",
}


def run(
    names: Sequence[str] = (),
    *,
    quick: bool = False,
    rounds: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Callable[[Record], None] | None = None,
) -> Report:
    """Run benchmarks; all of them unless named.

    Parameters
    ----------
    names : sequence of str
        Some of `SUITE`.
    quick : bool
        Small sizes and few rounds.
    rounds, threads, seed : int, optional
    progress : callable, optional
        Called with every record as it is measured.

    Raises
    ------
    UnknownName
        No such benchmark.
    """
    for name in names:
        if name not in SUITE:
            raise UnknownName.among("benchmark", name, SUITE)
    if rounds is not None and rounds < 1:
        raise InvalidInput(f"rounds is {rounds}: give at least 1")
    settings = Settings(quick, rounds, threads or available_threads(), seed)
    where = circumstances()  # before the load of the benchmarks themselves
    records = []
    for name in names or SUITE:
        for record in _records(name, settings):
            records.append(record)
            if progress is not None:
                progress(record)
    return Report(tuple(records), where)


def _records(name: str, settings: Settings) -> Iterator[Record]:
    module = importlib.import_module(f"mdsd_opt.cli.bench.{name}")
    found: Iterator[Record] = module.records(settings)
    return found
