"""Who scores the shards: this process and its children, ranks of torchrun, or a cluster.

An engine is a function that runs all tasks it is given, in any order, and reports each one. Tasks
are idempotent (see `mdsd_opt.corpora.scoring.score_shard`), so an engine may run one twice or lose
a worker; nothing of the result depends on the engine.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mdsd_opt.base.long_runs import available_threads
from mdsd_opt.corpora.config import RatesConfig
from mdsd_opt.corpora.scoring import ShardRates, load_rates, score_shard
from mdsd_opt.errors import MissingExtra, UnknownName

#: Engines by name, with what they are for.
ENGINES = {
    "local": "this machine: one process with threads, or --workers processes",
    "torchrun": "ranks that torchrun (or anything that sets RANK and WORLD_SIZE) has started",
    "dask": "a Dask cluster: --address of its scheduler, or --workers processes here",
    "ray": "a Ray cluster: --address of its head, or --workers processes here",
}


#: As long as a process group of torch waits by default.
RANK_TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class Task:
    """One shard to score.

    Attributes
    ----------
    path_in, path_out, config, num_threads, sha256, is_verified
        As in `mdsd_opt.corpora.scoring.score_shard`.
    """

    path_in: Path
    path_out: Path
    config: RatesConfig
    num_threads: int | None
    sha256: str | None = None
    is_verified: bool = False

    def result(self) -> ShardRates | None:
        """Its rates, if they are there already."""
        return load_rates(self.path_in, self.path_out, self.config, self.sha256)

    def run(self) -> str:
        """Score it and return its name."""
        score_shard(
            self.path_in,
            self.path_out,
            self.config,
            self.num_threads,
            sha256=self.sha256,
            is_verified=self.is_verified,
        )
        return self.path_in.name


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an engine runs.

    Attributes
    ----------
    workers : int or None
        Processes on this machine.
    address : str or None
        Of a cluster that runs already.
    rank_timeout : float
        Seconds that ranks of torchrun wait for each other without a sign of life.
    """

    workers: int | None = None
    address: str | None = None
    rank_timeout: float = RANK_TIMEOUT

    @property
    def num_workers(self) -> int:
        """Processes to start here where no cluster is given."""
        return available_threads() if self.workers is None else self.workers


#: Called as ``engine(tasks, placement, done)``; ``done(name)`` after each shard.
Engine = Callable[[Sequence[Task], Placement, Callable[[str], None]], None]

_MODULES = {
    "local": "local_engine",
    "torchrun": "torchrun_engine",
    "dask": "dask_engine",
    "ray": "ray_engine",
}


def engine(name: str) -> Engine:
    """Look up an engine.

    Raises
    ------
    UnknownName
        No such engine; the message lists those that exist.
    MissingExtra
        Its library is not installed.
    """
    if name not in ENGINES:
        raise UnknownName.among("engine", name, ENGINES)
    module = importlib.import_module(f"mdsd_opt.corpora.{_MODULES[name]}")
    try:
        module.require()
    except ImportError as error:
        package = "distributed" if name == "dask" else name
        raise MissingExtra.of(package, "cluster", f"engine {name!r}") from error
    run: Engine = module.run
    return run
