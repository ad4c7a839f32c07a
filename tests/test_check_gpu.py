"""The one command that checks a machine with a CUDA device, where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "check-gpu"


def check(python: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, python],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def make_program(path: Path, lines: str) -> Path:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def tools(tmp_path: Path, log: Path) -> Path:
    """A folder with a compute-sanitizer that runs what it is given, and notes it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    make_program(
        folder / "compute-sanitizer",
        f'echo "$2" >> {log}; shift 4; "$@"',
    )
    return folder


def test_without_a_device_it_says_what_is_missing() -> None:
    done = check(sys.executable, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    assert "no CUDA device to check on: " in done.stderr
    assert "CuPy" in done.stderr or "CUDA_VISIBLE_DEVICES" in done.stderr
    assert done.stderr.endswith("nothing was checked\n")
    assert done.stdout == ""


def test_it_names_tools_that_are_missing(tmp_path: Path) -> None:
    python = make_program(tmp_path / "python", 'case "$2" in *pytest*) exit 1;; esac')
    basics = tmp_path / "bin"
    basics.mkdir()
    for name in ("bash", "env", "sh"):
        (basics / name).symlink_to(str(shutil.which(name)))
    done = check(python, PATH=str(basics))
    assert done.returncode == 1
    assert "no pytest or no rich" in done.stderr
    if not Path("/usr/local/cuda/bin/compute-sanitizer").exists():
        assert "compute-sanitizer is not on the PATH" in done.stderr


def test_with_one_it_tests_sanitizes_and_measures(tmp_path: Path, tools: Path, log: Path) -> None:
    python = make_program(tmp_path / "python", f'[ "$1" = -c ] || echo "$@" >> {log}')
    done = check(python, PATH=f"{tools}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    assert lines[0] == "-m pytest -m gpu tests/test_gpu_device.py"
    assert lines[1] == "memcheck"
    assert lines[3] == "racecheck"
    assert lines[2] == lines[4]
    assert lines[2].startswith("-m pytest -m gpu tests/test_gpu_device.py -k ")
    assert lines[5] == "benchmarks/gpu_rates.py --markdown docs/benchmarks/gpu-rates.md"
    assert len(lines) == 6


def test_a_failure_is_its_own(tmp_path: Path, tools: Path, log: Path) -> None:
    python = make_program(
        tmp_path / "python",
        f'[ "$1" = -c ] && exit 0; echo "$@" >> {log}; case "$*" in *-k*) exit 1;; esac',
    )
    done = check(python, PATH=f"{tools}:{os.environ['PATH']}")
    assert done.returncode == 1
    assert len(log.read_text().splitlines()) == 3  # tests, and what memcheck ran
