"""Shards shared out among the ranks of torchrun, which are known from environment variables.

Rank r of w takes the shards r, r + w, ..., and then waits for those of the others, as long as these
give signs of life. torch is not imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mdsd_opt.base.long_runs import available_threads
from mdsd_opt.corpora.engines import Placement, Task
from mdsd_opt.corpora.rank_signs import Peer, signs_of_life
from mdsd_opt.errors import InvalidInput, WorkerDied

_POLL_SECONDS = 0.2

#: Ranks that a message names.
_NAMED = 8


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

    Raises
    ------
    WorkerDied
        Every rank whose shards are missing has given no sign of life for `placement.rank_timeout`
        seconds, or has left.
    """
    if placement.address is not None or placement.workers is not None:
        raise InvalidInput("torchrun sets the number of ranks: leave --workers and --address out")
    own, count, local_count = _ranks()
    share = max(1, available_threads() // local_count)
    folder, timeout = tasks[0].path_out.parent, placement.rank_timeout
    peers = {rank: Peer(folder, rank) for rank in range(count) if rank != own}
    with signs_of_life(folder, own, timeout):
        for task in tasks[own::count]:
            done(replace(task, num_threads=task.num_threads or share).run())
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
    def told(what: str, ranks: list[int]) -> str:
        names = ", ".join(map(str, ranks[:_NAMED])) + (", ..." if len(ranks) > _NAMED else "")
        return f"{'rank' if len(ranks) == 1 else 'ranks'} {names} {what}"

    kinds = {
        "did not come": [rank for rank in owing if not peers[rank].came],
        "ended early": [rank for rank in owing if peers[rank].left],
        "came and fell silent": [
            rank for rank in owing if peers[rank].came and not peers[rank].left
        ],
    }
    for peer in peers.values():
        peer.look()
    missing = "; ".join(told(what, ranks) for what, ranks in kinds.items() if ranks)
    num_came = 1 + sum(peer.came for peer in peers.values())
    return WorkerDied(
        f"{num_came} of {len(peers) + 1} ranks came; {missing}; no sign of life was waited for "
        f"longer than {timeout:g} seconds. {num_done} of {num_shards} shards are done and kept: "
        "start all ranks again with the same command for the rest, with a longer rank_timeout "
        "(--rank-timeout) if they start far apart."
    )


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
