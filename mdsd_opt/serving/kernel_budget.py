"""Resources that the kernels need on a device, read off code that is compiled ahead of time."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mdsd_opt.base.checked import checked_integer, of_kind
from mdsd_opt.errors import InvalidInput, MissingExtra

#: Compute capabilities of A100, H100 and B200, and the architecture of MI300.
ARCHITECTURES = (80, 90, 100, "gfx942")

_PURPOSE = "mdsd_opt.serving.kernel_budget"

#: Types of the kernels' arguments, as at their launches.
_TYPES = {
    name: kind
    for kind, names in (
        ("*i32", "predicts accept_index accept_token_num"),
        ("*i64", "candidates index first_child next_sibling rows selected sums chosen"),
        ("*fp32", "coins last_coins target drafts ratios levels"),
        ("fp32", "threshold_single threshold_acc"),
        ("i32", "num_nodes depth num_drawn vocab_size"),
    )
    for name in names.split()
}


@dataclass(frozen=True, slots=True)
class KernelUse:
    """Resources that one thread of a kernel takes.

    Attributes
    ----------
    kernel : str
    architecture : str
        Such as "sm_90" or "gfx942".
    registers : int
        Registers of the vector unit, if there are others.
    stack : int
        Bytes.
    spills : int
        Instructions that read or write what found no register; on a device of AMD such registers.
    """

    kernel: str
    architecture: str
    registers: int
    stack: int
    spills: int


def kernel_budget(architectures: Sequence[int | str] = ARCHITECTURES) -> list[KernelUse]:
    """Registers, stack and spills of every kernel of the room; no device is needed.

    Parameters
    ----------
    architectures : sequence of int or str
        CUDA compute capabilities, 90 for 9.0, and names of AMD's, such as "gfx942".

    Returns
    -------
    list of KernelUse

    Raises
    ------
    MissingExtra
        No Triton, or one that comes without cuobjdump and nvdisasm.
    InvalidInput
        TRITON_INTERPRET is set: then nothing is compiled.
    """
    for one in of_kind(architectures, Iterable, "architectures", "several, as (80, 'gfx942')"):
        if not (isinstance(one, str) and one.startswith("gfx")):
            checked_integer(one, "one of architectures", 50, 200)
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError as error:
        raise MissingExtra.of("triton", "serving", _PURPOSE) from error
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    if not all((tools / name).exists() for name in ("cuobjdump", "nvdisasm")):
        raise MissingExtra.of("a triton with NVIDIA's tools", "serving", _PURPOSE)
    uses = []
    for name, function, constants, options in _kernels():
        if not isinstance(function, triton.JITFunction):
            raise InvalidInput("kernels are interpreted: unset TRITON_INTERPRET to compile them")
        types = {x: "constexpr" if x in constants else _TYPES[x] for x in function.arg_names}
        # They are aligned as for a vocabulary of whole blocks of 16, so that loads are wide.
        aligned = {
            (place,): [["tt.divisibility", 16]]
            for place, (argument, kind) in enumerate(types.items())
            if kind.startswith("*") or argument == "vocab_size"
        }
        for architecture in architectures:
            source = ASTSource(function, types, constexprs=constants, attrs=aligned)
            if isinstance(architecture, str):
                lanes = 64 if architecture.startswith("gfx9") else 32
                target = GPUTarget("hip", architecture, lanes)
                code = triton.compile(source, target=target, options=options).asm["amdgcn"]
                uses.append(KernelUse(name, architecture, *_usage_of_amd(code)))
                continue
            target = GPUTarget("cuda", architecture, 32)
            cubin = triton.compile(source, target=target, options=options).asm["cubin"]
            uses.append(KernelUse(name, f"sm_{architecture}", *_usage(cubin, tools)))
    return uses


def _kernels() -> Iterator[tuple[str, Any, dict[str, Any], dict[str, Any]]]:
    """Names, functions, constants and options, as at their launches."""
    from mdsd_opt.serving import triton_selection, triton_walk
    from mdsd_opt.serving.selection import NUM_BINS

    for name, by_child, bins in (
        ("walk", False, 0),
        ("walk, shared rows", True, 0),
        ("walk of draws", False, NUM_BINS),
        ("walk of draws, shared rows", True, NUM_BINS),
    ):
        constants = {"BY_CHILD": by_child, "NUM_BINS": bins, "BLOCK": triton_walk.BLOCK}
        yield name, triton_walk.walk_trees, constants, triton_walk.OPTIONS
    constants = {"BY_CHILD": True, "NUM_BINS": NUM_BINS}
    options = triton_selection.PLAN_OPTIONS
    yield "plan of draws", triton_selection.plan_nodes, constants, options
    constants = {**constants, "BLOCK": triton_selection.BLOCK}
    yield "sums over bins", triton_selection.sum_bins, constants, triton_selection.SUM_OPTIONS


def _usage(cubin: bytes, tools: Path) -> tuple[int, int, int]:
    """Registers, bytes of stack, and instructions on local memory."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tools / "cuobjdump"), "-res-usage", "-sass", file.name]  # it runs nvdisasm
        code = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    match = re.search(r"REG:(\d+) STACK:(\d+)", code)
    assert match, code[:500]
    return int(match[1]), int(match[2]), len(re.findall(r"\b(?:LDL|STL)\b", code))


def _usage_of_amd(code: str) -> tuple[int, int, int]:
    """Vector registers, bytes of scratch, and spilled registers, as the assembly declares them."""

    def declared(name: str) -> int:
        match = re.search(rf"\.{name}:\s+(\d+)", code)
        assert match, name
        return int(match[1])

    spills = declared("vgpr_spill_count") + declared("sgpr_spill_count")
    return declared("vgpr_count"), declared("private_segment_fixed_size"), spills
