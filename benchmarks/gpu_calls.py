"""What a call on a device costs for one row: plain calls beside those of a plan, and its replay.

Two medians in microseconds: of the thread's own processor time, and of time as it passes until the
call returns. Without a device kernels are launched on the CuPy of the tests, which runs none of
them: what is measured is Python, and a launch costs there what the test's CuPy makes of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from mdsd_opt import batch
from mdsd_opt.gpu import runtime as gpu_runtime


def fake_cupy() -> Any:
    """The tests' CuPy, on kernels that do nothing."""
    from support.waiting_cupy import WaitingCupy

    gpu_runtime.active_clusters = lambda function, size: 8
    return WaitingCupy(SimpleNamespace(launch=lambda *given: None), marks=False)


def median_us(cupy: Any, call: Callable[[], Any], num_calls: int) -> list[float]:
    """Median times of a call; what it has launched is done before the next one begins."""
    times = []
    for number in range(num_calls + 5):  # the first ones compile
        begin = time.thread_time(), time.perf_counter()
        call()
        if number >= 5:
            times.append((time.thread_time() - begin[0], time.perf_counter() - begin[1]))
        cupy.cuda.get_current_stream().synchronize()
    return [statistics.median(x) * 1e6 for x in zip(*times, strict=True)]


def replays(cupy: Any, calls: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """Replays of the calls of plans, captured by CuPy, which wait until the device is done."""
    found: dict[str, Callable[[], Any]] = {}
    stream = cupy.cuda.Stream(non_blocking=True)
    for name, call in calls.items():
        if not name.endswith("plan"):
            continue
        with stream:
            call()
            stream.synchronize()
            stream.begin_capture()
            call()
            graph = stream.end_capture()

        def replay(graph: Any = graph) -> None:
            graph.launch(stream)
            stream.synchronize()

        found[f"{name}'s replay, until it is done"] = replay
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--vocabulary", type=int, default=4096)
    given = parser.parse_args()
    on_device = gpu_runtime.is_available()
    if on_device:
        import cupy
    else:
        gpu_runtime.why_unavailable.cache_clear()
        sys.modules["cupy"] = cupy = fake_cupy()
    size = given.vocabulary
    rng = np.random.default_rng(0)
    sides = [cupy.asarray(rng.normal(size=(1, size)).astype(np.float32)) for _ in range(2)]
    drafts = cupy.asarray(np.arange(4)[None])
    calls: dict[str, Callable[[], Any]] = {}
    for scheme in ("with_replacement", "without_replacement"):
        calls[f"rates, {scheme}"] = lambda scheme=scheme: batch.acceptance_rates(
            *sides, 3, scheme, kind="logits"
        )
        calls[f"decisions, {scheme}"] = lambda scheme=scheme: batch.verify_batch(
            *sides, drafts, scheme=scheme, kind="logits"
        )
        if hasattr(batch, "RatesPlan"):  # earlier commits have none
            rates = batch.RatesPlan(size, 1, "float32", 3, scheme)
            decisions = batch.DecisionsPlan(size, 1, "float32", 4, scheme)
            calls[f"rates, {scheme}, plan"] = lambda plan=rates: plan(*sides)
            calls[f"decisions, {scheme}, plan"] = lambda plan=decisions: plan(*sides, drafts)
    if on_device:
        calls |= replays(cupy, calls)
    medians = {name: median_us(cupy, call, given.calls) for name, call in calls.items()}
    print(tables(medians))
    if given.json:
        given.json.write_text(json.dumps(medians, indent=2) + "\n")


def tables(medians: dict[str, list[float]]) -> str:
    """The medians as a table of Markdown."""
    lines = ["| | us of the thread | us |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {x} | {y:.0f} | {z:.0f} |" for x, (y, z) in medians.items())])


def report(path: Path) -> None:
    """Print the table of a file."""
    print(tables(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
