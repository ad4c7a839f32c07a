"""Run the kernels with one barrier left out and say whether anybody noticed.

A process of its own, as ``python -m support.barrier_removal LIBRARY SITE [CASE ...]``: a kernel
that lacks a barrier may well crash, which counts as noticed. Prints "noticed" or "missed". Only
cases that come to a barrier can notice that it is gone; `cases_by_barrier` tells which these are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from support.host_runtime import KERNEL_FOLDER, SCHEDULES, HostRuntime, KernelFault
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


def cases_by_barrier(library: Path) -> dict[str, list[str]]:
    """Names of the cases that come to each barrier."""
    found: dict[str, list[str]] = {}
    runtime = HostRuntime(library)
    before = runtime.barriers_met()
    for name, case in CASES.items():
        case(HostRuntime(library))
        after = runtime.barriers_met()
        for site, count in after.items():
            if count > before.get(site, 0):
                found.setdefault(site, []).append(name)
        before = after
    return found


def is_noticed(library: Path, site: str, names: Iterable[str] = CASES) -> bool:
    """Whether any of these cases fails, or gives another result, under any schedule."""
    for case in (CASES[name] for name in names):
        expected = case(HostRuntime(library))
        for schedule in reversed(SCHEDULES):
            runtime = HostRuntime(library, schedule)
            runtime.remove_barrier(site)
            try:
                found = case(runtime)
            except (KernelFault, IndexError):
                return True
            finally:
                runtime.remove_barrier("")
            if found != expected:
                return True
    return False


if __name__ == "__main__":
    arguments = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    print("noticed" if is_noticed(*arguments) else "missed")
