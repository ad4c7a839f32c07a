"""Shards as tasks of a Dask cluster; Dask runs those of a lost worker again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from mdsd_opt.base.long_runs import available_threads
from mdsd_opt.corpora.engines import Placement, Task
from mdsd_opt.errors import InvalidInput, WorkerDied

_CONNECT_SECONDS = 10


def require() -> None:
    """Import what the engine needs."""
    import distributed  # noqa: F401  # imported for the error it may raise


def run(tasks: Sequence[Task], placement: Placement, done: Callable[[str], None]) -> None:
    """Score the shards on the cluster at the address, or on worker processes started here.

    Raises
    ------
    WorkerDied
        A shard took four workers down with it.
    InvalidInput
        There is no scheduler at the address.
    """
    from distributed import Client, LocalCluster, as_completed
    from distributed.scheduler import KilledWorker

    with ExitStack() as stack:
        share = 1
        if placement.address is None:
            cluster = LocalCluster(
                n_workers=placement.num_workers,
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=50,  # of a worker that is lost the caller hears if it matters
            )
            address = stack.enter_context(cluster)
            share = max(1, available_threads() // placement.num_workers)
        else:
            address = placement.address
        try:
            client = stack.enter_context(Client(address, timeout=_CONNECT_SECONDS))
        except (OSError, ValueError) as error:
            raise InvalidInput(
                f"no Dask scheduler answers at {placement.address}: {error}"
            ) from error
        futures = [
            client.submit(
                replace(task, num_threads=task.num_threads or share).run, pure=False, retries=0
            )
            for task in tasks
        ]
        try:
            for future in as_completed(futures):
                done(future.result())
        except KilledWorker as error:
            raise WorkerDied(
                f"Dask gave up: {error}. Finished shards are kept: run the same command again for "
                "the rest."
            ) from error
        finally:
            client.cancel(futures)
