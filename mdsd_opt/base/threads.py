"""Work shared among threads; the kernels release the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def available_threads() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_rows(
    function: Callable[[int], Result], num_rows: int, num_threads: int, name: str
) -> list[Result]:
    """function(0), ..., function(num_rows - 1); of several errors the first row's is raised."""
    workers = min(num_threads, num_rows)
    if workers <= 1:
        return [function(row) for row in range(num_rows)]
    with ThreadPoolExecutor(workers, thread_name_prefix=name) as pool:
        try:
            return list(pool.map(function, range(num_rows)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
