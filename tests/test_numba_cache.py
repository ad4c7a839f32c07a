"""Compiled kernels: kept where possible, never out of date, announced."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from mdsd_opt import numba_cache
from mdsd_opt.batch import logit_kernels, with_replacement_kernels

HELPER = """
from mdsd_opt.numba_cache import kernel

CONSTANT = {constant}

@kernel
def helper(x):
    return x + {increment}
"""

CALLER = """
from mdsd_opt.extra_helper_kernels import CONSTANT, helper
from mdsd_opt.numba_cache import kernel

@kernel
def caller(x):
    return helper(x) * CONSTANT
"""

# Both files are made part of the package for the time of the test.
SCRIPT = """
import mdsd_opt
mdsd_opt.__path__.append({folder!r})
from mdsd_opt.extra_caller_kernels import caller
print(caller(1), sum(caller.stats.cache_hits.values()))
"""


def test_a_kernel_depends_on_the_files_of_its_helpers() -> None:
    sources = numba_cache._sources(with_replacement_kernels.__file__)
    names = {Path(path).name for path in sources}
    assert {"with_replacement_kernels.py", "ratio_bucket_kernels.py", "exp2_kernels.py"} <= names
    assert "race_kernels.py" not in names


def test_cached_code_is_reused_until_a_helper_changes(tmp_path: Path) -> None:
    (tmp_path / "extra_caller_kernels.py").write_text(CALLER)
    environment = {
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(Path(numba_cache.__file__).parents[1]),
    }
    command = [sys.executable, "-c", SCRIPT.format(folder=str(tmp_path))]

    def run(increment: int, constant: int = 2) -> str:
        helper = HELPER.format(increment=increment, constant=constant)
        (tmp_path / "extra_helper_kernels.py").write_text(helper)
        finished = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout.strip()

    assert run(1) == "4 0"
    assert run(1) == "4 1"
    assert run(2) == "6 0"
    assert run(2) == "6 1"
    assert run(2, constant=3) == "9 0"
    assert run(2) == "6 0"
    for index in (tmp_path / "cache").rglob("*.nbi"):  # a name in it that no longer exists
        version = pickle.dumps(numba.__version__, protocol=-1)
        index.write_bytes(version + b"cmdsd_opt.gone\nMissing\n.")
    assert run(2) == "6 0"
    assert run(2) == "6 1"
    for code in (tmp_path / "cache").rglob("*.nbc"):
        code.write_bytes(code.read_bytes()[:100])
    assert run(2) == "6 0"


def test_without_a_folder_kernels_still_compile(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    njit = numba.njit

    def no_folder(*args: Any, cache: bool = False, **options: Any) -> Any:
        def decorate(function: Any) -> Any:
            if cache:
                raise RuntimeError("cannot cache function: no locator available")
            return njit(**options)(function)

        return decorate

    monkeypatch.setattr(numba, "njit", no_folder)
    numba_cache._say_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger="mdsd_opt.numba"):

        @numba_cache.kernel
        def double(x: float) -> float:
            return 2 * x

        @numba_cache.kernel
        def triple(x: float) -> float:
            return 3 * x

    assert double(2.0) == 4.0
    assert triple(2.0) == 6.0
    assert caplog.text.count("NUMBA_CACHE_DIR") == 1


def test_a_compilation_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    def first(x: float) -> float:
        return x + 1

    def second(x: float) -> float:
        return x + 2

    def of_somebody_else(x: float) -> float:
        return x + 3

    numba_cache._say_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger="mdsd_opt.numba"):
        numba.njit(of_somebody_else)(1.0)
        assert caplog.text == ""
        for function in (first, second):
            function.__module__ = "mdsd_opt.something"
            numba.njit(function)(1.0)
    assert caplog.text.count("compiling kernels") == 1


def test_kernels_keep_to_ieee_arithmetic() -> None:
    """No fast-math: a NaN stays one, and the order of operations is that of the source."""
    assert np.isnan(logit_kernels.lane_sum(np.array([1.0, np.nan, 2.0])))
    assert logit_kernels.lane_sum(np.array([1e300, 1e300, -1e300])) == 1e300
