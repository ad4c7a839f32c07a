"""Kernels that this process may call, so that those it has to compile can be counted.

Apart from `numba_cache`, as to import that takes longer than most commands need.
"""

from __future__ import annotations

#: Names of the kernels by `kernel_name`; empty if nobody has set them.
expected: tuple[str, ...] = ()


def expect(kernels: tuple[str, ...]) -> None:
    """Set the kernels that may be called from Python: too many do no harm."""
    global expected  # as long as the process
    expected = kernels
