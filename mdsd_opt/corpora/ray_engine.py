"""Shards as tasks of a Ray cluster; Ray runs those of a lost worker again."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from mdsd_opt.base.long_runs import available_threads
from mdsd_opt.corpora.engines import Placement, Task
from mdsd_opt.errors import InvalidInput, MdsdError, WorkerDied

_MAX_RETRIES = 3
_CONNECT_SECONDS = 10


def require() -> None:
    """Import what the engine needs."""
    import ray  # noqa: F401  # imported for the error it may raise


def run(tasks: Sequence[Task], placement: Placement, done: Callable[[str], None]) -> None:
    """Score the shards on the cluster at the address, or on worker processes started here.

    Raises
    ------
    WorkerDied
        A shard took four workers down with it.
    InvalidInput
        There is no cluster at the address.
    """
    with contextlib.redirect_stdout(sys.stderr):  # where Ray's remarks belong
        _run(tasks, placement, done)


def _run(tasks: Sequence[Task], placement: Placement, done: Callable[[str], None]) -> None:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # spares a warning
    import ray
    from ray.exceptions import RayTaskError, WorkerCrashedError

    share = 1
    if placement.address is None:
        share = max(1, available_threads() // placement.num_workers)
        ray.init(
            num_cpus=placement.num_workers,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
        )
    else:
        try:
            _require_listener(placement.address)
            ray.init(address=placement.address, logging_level="error")
        except (OSError, RuntimeError, ValueError) as error:
            raise InvalidInput(f"no Ray cluster answers at {placement.address}: {error}") from error
    try:
        score = ray.remote(num_cpus=1, max_retries=_MAX_RETRIES)(Task.run)
        waiting = [
            score.remote(replace(task, num_threads=task.num_threads or share)) for task in tasks
        ]
        while waiting:
            finished, waiting = ray.wait(waiting)
            done(ray.get(finished[0]))
    except RayTaskError as error:
        if isinstance(error.cause, MdsdError):
            raise error.cause from error
        raise
    except WorkerCrashedError as error:
        raise WorkerDied(
            f"Ray gave up after {_MAX_RETRIES + 1} workers died on one shard. Finished shards are "
            "kept: run the same command again for the rest."
        ) from error
    finally:
        ray.shutdown()


def _require_listener(address: str) -> None:
    """Raise OSError unless something listens there; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():  # otherwise a word such as "auto"
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
