"""The kernels: their CUDA C++ sources, and what each needs to be launched."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from importlib import resources

#: Types of logits as the kernels name them.
STORED_TYPES = {"float32": "float", "float16": "Half", "bfloat16": "BFloat"}

#: For the device's compiler.
COMPILE_OPTIONS = ("--std=c++17",)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel template.

    Attributes
    ----------
    name : str
        Of the function; its file is ``kernels/<name>.cuh``.
    memory : str
        The struct that lies over its dynamic shared memory.
    shared_bytes : int
        Size of that struct at most; the compiler checks it.
    """

    name: str
    memory: str
    shared_bytes: int

    def expression(self, target_type: str, draft_type: str) -> str:
        """Name of the instance for these types, such as "float32" and "bfloat16"."""
        return f"{self.name}<{STORED_TYPES[target_type]}, {STORED_TYPES[draft_type]}>"


WITH_REPLACEMENT = Kernel("with_replacement", "WithReplacementMemory", 106_496)
WITHOUT_REPLACEMENT = Kernel("without_replacement", "RaceMemory", 90_112)
FIXED_DRAFTS = Kernel("fixed_drafts", "FixedDraftsMemory", 75_776)
REJECTION = Kernel("rejection", "RejectionMemory", 1_024)
OPTIMAL_VERIFICATION = Kernel("optimal_verification", "OptimalVerificationMemory", 90_112)
TOKEN_FILTERS = Kernel("token_filters", "TokenFiltersMemory", 35_840)

KERNELS = (
    WITH_REPLACEMENT,
    WITHOUT_REPLACEMENT,
    FIXED_DRAFTS,
    REJECTION,
    OPTIMAL_VERIFICATION,
    TOKEN_FILTERS,
)


def most_shared_bytes() -> int:
    """Shared memory that a block must be able to get."""
    return max(kernel.shared_bytes for kernel in KERNELS)


@functools.cache
def source() -> str:
    """All kernels as one translation unit, every header once and after those it includes."""
    folder = resources.files("mdsd_opt.gpu") / "kernels"
    included: set[str] = set()
    lines: list[str] = []

    def include(file: str) -> None:
        if file in included:
            return
        included.add(file)
        for line in (folder / file).read_text(encoding="utf-8").splitlines():
            if found := re.fullmatch(r'#include "(.+)"', line):
                include(found[1])
            elif line != "#pragma once":
                lines.append(line)

    for kernel in KERNELS:
        include(f"{kernel.name}.cuh")
        lines.append(
            f"static_assert(sizeof({kernel.memory}) <= {kernel.shared_bytes}, "
            f'"{kernel.memory} has outgrown its shared memory");'
        )
    return "\n".join(lines) + "\n"
