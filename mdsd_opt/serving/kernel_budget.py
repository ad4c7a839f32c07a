"""What the kernels ask of a device: compiled ahead of time, and read off their machine code."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mdsd_opt.errors import InvalidInput, MissingExtra

#: A100, H100 and B200, by compute capability.
ARCHITECTURES = (80, 90, 100)

_PURPOSE = "mdsd_opt.serving.kernel_budget"


@dataclass(frozen=True, slots=True)
class KernelUse:
    """What one thread of a kernel takes.

    Attributes
    ----------
    kernel : str
    architecture : str
        Such as "sm_90".
    registers : int
    stack : int
        Bytes.
    spills : int
        Instructions that read or write what found no register.
    """

    kernel: str
    architecture: str
    registers: int
    stack: int
    spills: int


def kernel_budget(architectures: Sequence[int] = ARCHITECTURES) -> list[KernelUse]:
    """Registers, stack and spills of every kernel of the room; needs no device.

    Parameters
    ----------
    architectures : sequence of int
        CUDA compute capabilities, 90 for 9.0.

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
    for name, function, signature, constants, options in _kernels():
        if not isinstance(function, triton.JITFunction):
            raise InvalidInput("kernels are interpreted: unset TRITON_INTERPRET to compile them")
        types = {**signature, **dict.fromkeys(constants, "constexpr")}
        # As at a launch where the vocabulary is one of whole blocks of 16, so that loads are wide.
        aligned = {
            (place,): [["tt.divisibility", 16]]
            for place, (argument, kind) in enumerate(types.items())
            if kind.startswith("*") or argument == "vocab_size"
        }
        for architecture in architectures:
            source = ASTSource(function, types, constexprs=constants, attrs=aligned)
            target = GPUTarget("cuda", architecture, 32)
            cubin = triton.compile(source, target=target, options=options).asm["cubin"]
            uses.append(KernelUse(name, f"sm_{architecture}", *_usage(cubin, tools)))
    return uses


def _kernels() -> Iterator[tuple[str, Any, dict[str, str], dict[str, Any], dict[str, Any]]]:
    """Names, functions, types of arguments, constants and options, as they are launched."""
    from mdsd_opt.serving import triton_walk

    signature = {
        **dict.fromkeys(("predicts", "accept_index", "accept_token_num"), "*i32"),
        **dict.fromkeys(("candidates", "index", "first_child", "next_sibling"), "*i64"),
        **dict.fromkeys(("coins", "last_coins", "target", "drafts"), "*fp32"),
        "rows": "*i64",
        **dict.fromkeys(("threshold_single", "threshold_acc"), "fp32"),
        **dict.fromkeys(("num_nodes", "depth", "vocab_size"), "i32"),
    }
    for name, by_child in {"walk": False, "walk, shared rows": True}.items():
        constants = {"BY_CHILD": by_child, "BLOCK": triton_walk.BLOCK}
        yield name, triton_walk.walk_trees, signature, constants, triton_walk.OPTIONS


def _usage(cubin: bytes, tools: Path) -> tuple[int, int, int]:
    """Registers, bytes of stack, and instructions on local memory."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _said(tools / "cuobjdump", "-res-usage", file.name)
        code = _said(tools / "nvdisasm", "-c", file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert found, usage
    return int(found[1]), int(found[2]), len(re.findall(r"\b(?:LDL|STL)\b", code))


def _said(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
