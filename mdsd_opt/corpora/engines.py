"""Who scores the shards: this process and its children, ranks of torchrun, or a cluster.

An engine is a function that runs all tasks it is given, in any order, and reports each one. Tasks
are idempotent (see `mdsd_opt.corpora.scoring.score_shard`), so an engine may run one twice or lose
a worker; nothing of the result depends on the engine.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mdsd_opt.base.long_runs import available_threads
from mdsd_opt.corpora.config import RatesConfig
from mdsd_opt.corpora.scoring import ShardRates, load_rates, score_shard
from mdsd_opt.errors import InvalidInput, MissingExtra, UnknownName, WorkerDied

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
    """One shard to score, with the arguments of `mdsd_opt.corpora.scoring.score_shard`."""

    path_in: Path
    path_out: Path
    config: RatesConfig
    num_threads: int | None
    sha256: str | None = None
    is_verified: bool = False

    def result(self) -> ShardRates | None:
        """Its rates, if they are there already."""
        return load_rates(self.path_in, self.path_out, self.config, self.sha256)

    def with_threads(self, share: int) -> Task:
        """The task with this number of threads, unless it has one."""
        return replace(self, num_threads=self.num_threads or share)

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
    """Where an engine runs: in processes here, or on a cluster that runs already."""

    workers: int | None = None
    address: str | None = None
    rank_timeout: float = RANK_TIMEOUT  # seconds that ranks of torchrun wait for a sign of life

    @property
    def num_workers(self) -> int:
        """Processes to start here where no cluster is given."""
        return available_threads() if self.workers is None else self.workers


#: Called as ``engine(tasks, placement, done)``; ``done(name)`` after each shard.
Engine = Callable[[Sequence[Task], Placement, Callable[[str], None]], None]

#: Where the engines are that are not here, and the library that each needs.
_ELSEWHERE = {
    "torchrun": ("torchrun_engine", "run_as_rank", None),
    "dask": ("cluster_engines", "run_on_dask", "distributed"),
    "ray": ("cluster_engines", "run_on_ray", "ray"),
}


def engine(name: str) -> Engine:
    """The engine of a name, once its library is seen to be installed."""
    if name not in ENGINES:
        raise UnknownName.among("engine", name, ENGINES)
    if name == "local":
        return _run_here
    module, function, library = _ELSEWHERE[name]
    if library is not None:
        try:
            importlib.import_module(library)
        except ImportError as error:
            raise MissingExtra.of(library, "cluster", f"engine {name!r}") from error
    run: Engine = getattr(importlib.import_module(f"mdsd_opt.corpora.{module}"), function)
    return run


def _run_here(tasks: Sequence[Task], placement: Placement, done: Callable[[str], None]) -> None:
    """Score the shards here, by threads or by processes with a share of the processors each.

    A worker process that is killed ends all; what is finished stays.
    """
    if placement.address is not None:
        raise InvalidInput("--address is given, but engine 'local' runs on this machine")
    workers = placement.workers or 1
    if workers == 1:
        for task in tasks:
            done(task.run())
        return
    share = max(1, available_threads() // workers)
    earlier = set(multiprocessing.active_children())
    # spawn: a fork of a process with threads may hang
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker)
    finished = 0
    try:
        futures = [pool.submit(_run, task.with_threads(share)) for task in tasks]
        for future in as_completed(futures):
            done(future.result())
            finished += 1
        pool.shutdown()
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - earlier:
            process.terminate()
        if isinstance(error, BrokenProcessPool):
            raise WorkerDied(
                f"a worker process died (was it killed, or out of memory?) after {finished} of "
                f"{len(tasks)} shards. They are kept: run the same command again for the rest."
            ) from error
        raise


def _run(task: Task) -> str:
    try:
        return task.run()
    except SystemExit:  # told to end: what was half written is away, and the pool would go on
        os._exit(1)


def _begin_worker() -> None:
    """Leave Ctrl-C to the parent, tidy up when it ends this, and end with it if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.unraisablehook = _end_a_little_later
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _end_a_little_later(ignored: Any) -> None:
    """Send the signal again where it came in a place that can raise nothing: a destructor."""
    if ignored.exc_type is SystemExit:
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGTERM)).start()
    else:
        sys.__unraisablehook__(ignored)
