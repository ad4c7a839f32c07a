"""Which kernels this process may call, so that those it has to compile can be counted.

Apart from `numba_cache`, as to import that takes longer than most commands need.
"""

from __future__ import annotations

#: As `kernel_name` says them; empty where nobody has said.
expected: tuple[str, ...] = ()


def expect(kernels: tuple[str, ...]) -> None:
    """Say which kernels may be called from Python: more than are is no fault."""
    global expected  # as long as the process
    expected = kernels
