"""No two threads of a kernel touch the same memory unordered: ThreadSanitizer's word for it.

Fibers show what goes wrong in some order of whole stretches between barriers. Here every CUDA
thread is a thread of the system, and the sanitizer sees any two accesses that no barrier orders,
whatever came first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.barrier_removal import barrier_sites, cases_by_barrier
from support.host_runtime import Build, sanitizer_runtime
from support.kernel_cases import CASE_TYPES

TESTS = Path(__file__).parents[1]
CONTROLS = barrier_sites()[::6]


@pytest.fixture(scope="session")
def library(built_kernels: Build) -> Path:
    return built_kernels(2, sanitizer="thread", types=CASE_TYPES)


@pytest.fixture(scope="session")
def concerned(built_kernels: Build) -> dict[str, list[str]]:
    """Cases that come to each barrier."""
    return cases_by_barrier(built_kernels(cluster_size=2))


def run(library: Path, *site: str) -> subprocess.CompletedProcess[str]:
    """All cases, up to the first race."""
    # The sanitizer of older compilers does not cope with addresses chosen at random.
    fixed = [shutil.which("setarch"), "-R"]
    can_fix = fixed[0] and subprocess.run([*fixed, "true"], check=False).returncode == 0
    return subprocess.run(
        [*(fixed if can_fix else ()), sys.executable, "-m", "support.race_witness", library, *site],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={
            **os.environ,
            "LD_PRELOAD": sanitizer_runtime("thread"),
            "TSAN_OPTIONS": "halt_on_error=1 exitcode=66",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
        },
    )


def test_there_are_no_races(library: Path) -> None:
    done = run(library)
    assert done.stdout.strip() == "clean", done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("site", CONTROLS)
def test_a_barrier_that_is_removed_makes_one(
    library: Path, concerned: dict[str, list[str]], site: str
) -> None:
    done = run(library, site, *concerned[site])
    assert "WARNING: ThreadSanitizer: data race" in done.stderr, done.stdout + done.stderr
    assert done.returncode == 66
