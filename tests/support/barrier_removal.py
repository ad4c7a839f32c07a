"""Run the kernels with one barrier left out and say whether anybody noticed.

A process of its own, as ``python -m support.barrier_removal LIBRARY SITE``: a kernel that
lacks a barrier may well crash, which counts as noticed. Prints "noticed" or "missed".
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from support.host_engine import KERNEL_FOLDER, SCHEDULES, HostEngine, KernelFault
from support.kernel_cases import CASES


def barrier_sites() -> list[str]:
    """Every barrier in the sources, as "file:line"; those that only a device compiles left out."""
    pattern = re.compile(r"^\s*(__syncthreads|cluster_sync)\(\);")
    return [
        f"{path.name}:{number}"
        for path in sorted(KERNEL_FOLDER.glob("*.cuh"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.match(line)
    ]


def is_noticed(library: Path, site: str) -> bool:
    """Whether any case fails, or gives another result, under any schedule."""
    for case in CASES.values():
        expected = case(HostEngine(library))
        for schedule in reversed(SCHEDULES):
            engine = HostEngine(library, schedule)
            engine.remove_barrier(site)
            try:
                found = case(engine)
            except (KernelFault, IndexError):
                return True
            finally:
                engine.remove_barrier("")
            if found != expected:
                return True
    return False


if __name__ == "__main__":
    print("noticed" if is_noticed(Path(sys.argv[1]), sys.argv[2]) else "missed")
