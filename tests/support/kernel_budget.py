"""What a kernel costs, read off its machine code: instructions a token, registers and memory.

``python -m support.kernel_budget`` prints it for the kernels that read logits, as JSON. A token's
instructions are those of the loops over whole packs of a row, one for each pass that every row
takes: they are the loops whose loads from global memory all have 128 bits. What only tokens above
some weight go through counts in full, and is left out in `usual_instructions_per_token`. Needs
NVRTC and nvdisasm, both of which come in wheels, and no device.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from mdsd_opt.gpu.sources import (
    COMPILE_OPTIONS,
    RACE_RESIDUAL_TOKENS,
    RACE_TABLES,
    RATIO_TABLES,
    RESIDUAL_TOKENS,
    Kernel,
    source,
)

Figures = dict[str, dict[str, dict[str, float]]]

#: Kernels that every row goes through, for what a user asks.
PASSES = {
    "with_replacement": (RATIO_TABLES,),
    "without_replacement": (RACE_TABLES,),
    "optimal_verification": (RATIO_TABLES, RESIDUAL_TOKENS),
    "optimal_verification_without_replacement": (RACE_TABLES, RACE_RESIDUAL_TOKENS),
}
DTYPES = ("float32", "bfloat16")
ARCHITECTURE = "sm_90"


def nvrtc() -> Any:
    """CuPy's binding of the compiler; ImportError where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there may be no driver, as CuPy remarks
        from cupy.cuda import nvrtc as module
    return module


def nvdisasm() -> str:
    """Where the disassembler is; FileNotFoundError if it is nowhere."""
    try:
        files = metadata.files("nvidia-cuda-nvdisasm") or []
    except metadata.PackageNotFoundError:
        files = []
    found = [str(file.locate()) for file in files if file.name == "nvdisasm"]
    path = found[0] if found else shutil.which("nvdisasm")
    if path is None:
        raise FileNotFoundError("there is no nvdisasm: pip install nvidia-cuda-nvdisasm")
    return path


@dataclass(frozen=True, slots=True)
class Machine:
    """Machine code of one kernel.

    Attributes
    ----------
    code : bytes
    log : str
        What compiler and assembler say.
    """

    code: bytes
    log: str

    def figure(self, pattern: str) -> int:
        """Largest of the numbers that a pattern finds in the log."""
        return max((int(found) for found in re.findall(pattern, self.log)), default=0)

    @property
    def registers(self) -> int:
        return self.figure(r"Used (\d+) registers")

    @property
    def stack_bytes(self) -> int:
        return self.figure(r"(\d+) bytes stack frame")

    @property
    def spill_bytes(self) -> int:
        return self.figure(r"(\d+) bytes spill stores") + self.figure(r"(\d+) bytes spill loads")


def compiled(
    kernel: Kernel, types: tuple[str, str] | None, architecture: str = ARCHITECTURE
) -> Machine:
    """Compile one instance; the compiler's words as an AssertionError if it fails."""
    compiler = nvrtc()
    name = kernel.expression(types)
    program = compiler.createProgram(source(kernel), f"{kernel.file}.cu", (), ())
    compiler.addNameExpression(program, name)
    # CuPy adds -ftz=true to whatever it is given.
    options = (*COMPILE_OPTIONS, f"-arch={architecture}", "-ftz=true", "--ptxas-options=-v")
    try:
        compiler.compileProgram(program, options)
    except compiler.NVRTCError:
        raise AssertionError(compiler.getProgramLog(program)) from None
    # CuPy's getCUBIN leaves the last byte out.
    return Machine(compiler.getCUBIN(program) + b"\0", compiler.getProgramLog(program))


def disassembled(code: bytes) -> list[str]:
    """Labels, as ".L_x_3:", and instructions, in order."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(code)
        done = subprocess.run(
            [nvdisasm(), "-c", str(file)], capture_output=True, text=True, check=True
        )
    lines = []
    for line in done.stdout.splitlines():
        if label := re.match(r"(\.L_x_\d+:)", line):
            lines.append(label[1])
        elif instruction := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?);", line):
            lines.append(re.sub(r"^@!?U?P\w+\s+", "", instruction[1].strip()))
    return lines


def loops(lines: list[str]) -> list[list[str]]:
    """Lines of every loop that holds no other."""
    places = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    spans = []
    for i, line in enumerate(lines):
        target = re.search(r"\.L_x_\d+", line) if line.startswith("BRA") else None
        if target and places[target[0]] < i:
            spans.append((places[target[0]], i))
    inner = [
        (start, stop)
        for start, stop in spans
        if not any(start <= a and b <= stop and (a, b) != (start, stop) for a, b in spans)
    ]
    return [lines[start : stop + 1] for start, stop in sorted(set(inner))]


def instructions(loop: list[str]) -> list[str]:
    return [line for line in loop if not line.endswith(":")]


def usual(loop: list[str]) -> list[str]:
    """A loop without what a branch forwards jumps over."""
    places = {line[:-1]: i for i, line in enumerate(loop) if line.endswith(":")}
    taken, i = [], 0
    while i < len(loop):
        taken.append(loop[i])
        target = re.search(r"\.L_x_\d+", loop[i]) if loop[i].startswith("BRA") else None
        ahead = places.get(target[0], -1) if target else -1
        i = ahead if ahead > i else i + 1
    return taken


def instructions_per_token(
    lines: list[str], token_bytes: int, in_pairs: bool = False
) -> list[tuple[float, float, float]]:
    """Of each pass over packed rows, all, the usual ones, and of these those of the slow unit.

    That is the one of exp2, reciprocals and conversions. Passes differ in whether they add to
    shared memory; of several loops that do the same, such as that for a last stretch, the one that
    takes more tokens at a time counts, and of these the shortest, as filters take more; unless sums
    are taken `in_pairs`, no loop that has half of what the slow unit does elsewhere. In kernels
    that read no packs, all loops that read several numbers at once count.
    """
    packed: dict[bool, list[tuple[float, tuple[float, float, float]]]] = {}
    others: list[tuple[float, float, float]] = []
    for loop in loops(lines):
        operations = Counter(line.split()[0] for line in instructions(loop))
        read = Counter(line.split()[0] for line in instructions(usual(loop)))
        loads = {name: n for name, n in read.items() if name.startswith(("LDG", "LD."))}
        size = 16 * sum(n for name, n in loads.items() if name.endswith(".128"))
        size += 8 * sum(n for name, n in loads.items() if name.endswith(".64"))
        if size == 0:
            continue
        tokens = size / token_bytes
        slow = sum(n for name, n in read.items() if name.startswith(("MUFU", "F2I", "I2F")))
        found = len(instructions(loop)) / tokens, sum(read.values()) / tokens, slow / tokens
        if all(name.endswith(".128") for name in loads):
            adds = any(name.startswith(("ATOMS", "RED")) for name in operations)
            packed.setdefault(adds, []).append((tokens, found))
        else:
            others.append(found)
    best = {
        adds: [found for tokens, found in all_found if tokens == max(all_found)[0]]
        for adds, all_found in packed.items()
    }
    chosen = []
    for found in best.values():
        least = 0.0 if in_pairs else 0.6 * max(slow for *_, slow in found)
        chosen.append(min(figures for figures in found if figures[2] >= least))
    return chosen or others


def budget() -> Figures:
    """Figures of everything in `PASSES`."""
    found: Figures = {}
    for name, kernels in PASSES.items():
        for dtype in DTYPES:
            machines = [compiled(kernel, (dtype, dtype)) for kernel in kernels]
            token_bytes = 8 if dtype == "float32" else 4
            passes = [
                counts
                for machine in machines
                for counts in instructions_per_token(
                    disassembled(machine.code), token_bytes, in_pairs=len(kernels) == 1
                )
            ]
            found.setdefault(name, {})[dtype] = {
                "instructions_per_token": round(sum(x[0] for x in passes), 1),
                "usual_instructions_per_token": round(sum(x[1] for x in passes), 1),
                "slow_unit_per_token": round(sum(x[2] for x in passes), 1),
                "registers": max(machine.registers for machine in machines),
                "stack_bytes": max(machine.stack_bytes for machine in machines),
                "spill_bytes": max(machine.spill_bytes for machine in machines),
                "shared_bytes": max(kernel.shared_bytes for kernel in kernels),
            }
    return found


if __name__ == "__main__":
    print(json.dumps(budget(), indent=2))
