"""Run the kernels' cases as threads of the system, under ThreadSanitizer.

A process of its own that preloads the sanitizer, as ``python -m support.race_witness LIBRARY
[SITE CASE ...]``: with the barrier at SITE ("file:line") left out and only these cases, where that
is given. Prints "clean" if it comes to the end; the sanitizer stops it at the first race.
"""

from __future__ import annotations

import sys
from pathlib import Path

from support.host_runtime import HostRuntime
from support.kernel_cases import CASES


def main(library: str, site: str = "", *names: str) -> None:
    for case in (CASES[name] for name in names or CASES):
        runtime = HostRuntime(Path(library), block_size=32)
        runtime.remove_barrier(site)
        case(runtime)
    print("clean")


if __name__ == "__main__":
    main(*sys.argv[1:])
