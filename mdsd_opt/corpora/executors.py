"""Executors that score the shards: this process and its children, ranks of torchrun, or a cluster.

Any `concurrent.futures.Executor` will do, those of Dask and Ray among them. Tasks are idempotent
(see `mdsd_opt.corpora.scoring.score_shard`), so it may run one twice or lose a worker; nothing of
the result depends on the executor. Dask and Ray run those of a lost one again.

Ranks of torchrun are known from environment variables; torch is not imported. Rank r of w takes the
shards r, r + w, ..., and then waits for those of the others, as long as these give signs of life:
each writes a small file beside the results anew every few seconds, with a number that grows, and at
its end removes the file, or says in it that it failed. The others watch whether the content
changes, by their own clocks; what an earlier run left behind does not.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mdsd_opt.base.foreign import leave
from mdsd_opt.base.long_runs import available_threads
from mdsd_opt.corpora.corpus import RatesConfig
from mdsd_opt.corpora.scoring import ShardRates, load_rates, score_shard
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
class Task:
    """One shard to score, with the arguments of `mdsd_opt.corpora.scoring.score_shard`."""

    path_in: Path
    path_out: Path
    config: RatesConfig
    num_threads: int | None
    sha256: str | None = None
    is_verified: bool = False

    def result(self) -> ShardRates | None:
        """Rates of the shard, if they are stored already."""
        return load_rates(self.path_in, self.path_out, self.config, self.sha256)

    def with_threads(self, share: int) -> Task:
        """Task with this number of threads, unless it has one."""
        return replace(self, num_threads=self.num_threads or share)

    def run(self) -> str:
        """Score the shard and return its name."""
        score_shard(
            self.path_in, self.path_out, self.config, self.num_threads,
            sha256=self.sha256, is_verified=self.is_verified,
        )  # fmt: skip
        return self.path_in.name


@dataclass(frozen=True, slots=True)
class Placement:
    """Place where an executor runs: in processes here, or on a cluster that runs already."""

    workers: int | None = None
    address: str | None = None
    rank_timeout: float = RANK_TIMEOUT  # seconds that ranks of torchrun wait for a sign of life

    @property
    def num_workers(self) -> int:
        """Number of processes to start here if no cluster is given."""
        return available_threads() if self.workers is None else self.workers


#: Seconds that a worker which is told to end has to take away what is half written.
_TIDY_SECONDS = 3.0

_MAX_RETRIES = 3  # of Ray
_CONNECT_SECONDS = 10

#: Called after each shard, with its name.
Done = Callable[[str], None]


def score_all(
    tasks: Sequence[Task], executor: str | Executor, placement: Placement, done: Done
) -> None:
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
    begun_here = isinstance(executor, str) and placement.address is None
    share = max(1, available_threads() // placement.num_workers) if begun_here else 1
    opened = _POOLS[executor](placement) if isinstance(executor, str) else nullcontext(executor)
    finished = 0
    try:
        with opened as pool:
            futures = [pool.submit(run_task, task.with_threads(share)) for task in tasks]
            try:
                for future in as_completed(futures):
                    done(future.result())
                    finished += 1
            finally:
                for future in futures:
                    future.cancel()
    except BrokenExecutor as error:
        raise WorkerDied(
            "a worker process died (was it killed, out of memory, ended by code of yours, or does "
            "a script begin this outside of if __name__ == '__main__'?) "
            f"after {finished} of {len(tasks)} shards. They are kept: run the same command "
            "again for the rest."
        ) from error


def check_executor(executor: Any, placement: Placement) -> None:
    """Raise an error unless this names an executor whose library is installed, or is one."""
    if isinstance(executor, Executor):
        if placement != Placement():
            raise InvalidInput("workers and address are for executors by name: leave them out")
        return
    if not isinstance(executor, str) or executor not in EXECUTORS:
        raise UnknownName.among("executor", executor, EXECUTORS)
    if library := _LIBRARIES.get(executor):
        try:
            importlib.import_module(library)
        except ImportError as error:
            raise MissingExtra.of(library, "cluster", f"executor {executor!r}") from error
    if executor == "local" and placement.address is not None:
        raise InvalidInput("--address is given, but executor 'local' runs on this machine")


@contextmanager
def _processes(placement: Placement) -> Iterator[Executor]:
    """Processes here; after an error they end at once, half-written files or not."""
    earlier = set(multiprocessing.active_children())
    # spawn: a fork of a process with threads may hang
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(placement.num_workers, mp_context=context, initializer=_begin_worker)
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        workers = set(multiprocessing.active_children()) - earlier
        for process in workers:
            process.terminate()
        for process in workers:
            process.join(_TIDY_SECONDS)
        raise


def run_task(task: Task) -> str:
    """Score the shard; a worker that is told to end does so."""
    try:
        return task.run()
    except SystemExit:  # told to end: what was half written is away, and the pool would go on
        leave(1)


def _begin_worker() -> None:
    """Leave Ctrl-C to the parent, tidy up when it ends this, and end with it if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.unraisablehook = end_a_little_later
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        leave(1)

    threading.Thread(target=watch, daemon=True).start()


def end_a_little_later(ignored: Any) -> None:
    """Send SIGTERM again if a destructor swallowed it."""
    if ignored.exc_type is SystemExit:
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGTERM)).start()
    else:
        sys.__unraisablehook__(ignored)


@contextmanager
def _dask(placement: Placement) -> Iterator[Executor]:
    """Executor of a Dask cluster, which gives a shard up that took four workers down with it."""
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
            client = stack.enter_context(Client(place, timeout=_CONNECT_SECONDS))
        except (OSError, ValueError) as error:
            raise InvalidInput(
                f"no Dask scheduler answers at {placement.address}: {error}"
            ) from error
        try:
            yield client.get_executor(pure=False, retries=0)
        except KilledWorker as error:
            raise BrokenExecutor(str(error)) from error


class _RayExecutor(Executor):
    """Tasks of Ray, each begun anew where its worker died."""

    def submit(self, function: Any, /, *args: Any, **options: Any) -> Any:
        import ray

        remote = ray.remote(num_cpus=1, max_retries=_MAX_RETRIES)(function)
        return remote.remote(*args, **options).future()


@contextmanager
def _ray(placement: Placement) -> Iterator[Executor]:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # spares a warning
    with redirect_stdout(sys.stderr):  # where Ray's remarks belong
        import ray
        from ray.exceptions import RayTaskError, WorkerCrashedError

        if placement.address is None:
            here = {"num_cpus": placement.num_workers, "log_to_driver": False}
            ray.init(include_dashboard=False, logging_level="error", **here)
        else:
            _connect(ray.init, placement.address)
        try:
            yield _RayExecutor()
        except RayTaskError as error:
            if isinstance(error.cause, MdsdError):
                raise error.cause from error
            raise
        except WorkerCrashedError as error:
            raise BrokenExecutor(str(error)) from error
        finally:
            ray.shutdown()


def _connect(init: Callable[..., Any], address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # otherwise a word such as "auto"; Ray would try for minutes
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        init(address=address, logging_level="error")
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidInput(f"no Ray cluster answers at {address}: {error}") from error


_POOLS = {"local": _processes, "dask": _dask, "ray": _ray}
_LIBRARIES = {"dask": "distributed", "ray": "ray"}


_POLL_SECONDS = 0.2

#: Number of ranks that a message names.
_NAMED = 8


def rank() -> int:
    """Rank of this process, from the environment."""
    return _ranks()[0]


def _run_as_rank(tasks: Sequence[Task], placement: Placement, done: Done) -> None:
    """Score this rank's share, then wait until all shards are there.

    A rank that fails makes torchrun end all of them, also those that wait; what is finished stays.
    So does what is there when every rank whose shards are missing has left, or has given no sign
    of life for `placement.rank_timeout` seconds: then it is an error.
    """
    if placement.address is not None or placement.workers is not None:
        raise InvalidInput("torchrun sets the number of ranks: leave --workers and --address out")
    own, count, local_count = _ranks()
    share = max(1, available_threads() // local_count)
    folder, timeout = tasks[0].path_out.parent, placement.rank_timeout
    peers = {rank: Peer(folder, rank) for rank in range(count) if rank != own}
    with signs_of_life(folder, own, timeout):
        for task in tasks[own::count]:
            done(task.with_threads(share).run())
        waiting = {i: task for i, task in enumerate(tasks) if i % count != own}
        while waiting:
            # before the results: what a rank finished before it left is not missed
            silence = {rank: peers[rank].look() for rank in {i % count for i in waiting}}
            for i, task in list(waiting.items()):
                if task.result() is not None:
                    done(task.path_in.name)
                    del waiting[i]
            owing = sorted({i % count for i in waiting})
            if owing and all(silence[rank] > timeout for rank in owing):
                raise _silent(peers, owing, timeout, len(tasks) - len(waiting), len(tasks))
            if waiting:
                time.sleep(_POLL_SECONDS)


def _silent(
    peers: Mapping[int, Peer], owing: Sequence[int], timeout: float, num_done: int, num_shards: int
) -> WorkerDied:
    for peer in peers.values():
        peer.look()
    missing = []
    for state in ("did not come", "ended early", "came and fell silent"):
        ranks = [str(rank) for rank in owing if peers[rank].state == state]
        if ranks:
            names = ", ".join(ranks[:_NAMED]) + (", ..." if len(ranks) > _NAMED else "")
            missing.append(f"{'rank' if len(ranks) == 1 else 'ranks'} {names} {state}")
    num_came = 1 + sum(peer.came for peer in peers.values())
    return WorkerDied(
        f"{num_came} of {len(peers) + 1} ranks came; {'; '.join(missing)}; no sign of life was "
        f"waited for longer than {timeout:g} seconds. {num_done} of {num_shards} shards are done "
        "and kept: start all ranks again with the same command for the rest, with a longer "
        "rank_timeout (--rank-timeout) if they start far apart."
    )


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


_LONGEST_PAUSE = 5.0
_FAILED = "failed"


@contextmanager
def signs_of_life(folder: Path, rank: int, timeout: float) -> Iterator[None]:
    """Write signs of life while the block runs, ten or more in each `timeout` seconds."""
    path, run = _sign_of(folder, rank), secrets.token_hex(8)
    ended = threading.Event()

    def go_on() -> None:
        number = 0
        while not ended.wait(min(_LONGEST_PAUSE, timeout / 10)):
            number += 1
            with suppress(OSError):  # a full disk is for the results to tell of
                path.write_text(f"{run} {number}\n")

    with suppress(OSError):
        path.write_text(f"{run} 0\n")
    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    failed = True
    try:
        yield
        failed = False
    finally:
        ended.set()
        thread.join()
        with suppress(OSError):
            if failed:
                path.write_text(f"{_FAILED} {run}\n")
            else:
                path.unlink()


class Peer:
    """Another rank, watched from now on: whether it `came` since, and whether it `left`."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.came = self.left = False
        self._path = _sign_of(folder, rank)
        self._content = self._read()
        self._changed = time.monotonic()

    def look(self) -> float:
        """Seconds since the last sign, or since the watch began; infinite once it left."""
        content = self._read()
        if content != self._content:
            self._content, self._changed = content, time.monotonic()
            self.came, self.left = True, content is None or content.startswith(_FAILED)
        return float("inf") if self.left else time.monotonic() - self._changed

    @property
    def state(self) -> str:
        """What became of it, if its shards are missing."""
        if not self.came:
            return "did not come"
        return "ended early" if self.left else "came and fell silent"

    def _read(self) -> str | None:
        try:
            return self._path.read_text()
        except OSError:
            return None


def _sign_of(folder: Path, rank: int) -> Path:
    return folder / f".rank-{rank}.alive"
