"""Broken files, odd arguments, many threads, poor terminals: an answer or one clear error."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mdsd_opt as mo
from mdsd_opt.base.files.logits import load_logits
from mdsd_opt.bench import load_report
from mdsd_opt.errors import MdsdError, SolverError, UnreadableFile

FUZZ = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def logits_npz():
    file = io.BytesIO()
    np.savez(file, target=np.zeros((2, 5), np.float32), draft=np.ones((2, 5), np.float16))
    return file.getvalue()


def trace_npz():
    file = io.BytesIO()
    law = np.full((3, 4), 0.25)
    np.savez(file, target=law, draft=law, drafts=np.zeros((3, 2), int), tokens=np.zeros(3, int))
    return file.getvalue()


PROBLEM = json.dumps(
    {
        "target": ["1/2", "1/4", 0.25],
        "drafts": {"scheme": "with_replacement", "q": [0.2, 0.3, 0.5], "num_drafts": 2},
    }
).encode()

FILES = {
    "trace.npz": (trace_npz(), mo.load_trace),
    "problem.json": (PROBLEM, mo.load_problem),
    "report.json": (b'{"circumstances": {}, "records": []}', load_report),
}


@st.composite
def damaged(draw, content):
    """Cut short, bits flipped, bytes put in, or a stretch repeated."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["cut", "flip", "insert", "repeat", "header"]))
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        if kind == "cut":
            del data[at:]
        elif kind == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "insert":
            data[at:at] = draw(st.binary(max_size=8))
        elif kind == "repeat":
            data[at:at] = data[at : at + 20]
        else:
            data[:8] = struct.pack("<Q", draw(st.integers(0, 2**64 - 1)))
    return bytes(data)


@pytest.mark.parametrize("name", FILES)
@FUZZ
@given(data=st.data())
def test_damaged_files_load_or_are_refused(name, data, tmp_path):
    content, load = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    load(path)
    path.write_bytes(data.draw(damaged(content)))
    with suppress(MdsdError):  # any other error is a failure
        load(path)


def test_arrays_of_objects_are_never_unpickled(tmp_path):
    path = tmp_path / "trace.npz"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    objects = np.array([[Evil()]], dtype=object)
    np.savez(path, target=objects, draft=objects, drafts=objects, tokens=objects)
    with pytest.raises(MdsdError):
        mo.load_trace(path)
    assert not (tmp_path / "owned").exists()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    """Some kilobytes that claim to hold 4 TiB."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (1_000_000, 1_000_000)}
    )
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("target.npy", "draft.npy"):
            with archive.open(name, "w") as file:
                file.write(header.getvalue())
                for _ in range(64):
                    file.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableFile):
            load_logits(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 27
    finally:
        tracemalloc.stop()


WORDS = st.sampled_from(
    [
        "rates", "solve", "audit", "check", "bench", "capture", "--json", "--csv", "-k", "0", "1-3",
        "-1", "1e9", "nan", "--temperature", "--schemes", "all", "greedy", "--verifiers", "optimal",
        "--plot", "missing/x.png", "--seed", "--top-k", "--top-p", "--confidence", "2", "", "--",
        "missing.npz", ".", "--verifier", "rrs", "--trace", "--scheme", "--timeout", "x", "--help",
        "acceptance_one", "--vocab-size", "--engine", "dask", "--quick", "--compare", "--force",
    ]
)  # fmt: skip


@settings(
    max_examples=120,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(arguments=st.lists(WORDS, min_size=1, max_size=6))
def test_no_arguments_end_in_a_traceback(arguments, run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if arguments[:1] in (["bench"], ["check"], ["audit"]) and "--help" not in arguments:
        arguments = [*arguments, "--no-such-option"]  # these would measure for minutes
    done = run_cli(*arguments)
    assert done.returncode in (0, 1, 2, 3)
    assert "Traceback" not in done.stderr + done.stdout
    if done.returncode == 2:
        assert done.stderr.strip()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("line", ["solve problem.json", "solve problem.json --json", "check"])
def test_a_full_device_is_one_line(line, tmp_path):
    (tmp_path / "problem.json").write_bytes(PROBLEM)
    done = shell(tmp_path, f"mdsd-opt {line} > /dev/full")
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip().endswith("No space left on device")
    assert "Traceback" not in done.stderr


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    command = f"'{sys.executable}' -c 'from mdsd_opt.cli import main; main()'"
    return subprocess.run(
        line.replace("mdsd-opt", command), cwd=folder, shell=True, capture_output=True, text=True,
        timeout=300, executable="/bin/bash",
    )  # fmt: skip


#: A line for each verb that needs no model, and its exit code.
LINES = {
    "mdsd-opt solve problem.json": 0,
    "mdsd-opt solve missing.json": 2,
    "mdsd-opt rates logits.npz -k 2": 0,
    "mdsd-opt relax logits.npz -k 2": 0,
    "mdsd-opt check acceptance_one --vocab-size 3 -k 2": 0,
    "mdsd-opt audit --verifier rrs --trials 2000 --detect 1": 0,
    "mdsd-opt plan logits.npz --nodes 3": 0,
    "mdsd-opt reproduce spechub logits.npz": 0,
    "mdsd-opt decode": 2,
    "mdsd-opt capture": 2,
}


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="no shell to close streams")
@pytest.mark.parametrize("line", LINES)
def test_streams_that_are_closed_lead_nowhere(line, tmp_path):
    rng = np.random.default_rng(0)
    logits = {name: rng.normal(size=(6, 20)) for name in ("target", "draft")}
    np.savez(tmp_path / "logits.npz", **logits)
    (tmp_path / "problem.json").write_bytes(PROBLEM)
    told = shell(tmp_path, f"{line} 2>&-")
    assert (told.returncode, told.stderr) == (LINES[line], "")
    assert bool(told.stdout) == (LINES[line] == 0)  # results alone: errors are not among them
    silent = shell(tmp_path, f"{line} <&- >&-")
    assert silent.returncode == LINES[line]
    assert silent.stdout == ""
    assert "Traceback" not in silent.stderr


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(5, "Input/output error", "x"), "x: Input/output error"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (OverflowError("int too large to convert to float"), "int too large"),
        (ZeroDivisionError("division by zero"), "division by zero"),
        (FloatingPointError("underflow"), "underflow"),
        (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
        (MemoryError(), "out of memory"),
    ],
)
def test_errors_of_system_and_arithmetic_are_one_line(error, words, run_cli, monkeypatch):
    def fail(**_):
        raise error

    monkeypatch.setattr("mdsd_opt.cli.verbs.app", fail)
    assert words in run_cli.refusal("rates")


def test_a_bug_is_still_shown(run_cli, monkeypatch):
    def fail(**_):
        raise KeyError("a bug")

    monkeypatch.setattr("mdsd_opt.cli.verbs.app", fail)
    with pytest.raises(KeyError):
        run_cli("rates")


def test_a_clash_of_two_highs_says_what_to_do(monkeypatch):
    """As where OR-tools, which has a HiGHS of its own, was imported before."""

    class Clash:
        def find_spec(self, name, path=None, target=None):
            if name == "highspy":
                raise ImportError("_core.so: undefined symbol: _ZN5Highs13releaseMemoryEv")

    for name in [name for name in sys.modules if name.partition(".")[0] == "highspy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Clash(), *sys.meta_path])
    problem = mo.TransportProblem([0.5, 0.5], mo.WithReplacement([0.2, 0.8], 2))
    for method in ("full_lp", "dual_lp"):
        with pytest.raises(SolverError, match=r"undefined symbol.*OR-tools.*method='max_flow'"):
            mo.solve(problem, method)
    assert mo.solve(problem, "max_flow").status is mo.Status.OPTIMAL


def test_many_threads_get_the_same_rates():
    rng = np.random.default_rng(0)
    target = rng.standard_normal((24, 300))
    draft = target + rng.standard_normal(target.shape)
    jobs = [
        (scheme, k, threads)
        for scheme in ("with_replacement", "without_replacement", "greedy", "top_k")
        for k in (1, 3)
        for threads in (1, 2, 3)
    ]

    def rates(job):
        scheme, k, threads = job
        return mo.acceptance_rates(target, draft, k, scheme, num_threads=threads)

    alone = [rates((scheme, k, 1)) for scheme, k, _ in jobs]
    with ThreadPoolExecutor(8) as pool:
        for one, other in zip(alone, pool.map(rates, jobs), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "environment",
    [
        {"COLUMNS": "20"},
        {"LC_ALL": "C", "LANG": "C"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "cp1252"},
        {"TERM": "dumb", "NO_COLOR": "1"},
        {"LC_ALL": "de_DE.UTF-8"},
    ],
    ids=lambda e: ",".join(f"{k}={v}" for k, v in e.items()),
)
def test_poor_terminals_get_a_table(environment, tmp_path):
    if environment.get("LC_ALL") == "C" and not str(Path(mo.__file__)).isascii():
        pytest.skip("Python itself does not start there")
    rng = np.random.default_rng(3)
    np.savez(tmp_path / "own.npz", target=rng.random((3, 9)), draft=rng.random((3, 9)))
    command = "from mdsd_opt.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "rates", "own.npz", "-k", "2"],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert b"replacement" in done.stdout
    assert b"Traceback" not in done.stderr


def test_without_docstrings_there_are_tables_and_help(tmp_path):
    (tmp_path / "problem.json").write_bytes(PROBLEM)
    for line in ("mdsd-opt solve problem.json --json", "mdsd-opt audit --help"):
        done = shell(tmp_path, f"PYTHONOPTIMIZE=2 {line}")
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert "subset_selection" in done.stdout or "verifier" in done.stdout


def test_kernels_that_may_not_be_compiled_are_one_line(tmp_path):
    (tmp_path / "own.npz").write_bytes(logits_npz())
    done = shell(tmp_path, "NUMBA_DISABLE_JIT=1 mdsd-opt rates own.npz")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "mdsd-opt: error: NUMBA_DISABLE_JIT is set, and kernels run only compiled: unset it"
    ]
