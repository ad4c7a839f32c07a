"""Every kernel compiles to machine code for all architectures and types, which needs no device."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import kernel_budget
from support.ptx.runtime import ALL_TYPES

from mdsd_opt.gpu.sources import (
    COMPILE_OPTIONS,
    KERNELS,
    RATIO_TABLES,
    Kernel,
    cluster_option,
    most_shared_bytes,
    source,
)

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")

#: Largest shared memory of a block on sm_86, sm_89 and sm_120.
SMALLEST_SHARED_BYTES = 99 * 1024

#: Instructions a token, at most: without what only heavy tokens go through, and with it; and those
#: of the unit of exp2, reciprocals and conversions.
MOST_INSTRUCTIONS = {
    "with_replacement": (27.5, 27.5, 6),
    "without_replacement": (39, 56, 6),
    "optimal_verification": (48.5, 48.5, 11),
    "optimal_verification_without_replacement": (65, 96, 10),
}
#: Of a kernel of which two blocks share a processor.
MOST_REGISTERS = 64


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    try:
        kernel_budget.nvrtc()
    except ImportError as error:
        pytest.skip(f"no NVRTC ({error}): make test-kernels installs it")


def check(kernel: Kernel, types: tuple[str, str] | None, architecture: str) -> None:
    machine = kernel_budget.compiled(kernel, types, architecture)
    assert len(machine.code) > 1000
    assert "warning" not in machine.log
    assert 0 < machine.registers <= (MOST_REGISTERS if kernel.in_clusters else 128)
    # For sm_80 the assembler spills 12 bytes of `ratio_tables` and 52 of `race_tables`; of
    # `rejection` 64 for sm_90, between its passes.
    if kernel.name != "rejection" and architecture != "sm_80":
        assert machine.stack_bytes == machine.spill_bytes == 0


@pytest.mark.parametrize("number", range(len(ALL_TYPES)), ids=map("-".join, ALL_TYPES))
def test_kernels_that_read_logits(number: int) -> None:
    """Each pair of types for one of the architectures, in turn from kernel to kernel."""
    for place, kernel in enumerate(kernel for kernel in KERNELS if kernel.reads_logits):
        check(kernel, ALL_TYPES[number], ARCHITECTURES[(number + place) % len(ARCHITECTURES)])


@pytest.mark.parametrize("place", range(len(KERNELS)))
def test_kernels_that_read_none(place: int) -> None:
    if not KERNELS[place].reads_logits:
        check(KERNELS[place], None, ARCHITECTURES[place % len(ARCHITECTURES)])


#: NVRTC of CUDA 12.0, which `make test-kernels` lays here.
OLDEST = Path(__file__).parents[2] / ".oldest-nvrtc/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"


@pytest.fixture(scope="module")
def oldest() -> ctypes.CDLL:
    if not OLDEST.exists():
        pytest.skip("no NVRTC of CUDA 12.0: make test-kernels installs it")
    return ctypes.CDLL(str(OLDEST))


def words_of(compiler: ctypes.CDLL, kernel: Kernel, options: list[str]) -> str:
    """What a compiler says of a kernel that it refuses; nothing where it compiles."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    text, at = source(kernel).encode(), ctypes.byref(program)
    assert compiler.nvrtcCreateProgram(at, text, b"kernel.cu", 0, None, None) == 0
    name = kernel.expression(("float32", "bfloat16") if kernel.reads_logits else None)
    assert compiler.nvrtcAddNameExpression(program, name.encode()) == 0
    given = [x.encode() for x in (*options, cluster_option(1), "-arch=sm_90")]
    as_array = (ctypes.c_char_p * len(given))(*given)
    if compiler.nvrtcCompileProgram(program, len(given), as_array) == 0:
        return ""
    compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    compiler.nvrtcGetProgramLog(program, log)
    return log.value.decode()


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=[pytest.mark.exhaustive] if place % 6 else [])
        for place in range(len(KERNELS))
    ],
)
def test_the_oldest_compiler_takes_the_kernels(oldest: ctypes.CDLL, place: int) -> None:
    assert not words_of(oldest, KERNELS[place], list(COMPILE_OPTIONS))


def test_the_oldest_compiler_takes_lambdas_for_functions_of_the_host(oldest: ctypes.CDLL) -> None:
    options = [x for x in COMPILE_OPTIONS if "execution-space" not in x]
    assert "execution space" in words_of(oldest, RATIO_TABLES, options)


def test_an_error_is_seen() -> None:
    broken = replace(RATIO_TABLES, shared_bytes=8)
    with pytest.raises(AssertionError, match="outgrown"):
        kernel_budget.compiled(broken, ("float32", "float32"))


def test_clusters_are_as_large_as_rows_need() -> None:
    for dtype, sizes in (
        ("float32", {100: 2, 32_768: 2, 65_536: 4, 131_072: 8, 262_144: 8}),
        ("bfloat16", {32_768: 2, 131_072: 4, 151_936: 4, 262_144: 8}),
    ):
        assert {size: RATIO_TABLES.blocks((dtype, dtype), size) for size in sizes} == sizes


def test_shared_memory_of_small_devices_is_enough() -> None:
    assert most_shared_bytes() <= SMALLEST_SHARED_BYTES


@pytest.fixture(scope="module")
def budget() -> kernel_budget.Figures:
    """What `scripts/kernel-budget` counts."""
    try:
        kernel_budget.nvdisasm()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    root = Path(__file__).parents[2]
    command = ["scripts/kernel-budget", sys.executable]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", MOST_INSTRUCTIONS)
def test_no_kernel_costs_more_than_it_may(budget: kernel_budget.Figures, name: str) -> None:
    assert set(budget[name]) == {"float32", "bfloat16"}
    for figures in budget[name].values():
        # Two passes of a few operations on two logits can't be had for less.
        assert figures["usual_instructions_per_token"] > 15
        usual, every, slow = MOST_INSTRUCTIONS[name]
        assert figures["usual_instructions_per_token"] <= usual
        assert figures["usual_instructions_per_token"] <= figures["instructions_per_token"] <= every
        assert figures["slow_unit_per_token"] <= slow
        assert figures["registers"] <= MOST_REGISTERS
        assert figures["stack_bytes"] == figures["spill_bytes"] == 0
        assert figures["shared_bytes"] <= SMALLEST_SHARED_BYTES


def test_loops_are_counted_as_they_are_written() -> None:
    """Two passes, one with a last stretch and a branch that few take, and a loop by the byte."""
    lines = [
        ".L_x_1:", "LDG.E.128 R0", "LDG.E.128 R4", "MUFU.EX2 R1", "BRA `(.L_x_1)",
        ".L_x_2:", *["LDG.E.128 R0"] * 4, "ATOMS.ADD R1", "BRA `(.L_x_3)", "FMUL R2", ".L_x_3:",
        "BRA `(.L_x_2)",
        ".L_x_4:", "LDG.E.128 R0", "LDG.E.128 R4", "ATOMS.ADD R1", "BRA `(.L_x_4)",
        ".L_x_5:", "LDG.E.U8 R0", "BRA `(.L_x_5)",
    ]  # fmt: skip
    assert kernel_budget.instructions_per_token(lines, 8) == [(1.0, 1.0, 0.25), (1.0, 7 / 8, 0.0)]
