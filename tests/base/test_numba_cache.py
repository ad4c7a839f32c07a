"""Compiled kernels: kept where possible, never out of date, announced."""

from __future__ import annotations

import ast
import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numba
import numpy as np
import pytest
from support.faces import face_of
from support.fake_terminal import Terminal

from mdsd_opt.base import long_runs, numba_cache
from mdsd_opt.prefix_search import sum_kernels

ROOT = Path(__file__).parents[2]

HELPER = """
from mdsd_opt.base.numba_cache import kernel

@kernel
def helper(x):
    return x + {increment}
"""

CALLER = """
from mdsd_opt.extra_helper_kernels import helper
from mdsd_opt.base.numba_cache import kernel

@kernel
def caller(x):
    return helper(x) * 2
"""

SCRIPT = """
import sys
from mdsd_opt.extra_caller_kernels import caller
print(caller(1), sum(caller.stats.cache_hits.values()))
if "more" in sys.argv:
    print(caller(1.5))
"""

PACKAGE = Path(numba_cache.__file__).parents[1]


class Environment:
    """A copy of the package with two more kernels, as an environment of its own would hold it."""

    def __init__(self, folder: Path, cache: Path, **variables: str) -> None:
        self.package = folder / "mdsd_opt"
        shutil.copytree(PACKAGE, self.package, ignore=shutil.ignore_patterns("__pycache__"))
        (self.package / "extra_caller_kernels.py").write_text(CALLER)
        self.variables = {
            "NUMBA_CACHE_DIR": str(cache),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(folder),
            **variables,
        }

    def start(self, increment: int, *arguments: str) -> subprocess.Popen[str]:
        path, helper = self.package / "extra_helper_kernels.py", HELPER.format(increment=increment)
        if not path.exists() or path.read_text() != helper:  # others may be reading it
            path.write_text(helper)
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *arguments],
            cwd=self.package.parent,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, increment: int) -> str:
        process = self.start(increment)
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        return output.strip()


def test_kernels_import_nothing_that_the_name_of_the_folder_does_not_cover() -> None:
    """What comes from any other file could change, and compiled code would not."""
    faces = {
        f"mdsd_opt.{stub.parent.name}": face_of(stub.parent)
        for stub in PACKAGE.glob("*/__init__.pyi")
    }
    covered = {"mdsd_opt.base.numba_cache"}
    for name in numba_cache.OTHER_SOURCES:
        covered.add(f"mdsd_opt.{name.removesuffix('.py').replace('/', '.')}")
    for path in PACKAGE.rglob("*_kernels.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("mdsd_opt"):
                module = str(node.module)
                known = faces.get(module, {})
                names = [alias.name for alias in node.names]
                homes = [f"{module}.{known.get(name, name)}" for name in names]
                for home in [module] if module in covered else homes:
                    assert module in covered or home in covered or "_kernels" in home, (
                        f"{path.name} imports {home}"
                    )


def test_compiled_code_is_reused_until_a_kernel_changes(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "a", tmp_path / "cache")
    assert environment.run(1) == "4 0"
    assert environment.run(1) == "4 1"
    assert environment.run(2) == "6 0"
    assert environment.run(2) == "6 1"
    assert environment.run(1) == "4 1"
    for code in (tmp_path / "cache").rglob("*.code"):  # cut short
        code.write_bytes(code.read_bytes()[:100])
    assert environment.run(1) == "4 0"
    assert environment.run(1) == "4 1"
    for code in (tmp_path / "cache").rglob("*.code"):  # a name in it that does not exist
        code.write_bytes(b"cmdsd_opt.gone\nMissing\n.")
    assert environment.run(1) == "4 0"


def test_another_environment_with_the_same_kernels_compiles_nothing(tmp_path: Path) -> None:
    assert Environment(tmp_path / "a", tmp_path / "cache").run(1) == "4 0"
    assert Environment(tmp_path / "b", tmp_path / "cache").run(1) == "4 1"


def test_processes_that_compile_at_once_do_no_harm(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "a", tmp_path / "cache")
    processes = [environment.start(1, *more) for more in ([], ["more"], ["more"], [])]
    said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, said
    outputs = [output.split() for output, _ in said]
    assert [output[0] for output in outputs] == ["4"] * 4
    assert [output[2:] for output in outputs] == [[], ["5.0"], ["5.0"], []]
    assert environment.run(1) == "4 1"
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert kept
    assert all(path.suffix == ".code" for path in kept)


def test_folders_of_versions_used_long_ago_are_dropped(tmp_path: Path) -> None:
    for age in range(12):
        folder = tmp_path / "cache" / f"mdsd-opt-{age}"
        folder.mkdir(parents=True)
        os.utime(folder, (1e9 - age, 1e9 - age))
    Environment(tmp_path / "a", tmp_path / "cache").run(1)
    left = {path.name for path in (tmp_path / "cache").iterdir()}
    assert {f"mdsd-opt-{age}" for age in range(7)} < left
    assert len(left) == 8


@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
@pytest.mark.skipif(sys.platform != "linux", reason="folders as on Linux")
def test_without_a_folder_kernels_still_compile(tmp_path: Path, variable: str) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    variables = {"NUMBA_CACHE_DIR": "", variable: str(in_the_way / "folder")}
    environment = Environment(tmp_path / "a", tmp_path, **variables)
    process = environment.start(1)
    output, errors = process.communicate()
    assert output.split() == ["4", "0"]
    assert errors.count("set NUMBA_CACHE_DIR") == 1


def test_a_compilation_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    def first(x: float) -> float:
        return x + 1

    def second(x: float) -> float:
        return x + 2

    def of_somebody_else(x: float) -> float:
        return x + 3

    numba_cache.say_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger="mdsd_opt.numba"):
        numba.njit(of_somebody_else)(1.0)
        assert caplog.text == ""
        for function in (first, second):
            function.__module__ = "mdsd_opt.something"
            numba.njit(function)(1.0)
    assert caplog.text.count("compiling kernels") == 1


def test_on_a_terminal_kernels_are_counted_among_those_that_are_expected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    folder = numba_cache.cache_folder()
    folder.mkdir(parents=True)
    (folder / "some_kernels.third-0123.code").write_bytes(b"")
    names = ("some_kernels.first", "some_kernels.second", "some_kernels.third")
    monkeypatch.setattr(long_runs, "expected_kernels", names)
    said: list[str] = []

    @contextlib.contextmanager
    def noted(doing: str) -> Iterator[None]:
        said.append(doing)
        yield

    monkeypatch.setattr(numba_cache, "working", noted)
    monkeypatch.setattr(sys, "stderr", Terminal())
    compilations = numba_cache._Compilations()
    for name in ("first", "second", "unexpected"):
        function = types.FunctionType((lambda: None).__code__, {}, name)
        function.__module__ = "mdsd_opt.prefix_search.some_kernels"
        dispatcher = types.SimpleNamespace(py_func=function)
        compilations.on_start(types.SimpleNamespace(data={"dispatcher": dispatcher}))
        compilations.on_end(None)
    assert said == [
        "compiling, once: some (1 of at most 2)",
        "compiling, once: some (2 of at most 2)",
        "compiling, once: some",
    ]


def test_the_seconds_of_a_compilation_are_counted_once_and_not_of_the_functions_within(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def inner(x: float) -> float:
        return x + 4

    compiled_inner = numba.njit(inner)

    def outer(x: float) -> float:
        return compiled_inner(x)

    looks = count()
    monkeypatch.setattr(numba_cache, "time", types.SimpleNamespace(perf_counter=looks.__next__))
    before = numba_cache.seconds_compiled()
    numba.njit(outer)(1.0)
    assert numba_cache.seconds_compiled() - before == 1  # from one look to the next
    assert next(looks) == 2


def test_kernels_keep_to_ieee_arithmetic() -> None:
    """No fast-math: a NaN stays one, and the order of operations is that of the source."""
    values = np.array([1.0, np.nan, 2.0]), np.array([1e300, 1e300, -1e300])
    assert np.isnan(sum_kernels.suffix_sums(values[0], 0.0)[0])
    assert sum_kernels.suffix_sums(values[1][::-1].copy(), 0.0)[0] == 1e300


def test_the_newest_numba_that_is_allowed_is_the_one_tested() -> None:
    """How numba keys its cache is no promise of its authors: each version is tried first."""
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (bound,) = (re.search(r"<0\.(\d+)", need) for need in needs if need.startswith("numba"))
    pinned = re.search(r"^numba==0\.(\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert bound is not None
    assert pinned is not None
    assert int(bound[1]) == int(pinned[1]) + 1


@pytest.mark.skipif(sys.platform == "win32", reason="no passwd")
def test_a_user_without_a_home_compiles_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import pwd

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    numba_cache.say_once.cache_clear()

    @numba_cache.kernel
    def one_more(x: float) -> float:
        return x + 1.0

    assert one_more(1.0) == 2.0
    assert "found no folder to keep compiled kernels in" in caplog.text
