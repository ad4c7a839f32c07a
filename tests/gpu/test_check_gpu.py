"""The one command that checks a machine with a CUDA device, where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "check-gpu"


TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck"]
STAGES = ["smoke", "tests", "benchmark", "table", "calls", *TOOLS]


def check(python: str | Path, out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, python, out],
        cwd=ROOT,
        env={**os.environ, **environment},
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
def tools(tmp_path: Path) -> str:
    """A PATH with a compute-sanitizer that runs what it is given, after naming its tool."""
    folder = tmp_path / "bin"
    folder.mkdir()
    make_program(folder / "compute-sanitizer", 'echo "$2"; shift 4; "$@"')
    return f"{folder}:{os.environ['PATH']}"


def outcomes(out: Path) -> dict[str, str]:
    """What the summary says of every stage, up to the time it took."""
    lines = (out / "summary.txt").read_text().splitlines()
    pairs = [line.partition(": ")[::2] for line in lines if ": " in line]
    return {name: said.partition(" in ")[0] for name, said in pairs if name in STAGES}


def test_without_a_device_it_says_what_is_missing(tmp_path: Path) -> None:
    done = check(sys.executable, tmp_path / "out", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    assert "no CUDA device to check on: " in done.stderr
    assert "CuPy" in done.stderr or "CUDA_VISIBLE_DEVICES" in done.stderr
    assert done.stderr.endswith("nothing was checked\n")
    assert done.stdout == ""
    assert not (tmp_path / "out").exists()


def test_every_stage_has_its_log_the_most_telling_first(tmp_path: Path, tools: str) -> None:
    cases = 'case "$*" in *--list) echo rrs kseq; exit;; esac'
    python = make_program(tmp_path / "python", f'{cases}; [ "$1" = -c ] || echo "ran $@"')
    out = tmp_path / "out"
    done = check(python, out, PATH=tools)
    assert done.returncode == 0, done.stdout + done.stderr
    assert outcomes(out) == dict.fromkeys(STAGES, "passed")
    assert list(outcomes(out)) == STAGES
    logs = {name: (out / f"{name}.log").read_text() for name in STAGES}
    assert logs["smoke"] == "ran benchmarks/gpu_smoke.py\n"
    assert "-m pytest" in logs["tests"]
    assert "-m gpu tests/gpu/test_gpu_device.py" in logs["tests"]
    assert f"--json {out}/benchmark.json" in logs["benchmark"]
    assert f"--markdown {out}/table.md" in logs["table"]
    with tarfile.open(f"{out}.tar.gz") as packed:
        assert {"out/summary.txt", "out/smoke.log"} <= set(packed.getnames())
    for tool in TOOLS:
        for case in ("rrs", "kseq"):
            log = (out / f"{tool}-{case}.log").read_text()
            assert log == f"{tool}\nran benchmarks/gpu_smoke.py --small --only {case}\n"


def test_a_tool_fails_if_one_of_its_cases_does(tmp_path: Path, tools: str) -> None:
    python = make_program(
        tmp_path / "python",
        'case "$*" in *--list) echo rrs kseq;; *only?rrs*) echo ERROR SUMMARY: 1; exit 1;; esac',
    )
    done = check(python, tmp_path / "out", PATH=tools)
    assert done.returncode == 1
    assert outcomes(tmp_path / "out")["racecheck"].startswith("FAILED (exit status 1)")
    assert "memcheck-rrs.log:ERROR SUMMARY: 1" in (tmp_path / "out" / "memcheck.log").read_text()


def test_a_failure_or_a_missing_tool_does_not_keep_the_next_stage_from_running(
    tmp_path: Path,
) -> None:
    python = make_program(
        tmp_path / "python",
        'case "$*" in *"import pytest"*) exit 1;; *smoke*) exit 3;; esac',
    )
    basics = tmp_path / "basics"
    basics.mkdir()
    for name in ("bash", "sh", "env", "cat", "grep", "mkdir", "tail", "tee", "timeout", "uname"):
        (basics / name).symlink_to(str(shutil.which(name)))
    out = tmp_path / "out"
    done = check(python, out, PATH=str(basics))
    assert done.returncode == 1
    found = outcomes(out)
    assert found["smoke"].startswith("FAILED (exit status 3)")
    assert found["tests"].startswith("skipped")
    assert "no pytest" in found["tests"]
    assert found["benchmark"] == "passed"
    if not Path("/usr/local/cuda/bin/compute-sanitizer").exists():
        assert found["memcheck"].startswith("skipped: compute-sanitizer is not on the PATH")
    assert "something failed" in done.stdout


def test_a_stage_that_hangs_is_stopped(tmp_path: Path, tools: str) -> None:
    """`timeout` is replaced by one that waits no longer than a moment."""
    make_program(
        Path(tools.partition(":")[0]) / "timeout",
        f'shift 2; exec {shutil.which("timeout")} --kill-after=1 .3 "$@"',
    )
    python = make_program(
        tmp_path / "python",
        f'case "$*" in *rates.py*) exec {shutil.which("sleep")} 60;; esac',
    )
    done = check(python, tmp_path / "out", PATH=tools)
    assert done.returncode == 1
    found = outcomes(tmp_path / "out")
    assert found["benchmark"].startswith("stopped after its limit")
    assert found["synccheck"] == "passed"
