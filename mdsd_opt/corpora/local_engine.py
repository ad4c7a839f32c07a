"""Shards on this machine, in this process or in several."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

from mdsd_opt.base.long_runs import available_threads
from mdsd_opt.corpora.engines import Placement, Task
from mdsd_opt.errors import InvalidInput, WorkerDied


def require() -> None:
    """Nothing is needed."""


def run(tasks: Sequence[Task], placement: Placement, done: Callable[[str], None]) -> None:
    """One process uses threads; with several, each takes its share of the processors.

    Raises
    ------
    WorkerDied
        A worker process was killed. What is finished stays; a second run does the rest.
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
        futures = [
            pool.submit(_run, replace(task, num_threads=task.num_threads or share))
            for task in tasks
        ]
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
