"""What runs the kernels' PTX notices what would go wrong on a device."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from support.kernel_cases import CASES, near_rows, pair_of
from support.ptx import runtime as ptx_runtime
from support.ptx.runtime import (
    SCHEDULES,
    Change,
    Device,
    KernelFault,
    PtxRuntime,
    built,
    host_logits,
)

from mdsd_opt.gpu import Randomness, verify_rows
from mdsd_opt.gpu.sources import BEST_PREFIX, DRAFT_SELECTION, KERNELS, RATIO_TABLES, Kernel

#: What is wrong with each variant of a kernel, as it is told. A cluster has two blocks.
BROKEN = {
    "": "made[blockIdx.x * 128 + thread] = given[0] + sum_of_warp(1.0f);",
    "outside of all buffers": "made[size + thread] = 1.0f;",
    "writes to what is given": "const_cast<float*>(given)[thread] = 1.0f;",
    "reads between rows": "made[thread] = given[size];",
    "reads what was never written": "made[thread] = made[thread + 1];",
    "outside of shared memory": "shared[thread + 256] = 1.0f;",
    "misaligned": "made[thread] = *reinterpret_cast<const volatile u64*>(given + 1);",
    "race: write of a write": "shared[0] = thread;",
    "race: read of a write": "shared[thread] = 1.0f; made[thread] = shared[thread ^ 32];",
    "race: write of a read": "shared[thread] = 1.0f; __syncthreads();"
    " made[thread] = shared[thread ^ 32]; shared[thread] = 2.0f;",
    "a block that may not run yet": "*in_block(shared + thread, cluster_rank() ^ 1) = 1.0f;",
    "a block that has ended": "shared[thread] = 1.0f; cluster_sync(); if (cluster_rank() == 1)"
    " made[thread] = *in_block(shared + thread, 0);",
    "waits for threads that have ended": "if (thread < 32) __syncthreads();",
    "waits forever": "if (thread < 32) __syncthreads(); else cluster_sync();",
    "exchange with an absent lane": "made[thread] ="
    " __shfl_xor_sync(thread & 16 ? 0xFFFF0000u : 0xFFFFu, 1.0f, 16);",
    "a mask with lanes that have ended": "if (thread % 32 == 0) return;"
    " made[thread] = sum_of_warp(1.0f);",
    "ends before it has waited": "cluster_arrive();",
}

_SOURCE = """
__device__ float sum_of_warp(float x) { return __shfl_xor_sync(0xFFFFFFFFu, x, 1); }
template <int kVariant>
__global__ void MDSD_CLUSTER broken(const float* given, float* made, int size) {
  volatile float* shared = reinterpret_cast<volatile float*>(shared_memory());
  int thread = threadIdx.x;
"""


@pytest.mark.parametrize("place", range(len(BROKEN)), ids=BROKEN)
def test_what_is_wrong_is_told(
    kernel_device: Device, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    told = [*BROKEN][place]
    header = ptx_runtime.source(RATIO_TABLES).partition("// float16 and bfloat16 as stored")[0]
    code = f"{header}{_SOURCE}{BROKEN[told]}\n}}\n"
    monkeypatch.setattr(ptx_runtime, "source", lambda kernel: code)
    kernel = Kernel("broken", "broken", "", 1024, reads_logits=False, variant=place)
    runtime = PtxRuntime(kernel_device)
    rows = np.ones((2, 300), np.float32)[:, :256]  # with a gap between them
    given = np.uint64(host_logits(rows).address)
    arguments = [given, runtime.empty((256,), np.float32), np.int32(256)]
    if not told:
        runtime.launch(kernel, ("float32", "float32"), 1, arguments)
        return
    with pytest.raises(KernelFault, match=told):
        runtime.launch(kernel, ("float32", "float32"), 1, arguments)


@pytest.fixture(scope="session")
def met(kernel_device: Device) -> dict[str, dict]:
    """By case: the kernels it launches, and the stretches of their PTX that it comes to."""
    found = {}
    for name, case in CASES.items():
        runtime = PtxRuntime(kernel_device)
        case(runtime)
        found[name] = runtime.met
    return found


@functools.cache
def result_of(device: Device, name: str) -> bytes:
    return CASES[name](PtxRuntime(device))


def is_noticed(device: Device, change: Change, name: str) -> bool:
    """Whether a case fails, or gives another result, under any schedule."""
    expected = result_of(device, name)
    for schedule in SCHEDULES:
        try:
            if CASES[name](PtxRuntime(device, schedule, change=change)) != expected:
                return True
        except (KernelFault, IndexError):
            return True
    return False


def barriers(device: Device, kernel: Kernel) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Place, lines and a stretch of each barrier that a kernel's source has."""
    _, known = built(device, kernel, ("float32", "float32") if kernel.reads_logits else None)
    lines = defaultdict(list)
    for line in known.barriers:
        lines[known.place_of(line)].append(line)
    for place, own in lines.items():
        yield place, tuple(own), known.barriers[own[0]]


#: Barriers that no case needs: of windows, which leave nothing open; where each of 128 threads has
#: a group of its own, which 512 have not; where nearly all of q is in few tokens; where a block
#: that is alone with a row looks for both sides' filters; where threads that take places, and no
#: nodes, read what each has found itself; and of windows with many heavy tokens.
NOT_NEEDED = {
    "best_race_prefix": 1,
    "best_zoomed_race_prefix": 2,
    "best_zoomed_prefix": 1,
    "binned_token_filters": 1,
    "packed_fixed_drafts": 1,
    "race_tables": 2,
    "race_groups": 1,
}

#: Of all kernels, those that a first look needs.
FIRST = (RATIO_TABLES, BEST_PREFIX, DRAFT_SELECTION)


def cases_of(met: dict[str, dict], kernel: Kernel, stretch: int) -> list[str]:
    types = ("float32", "float32") if kernel.reads_logits else None
    return [name for name, ran in met.items() if stretch in ran.get((kernel, types), ())]


@pytest.mark.parametrize(
    "kernel",
    [x if x in FIRST else pytest.param(x, marks=pytest.mark.exhaustive) for x in KERNELS],
    ids=lambda x: x.expression(("float32", "float32")),
)
def test_each_barrier_is_needed(
    kernel_device: Device, met: dict[str, dict], kernel: Kernel
) -> None:
    missed = []
    for place, lines, stretch in barriers(kernel_device, kernel):
        names = cases_of(met, kernel, stretch)
        change = Change(kernel.name, lines)
        if names and not any(is_noticed(kernel_device, change, name) for name in names):
            missed.append(place)
    assert len(missed) <= NOT_NEEDED.get(kernel.name, 0), missed


@pytest.mark.parametrize("moved_by", [4, 1 << 20], ids=["shifted", "wild"])
@pytest.mark.parametrize("kernel", FIRST, ids=lambda x: x.name)
def test_accesses_that_are_moved(
    kernel_device: Device, met: dict[str, dict], kernel: Kernel, moved_by: int
) -> None:
    """A sample of loads and stores, each four bytes too far or a MiB."""
    types = ("float32", "float32") if kernel.reads_logits else None
    accesses = built(kernel_device, kernel, types)[1].accesses
    ran = [
        (line, names[0])
        for line, stretch in accesses.items()
        if (names := cases_of(met, kernel, stretch))
    ]
    sample = ran[:: max(1, len(ran) // 8)]
    missed = [
        line
        for line, name in sample
        if not is_noticed(kernel_device, Change(kernel.name, (line,), moved_by), name)
    ]
    # Four bytes further on there is often a number that would do as well.
    assert len(missed) <= (len(sample) // 2 if moved_by == 4 else 0), missed


def test_a_plan_costs_no_more_than_it_may(kernel_device: Device) -> None:
    """Instructions of all threads for a row, by PTX, and those of 64-bit floats."""
    runtime = PtxRuntime(Device(kernel_device.folder, block_size=512))
    target, draft = near_rows(1, 4096)
    drafts = np.argsort(-draft, axis=1)[:, 3:7].copy()
    verify_rows(runtime, pair_of(target, draft), drafts, Randomness(0))
    counts = runtime.counts[DRAFT_SELECTION.name]
    assert 100_000 < counts["instructions"] <= 1_250_000
    assert 10_000 < counts["float64"] <= 115_000
