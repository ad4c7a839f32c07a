"""Timing of several routes in turn, and measurements in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.errors import SolverError


def timed(routes: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, NDArray[np.float64]]:
    """Seconds of every route in every round, interleaved, each round in another order.

    A first round compiles and touches memory, and does not count.
    """
    for route in routes.values():
        route()
    names = list(routes)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds):
        start_with = i % len(names)
        for name in names[start_with:] + names[:start_with]:
            start = time.perf_counter()
            routes[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: np.array(values) for name, values in seconds.items()}


def in_own_process(module: str, case: list[Any]) -> dict[str, Any]:
    """What ``python -m module`` prints for a case, both as JSON."""
    command = [sys.executable, "-m", module, json.dumps(case)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SolverError(f"the benchmark of {case} failed: {done.stderr.strip()[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result
