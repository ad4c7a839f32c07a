"""CUDA C++ sources of the kernels, and the needs of each at its launch."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources

#: Names of the types of logits in the kernels.
STORED_TYPES = {"float32": "float", "float16": "Half", "bfloat16": "BFloat"}

#: Number of threads of a block of a cluster, and of one that is alone with a row.
CLUSTER_BLOCK_SIZE = 512
BLOCK_SIZE = 256

#: Number of blocks of a cluster at most, where a device has clusters.
CLUSTER_SIZE = 8

#: Options of the device's compiler.
COMPILE_OPTIONS = (
    "--std=c++17",
    "--diag-suppress=177",  # constants that not every kernel uses
    # Compilers before CUDA 13.2 take a lambda that a function is given for a function of the host.
    "--device-as-default-execution-space",
    f"-DMDSD_BLOCK_SIZE={CLUSTER_BLOCK_SIZE}",
)


def cluster_option(blocks: int) -> str:
    """Further option, for clusters of so many blocks."""
    return f"-DMDSD_CLUSTER_SIZE={blocks}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, which is a function, or a template over the types of logits or over a number."""

    name: str  # of the function
    file: str  # ``kernels/<file>.cuh`` holds it
    memory: str  # the struct that lies over its dynamic shared memory; "" for none
    shared_bytes: int  # size of that struct at most; the compiler checks it
    reads_logits: bool = True  # a template over the types of both sides
    in_clusters: bool = True  # a cluster takes a row; else one block of `BLOCK_SIZE` at most
    variant: int | None = None  # argument of a template over a number, after any types
    #: Bytes of a row, of both sides, that a block of a smaller cluster has at most: few blocks wait
    #: less for each other, and the fewer blocks read at a time, the more of their rows stay in the
    #: cache. None where clusters are never smaller.
    block_bytes: int | None = None
    #: Structs that it finds in global memory, with the most bytes that each has.
    records: Mapping[str, int] = field(default_factory=dict, hash=False)

    def expression(self, types: tuple[str, str] | None) -> str:
        """Name of an instance, for `types` of the target's and the draft's logits."""
        arguments = [] if self.variant is None else [str(self.variant)]
        if self.reads_logits:
            assert types is not None
            arguments = [*(STORED_TYPES[name] for name in types), *arguments]
        return f"{self.name}<{', '.join(arguments)}>" if arguments else self.name

    def blocks(self, types: tuple[str, str], vocab_size: int) -> int:
        """Blocks of a row's cluster; by the row alone, so that no bit depends on the batch."""
        if self.block_bytes is None:
            return CLUSTER_SIZE
        row_bytes = vocab_size * sum(4 if name == "float32" else 2 for name in types)
        return next((n for n in (2, 4) if row_bytes <= n * self.block_bytes), CLUSTER_SIZE)


#: Structs in global memory, with the most bytes that each has.
RATIO_RECORDS = {"RowHead": 32, "RatioWindow": 48}
RACE_RECORDS = {"RaceHead": 5_456, "RaceWindow": 56}

RATIO_TABLES = Kernel(
    "ratio_tables", "ratio_tables", "RatioTablesMemory", 67_584, block_bytes=160 << 10,
    records=RATIO_RECORDS,
)  # fmt: skip
ZOOMED_RATIO_TABLES = replace(RATIO_TABLES, name="zoomed_ratio_tables")
BEST_PREFIX = Kernel("best_prefix", "best_prefix", "BestPrefixMemory", 18_432, False, False)
BEST_ZOOMED_PREFIX = replace(BEST_PREFIX, name="best_zoomed_prefix")

RACE_TABLES = Kernel(
    "race_tables", "race_tables", "RaceTablesMemory", 68_608, block_bytes=160 << 10,
    records=RACE_RECORDS,
)  # fmt: skip
ZOOMED_RACE_TABLES = replace(RACE_TABLES, name="zoomed_race_tables")
#: Values of K for which there are instances.
RACE_VARIANTS = (2, 4, 8, 16, 32)
BEST_RACE_PREFIXES = tuple(
    Kernel("best_race_prefix", "best_race_prefix", "BestRacePrefixMemory", 101_376, False, False, k)
    for k in RACE_VARIANTS
)
BEST_ZOOMED_RACE_PREFIXES = tuple(
    replace(kernel, name="best_zoomed_race_prefix") for kernel in BEST_RACE_PREFIXES
)

PACKED_FIXED_DRAFTS = Kernel(
    "packed_fixed_drafts", "packed_fixed_drafts", "PackedFixedDraftsMemory", 22_528,
    block_bytes=160 << 10,
)  # fmt: skip
FIXED_DRAFTS = Kernel("fixed_drafts", "fixed_drafts", "FixedDraftsMemory", 75_776)
REJECTION = Kernel("rejection", "rejection", "RejectionMemory", 1_024)
REJECTION_RATES = Kernel(
    "rejection_rates", "rejection_rates", "RejectionRatesMemory", 17_408, False, False
)

#: Records in global memory of the decision on a row, see `kernels/row_plan.cuh`.
PLAN_RECORDS = {"RowPlan": 187_000, "DraftedToken": 24}
DRAFTED_TOKENS = Kernel(
    "drafted_tokens", "drafted_tokens", "", 0, in_clusters=False, records=PLAN_RECORDS
)
RATIO_GROUPS = Kernel("ratio_groups", "ratio_groups", "RatioGroupsMemory", 17_408, False, False)
RACE_GROUPS = tuple(
    replace(kernel, name="race_groups", file="race_groups") for kernel in BEST_RACE_PREFIXES
)
DRAFT_SELECTION = Kernel(
    "draft_selection", "draft_selection", "DraftSelectionMemory", 98_304, False, False
)
RESIDUAL_TOKENS = Kernel(
    "residual_tokens", "residual_tokens", "ResidualTokensMemory", 21_504, variant=0,
    block_bytes=160 << 10,
)  # fmt: skip
RACE_RESIDUAL_TOKENS = replace(RESIDUAL_TOKENS, variant=1)
DRAFT_PLACES = Kernel("draft_places", "draft_places", "", 0, False, False)
BINNED_TOKEN_FILTERS = Kernel(
    "binned_token_filters", "binned_token_filters", "BinnedTokenFiltersMemory", 51_200,
    block_bytes=160 << 10,
)  # fmt: skip
TOKEN_FILTERS = Kernel("token_filters", "token_filters", "TokenFiltersMemory", 35_840)

KERNELS = (
    RATIO_TABLES, ZOOMED_RATIO_TABLES, BEST_PREFIX, BEST_ZOOMED_PREFIX, RACE_TABLES,
    ZOOMED_RACE_TABLES, *BEST_RACE_PREFIXES, *BEST_ZOOMED_RACE_PREFIXES, PACKED_FIXED_DRAFTS,
    FIXED_DRAFTS, REJECTION, REJECTION_RATES, DRAFTED_TOKENS, RATIO_GROUPS, *RACE_GROUPS,
    DRAFT_SELECTION, RESIDUAL_TOKENS, RACE_RESIDUAL_TOKENS, DRAFT_PLACES, BINNED_TOKEN_FILTERS,
    TOKEN_FILTERS,
)  # fmt: skip


def instances(kernels: Iterable[Kernel], types: tuple[str, str] | None) -> list[str]:
    """Names of the kernels that read logits of these types, or, for None, of the others."""
    return [
        kernel.expression(types) for kernel in kernels if kernel.reads_logits == (types is not None)
    ]


def most_shared_bytes() -> int:
    """Bytes of shared memory that a block must be able to get."""
    return max(kernel.shared_bytes for kernel in KERNELS)


@functools.cache
def source(*kernels: Kernel) -> str:
    """Source of the kernels as one translation unit, each header once, after those it includes.

    Compilers are told which file each line is of.
    """
    folder = resources.files("mdsd_opt.gpu") / "kernels"
    included: set[str] = set()
    lines: list[str] = []

    def include(file: str) -> None:
        if file in included:
            return
        included.add(file)
        text = (folder / file).read_text(encoding="utf-8")
        lines.append(f'#line 1 "{file}"')
        for number, line in enumerate(text.splitlines(), 1):
            if found := re.fullmatch(r'#include "(.+)"', line):
                include(found[1])
                lines.append(f'#line {number + 1} "{file}"')
            else:
                lines.append("" if line == "#pragma once" else line)

    for kernel in kernels:
        include(f"{kernel.file}.cuh")
        memory = {kernel.memory: kernel.shared_bytes} if kernel.memory else {}
        for name, size in {**memory, **kernel.records}.items():
            lines.append(
                f'static_assert(sizeof({name}) <= {size}, "{name} has outgrown its memory");'
            )
    return "\n".join(lines) + "\n"
