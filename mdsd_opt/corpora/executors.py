"""Executors that score the shards: this process, joblib's backends, or ranks of torchrun.

Processes here are a pool of loky, which comes with joblib; on Dask and Ray joblib runs them by the
backends that these have for it. Tasks are idempotent (see `mdsd_opt.corpora.shards.score_shard`),
so a backend may run one twice or lose a worker; nothing of the result depends on it. Dask runs
those of a lost worker again.

Ranks of torchrun are known from environment variables; torch is not imported. Rank r of w takes the
shards r, r + w, ..., and then waits for those of the others, as long as results come.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor
from contextlib import ExitStack, closing, redirect_stdout
from dataclasses import dataclass
from typing import Any

from mdsd_opt import verifiers
from mdsd_opt.base.foreign import leave
from mdsd_opt.base.long_runs import available_threads
from mdsd_opt.corpora.shards import Task
from mdsd_opt.errors import InvalidInput, MdsdError, MissingExtra, UnknownName, WorkerDied

#: Executors by name, with their purposes.
EXECUTORS = {
    "local": "this machine: one process with threads, or --workers processes",
    "torchrun": "ranks that torchrun (or anything that sets RANK and WORLD_SIZE) has started",
    "dask": "a Dask cluster: --address of its scheduler, or --workers processes here",
    "ray": "a Ray cluster: --address of its head, or --workers processes here",
}

#: Seconds that a process group of torch waits by default.
RANK_TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class Placement:
    """Place where an executor runs: in processes here, or on a cluster that runs already."""

    workers: int | None = None
    address: str | None = None
    rank_timeout: float = RANK_TIMEOUT  # seconds that ranks of torchrun wait for a result

    @property
    def num_workers(self) -> int:
        """Number of processes to start here if no cluster is given."""
        return available_threads() if self.workers is None else self.workers


#: Variables of libraries that compute with threads of their own.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

_CONNECT_SECONDS = 10
_POLL_SECONDS = 0.2

#: Names of the shards as they are finished.
Names = Generator[str, None, None]

#: Called after each shard, with its name.
Done = Callable[[str], None]


def check_executor(executor: Any, placement: Placement) -> None:
    """Raise an error unless this names an executor whose library is installed."""
    if isinstance(executor, Executor):
        raise InvalidInput(
            f"executor is a {type(executor).__name__}: give a name, one of {', '.join(EXECUTORS)}; "
            "workers=2 are two processes here, address= is that of a cluster"
        )
    if not isinstance(executor, str) or executor not in EXECUTORS:
        raise UnknownName.among("executor", executor, EXECUTORS)
    if library := {"dask": "distributed", "ray": "ray"}.get(executor):
        try:
            importlib.import_module(library)
        except ImportError as error:
            raise MissingExtra.of(library, "cluster", f"executor {executor!r}") from error
    if executor == "local" and placement.address is not None:
        raise InvalidInput("--address is given, but executor 'local' runs on this machine")


def score_all(tasks: Sequence[Task], executor: str, placement: Placement, done: Done) -> None:
    """Score all shards; `executor` is checked, see `check_executor`.

    Where workers die, more than the executor makes good, it ends; what is finished stays.
    """
    if executor == "torchrun":
        _run_as_rank(tasks, placement, done)
        return
    if executor == "local" and placement.workers in (None, 1):
        for task in tasks:
            done(task.run())
        return
    begun_here = placement.address is None
    share = max(1, available_threads() // placement.num_workers) if begun_here else 1
    own = [verifiers.get(x) for x in tasks[0].config.verifiers]
    tasks = [task.with_threads(share) for task in tasks]
    try:
        with closing(_BACKENDS[executor](placement, tasks, own)) as names:
            for name in names:
                done(name)
    except BrokenExecutor as error:
        finished = sum(task.result() is not None for task in tasks)
        raise WorkerDied(
            "a worker process died (was it killed, out of memory, or ended by code of yours?) "
            f"after {finished} of {len(tasks)} shards. They are kept: run the same command "
            "again for the rest."
        ) from error


def _run(task: Task, own: Sequence[Any]) -> str:
    """Score a shard in a worker, which has to know the verifiers that its caller registered."""
    for verifier in own:
        if verifier.name not in verifiers.names():
            verifiers.register(verifier)
    return task.run()


# --- where shards are scored by others: each gives their names, and translates errors ---


def _local(placement: Placement, tasks: Sequence[Task], own: Sequence[Any]) -> Names:
    """Processes here, which end with this one; what they had half written goes with them.

    The pool is no other's: joblib's own would be the one that the caller has open, too.
    """
    from joblib.externals.loky import ProcessPoolExecutor, as_completed

    share = str(tasks[0].num_threads or 1)
    threads = {name: os.environ.get(name, share) for name in _THREADS}
    watch = {"initializer": _begin_worker, "initargs": (os.getpid(),)}
    pool = ProcessPoolExecutor(placement.num_workers, env=threads, **watch)
    try:
        for future in as_completed([pool.submit(_run, task, own) for task in tasks]):
            yield future.result()
    except BaseException:
        pool.shutdown(kill_workers=True)
        for task in tasks:
            for half in task.path_out.parent.glob(f".{task.path_out.name}.*.tmp"):
                half.unlink(missing_ok=True)
        raise
    pool.shutdown()


def _begin_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end with it if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        leave(1)

    threading.Thread(target=watch, daemon=True).start()


def _by_joblib(
    placement: Placement, tasks: Sequence[Task], own: Sequence[Any], backend: str, kind: str
) -> Iterator[str]:
    """Results of one of joblib's backends, as they come or as a list, which `kind` says."""
    from joblib import Parallel, delayed, parallel_config

    run, jobs = delayed(_run), placement.num_workers if placement.address is None else -1
    with parallel_config(backend):
        parallel = Parallel(n_jobs=jobs, batch_size=1, pre_dispatch="all", return_as=kind)
        yield from parallel([run(task, own) for task in tasks])


def _dask(placement: Placement, tasks: Sequence[Task], own: Sequence[Any]) -> Names:
    """A Dask cluster, which gives a shard up that took four workers down with it."""
    from distributed import Client, LocalCluster
    from distributed.scheduler import KilledWorker

    with ExitStack() as stack:
        place: Any = placement.address
        if place is None:
            place = stack.enter_context(LocalCluster(
                n_workers=placement.num_workers, threads_per_worker=1, dashboard_address=None,
                silence_logs=50,  # of a worker that is lost the caller hears if it matters
            ))  # fmt: skip
        try:
            stack.enter_context(Client(place, timeout=_CONNECT_SECONDS))
        except (OSError, ValueError) as error:
            raise InvalidInput(
                f"no Dask scheduler answers at {placement.address}: {error}"
            ) from error
        try:
            yield from _by_joblib(placement, tasks, own, "dask", "generator_unordered")
        except KilledWorker as error:
            raise BrokenExecutor(str(error)) from error


def _ray(placement: Placement, tasks: Sequence[Task], own: Sequence[Any]) -> Names:
    """A Ray cluster, whose backend gives all results at the end."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # spares a warning
    with redirect_stdout(sys.stderr):  # where Ray's remarks belong
        import ray
        from ray.exceptions import RayActorError, RayTaskError
        from ray.util.joblib import register_ray

        options: dict[str, Any] = {"address": placement.address, "logging_level": "error"}
        if placement.address is None:
            options |= {"num_cpus": placement.num_workers, "log_to_driver": False,
                        "include_dashboard": False}  # fmt: skip
        host, _, port = (placement.address or "").removeprefix("ray://").rpartition(":")
        try:
            if host and port.isdigit():  # else a word such as "auto"; Ray would try for minutes
                socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
            ray.init(**options)
        except Exception as error:  # of no class of its own where a node does not start in time
            told = (
                "Ray does not start here"
                if placement.address is None
                else (f"no Ray cluster answers at {placement.address}")
            )
            raise InvalidInput(f"{told}: {error}".partition("\n")[0]) from error
        register_ray()
        try:
            yield from _by_joblib(placement, tasks, own, "ray", "list")
        except RayActorError as error:
            raise BrokenExecutor(str(error)) from error
        except RayTaskError as error:
            if isinstance(error.cause, MdsdError):
                raise error.cause from error
            raise
        finally:
            ray.shutdown()


_BACKENDS = {"local": _local, "dask": _dask, "ray": _ray}

# --- ranks ---


def rank() -> int:
    """Rank of this process, from the environment."""
    return _ranks()[0]


def _run_as_rank(tasks: Sequence[Task], placement: Placement, done: Done) -> None:
    """Score this rank's share, then wait until all shards are there.

    A rank that fails makes torchrun end all of them, also those that wait; what is finished stays.
    So does what is there when no shard was finished for `placement.rank_timeout` seconds.
    """
    if placement.address is not None or placement.workers is not None:
        raise InvalidInput("torchrun sets the number of ranks: leave --workers and --address out")
    own, count, local_count = _ranks()
    share = max(1, available_threads() // local_count)
    for task in tasks[own::count]:
        done(task.with_threads(share).run())
    waiting = {i: task for i, task in enumerate(tasks) if i % count != own}
    since = time.monotonic()
    while waiting:
        for i, task in list(waiting.items()):
            if task.result() is not None:
                done(task.path_in.name)
                del waiting[i]
                since = time.monotonic()
        if waiting and time.monotonic() - since > placement.rank_timeout:
            missing = ", ".join(map(str, sorted({i % count for i in waiting})))
            raise WorkerDied(
                f"shards of ranks {missing} are missing, and none was finished for "
                f"{placement.rank_timeout:g} seconds. {len(tasks) - len(waiting)} of {len(tasks)} "
                "shards are done and kept: start all ranks again with the same command for the "
                "rest, with a longer rank_timeout (--rank-timeout) if a shard takes longer."
            )
        if waiting:
            time.sleep(_POLL_SECONDS)


def _ranks() -> tuple[int, int, int]:
    """Rank, number of ranks, and number of ranks on this machine."""
    try:
        own = int(os.environ["RANK"])
        count = int(os.environ["WORLD_SIZE"])
        local_count = int(os.environ.get("LOCAL_WORLD_SIZE", count))
    except (KeyError, ValueError) as error:
        raise InvalidInput(
            "executor 'torchrun' needs RANK and WORLD_SIZE in the environment: start it with "
            "torchrun --nproc-per-node N --no-python mdsd-opt rates DIR --executor torchrun"
        ) from error
    if not 0 <= own < count or local_count < 1:
        raise InvalidInput(f"RANK is {own} and WORLD_SIZE is {count}: ranks count from 0")
    return own, count, local_count
