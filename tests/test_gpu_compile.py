"""Every kernel compiles to machine code for all architectures and types, which needs no device."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
from support.host_engine import ALL_TYPES

from mdsd_opt.gpu.sources import COMPILE_OPTIONS, KERNELS, source


@pytest.fixture(scope="module")
def nvrtc() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no driver here, as CuPy remarks
        try:
            from cupy.cuda import nvrtc
        except ImportError as error:
            pytest.skip(f"no NVRTC ({error}): make test-kernels installs it")
    return nvrtc


def compiled(nvrtc: Any, code: str, names: list[str], architecture: str) -> tuple[int, str]:
    """Size of the machine code, and what the assembler says."""
    program = nvrtc.createProgram(code, "kernels.cu", (), ())
    for name in names:
        nvrtc.addNameExpression(program, name)
    # CuPy adds -ftz=true to whatever it is given.
    options = (*COMPILE_OPTIONS, f"-arch={architecture}", "-ftz=true", "--ptxas-options=-v")
    try:
        nvrtc.compileProgram(program, options)
    except nvrtc.NVRTCError:
        raise AssertionError(nvrtc.getProgramLog(program)) from None
    lowered = [nvrtc.getLoweredName(program, name) for name in names]
    assert len(set(lowered)) == len(names)
    return len(nvrtc.getCUBIN(program)), nvrtc.getProgramLog(program)


@pytest.mark.parametrize("types", ALL_TYPES, ids="-".join)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_all_kernels(nvrtc: Any, architecture: str, types: tuple[str, str]) -> None:
    names = [kernel.expression(*types) for kernel in KERNELS]
    size, log = compiled(nvrtc, source(), names, architecture)
    assert size > 0
    registers = [int(found) for found in re.findall(r"Used (\d+) registers", log)]
    assert len(registers) == len(names)
    assert max(registers) <= 64  # so that two blocks of 512 threads fit
    assert "warning" not in log


def test_an_error_is_seen(nvrtc: Any) -> None:
    broken = re.sub(r"<= \d+, ", "<= 8, ", source())
    name = KERNELS[0].expression("float32", "float32")
    with pytest.raises(AssertionError, match="outgrown"):
        compiled(nvrtc, broken, [name], "sm_90")
