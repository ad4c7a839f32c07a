"""The device path needs NumPy and CuPy alone: images with CUDA often have no numba or solver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.ptx.runtime import Device

TESTS = Path(__file__).parents[1]
BLOCKED = ("numba", "highspy", "cvxpy", "typer")

#: What `acceptance_rates` and `verify_batch` do for arrays on the host, on another runtime.
DOORS = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None

from pathlib import Path
import numpy as np
import mdsd_opt.gpu
from mdsd_opt.batch.device import rates_in_chunks
from mdsd_opt.batch.device import VerificationRequest, verify_in_chunks
from mdsd_opt.gpu.philox import Randomness
from support.ptx.runtime import Device, PtxRuntime
from support.kernel_cases import near_rows, request_of

runtime = PtxRuntime(Device(Path({folder!r})))
target, draft = near_rows(2, 300)
drafts = np.argsort(-draft, axis=1)[:, :2]
for request in (
    request_of(num_drafts=(2,)),
    request_of("without_replacement", num_drafts=(2,)),
    request_of(num_drafts=(2,), top_k=50, top_p=0.9),
    request_of("greedy", "greedy", (2,)),
    request_of(verifier="rrs", num_drafts=(2,)),
    request_of(verifier="kseq", num_drafts=(2,)),
):
    rates = rates_in_chunks(runtime, target, draft, request)
    assert not isinstance(rates, str), rates
    assert ((rates > 0) & (rates <= 1)).all()
    if request.declared.decides_on_device:
        decide = VerificationRequest(request, Randomness(0), True)
        found = verify_in_chunks(runtime, target, draft, drafts, None, decide)
        assert (found.acceptance_rate <= rates[:, 0] + 1e-6).all()
print("done")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )


def test_all_doors_open_without_compilers_and_solvers(kernel_device: Device) -> None:
    done = run(DOORS.format(blocked=BLOCKED, folder=str(kernel_device.folder)))
    assert done.stdout.strip() == "done", done.stderr


@pytest.mark.parametrize("name", BLOCKED)
def test_what_is_blocked_cannot_be_imported(name: str) -> None:
    done = run(f"import sys; sys.modules[{name!r}] = None; import {name}")
    assert "ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize("program", ["gpu_smoke.py", "gpu_rates.py"])
def test_the_programs_of_a_first_contact_start_without_them(program: str) -> None:
    path = TESTS.parent / "benchmarks" / program
    done = run(
        f"import runpy, sys; sys.path.insert(0, {str(path.parent)!r})\n"
        f"for name in {BLOCKED!r}: sys.modules[name] = None\n"
        f"sys.argv = [{program!r}, '--help']; runpy.run_path({str(path)!r}, run_name='__main__')"
    )
    assert done.stdout.startswith("usage"), done.stderr
