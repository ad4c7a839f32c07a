"""Shards shared out among the ranks of torchrun, which are known from environment variables.

Rank r of w takes the shards r, r + w, ..., and then waits for those of the others. torch is not
imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from mdsd_opt.corpora.engines import Placement, Task
from mdsd_opt.errors import InvalidInput
from mdsd_opt.threads import available_threads

_POLL_SECONDS = 0.2


def require() -> None:
    """Nothing is needed."""


def rank() -> int:
    """This process' rank.

    Raises
    ------
    InvalidInput
        The environment does not say, or not sensibly.
    """
    return _ranks()[0]


def run(tasks: Sequence[Task], placement: Placement, done: Callable[[str], None]) -> None:
    """Score this rank's share, then wait until all shards are there.

    A rank that fails makes torchrun end all of them, also those that wait; what is finished stays.
    """
    if placement.address is not None or placement.workers is not None:
        raise InvalidInput("torchrun sets the number of ranks: leave --workers and --address out")
    own, count, local_count = _ranks()
    share = max(1, available_threads() // local_count)
    for task in tasks[own::count]:
        done(replace(task, num_threads=task.num_threads or share).run())
    waiting = [task for i, task in enumerate(tasks) if i % count != own]
    while waiting:
        still = []
        for task in waiting:
            if task.result() is None:
                still.append(task)
            else:
                done(task.path_in.name)
        waiting = still
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
            "engine 'torchrun' needs RANK and WORLD_SIZE in the environment: start it with "
            "torchrun --nproc-per-node N --no-python mdsd-opt rates DIR --engine torchrun"
        ) from error
    if not 0 <= own < count or local_count < 1:
        raise InvalidInput(f"RANK is {own} and WORLD_SIZE is {count}: ranks count from 0")
    return own, count, local_count
