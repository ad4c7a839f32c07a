"""The tests themselves: none has a bound on the clock of the wall, each runs somewhere."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from pathlib import Path

import conftest
import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
FILES = sorted(TESTS.rglob("*.py"))

#: What `make test` installs beside the package itself.
INSTALLED = {"cdd", "dask", "httpx", "matplotlib", "ml_dtypes", "pty"}


def bounds_on_the_wall(text: str) -> list[int]:
    """Lines that assert that less than a number of seconds has passed, by the clock of the wall."""
    lines = []
    for statement in ast.walk(ast.parse(text)):
        if not isinstance(statement, ast.Assert):
            continue
        for node in ast.walk(statement.test):
            if not isinstance(node, ast.Compare):
                continue
            sides = [node.left, *node.comparators]
            told = ast.unparse(node)
            clock = re.search(r"\b(perf_counter|monotonic|time\.time)(_ns)?\(|\.seconds\b", told)
            less = any(isinstance(sign, (ast.Lt, ast.LtE)) for sign in node.ops)
            if clock and less and isinstance(sides[-1], ast.Constant):
                lines.append(node.lineno)
    return lines


def test_no_bound_on_the_clock_of_the_wall() -> None:
    """A busy machine breaks them: `time.process_time`, a count of calls or a clock of one's own."""
    lines = {path: bounds_on_the_wall(path.read_text(encoding="utf-8")) for path in FILES}
    assert len(lines) > 100
    assert not {str(path): numbers for path, numbers in lines.items() if numbers}


def test_bounds_are_seen() -> None:
    for wrong in (
        "assert time.perf_counter() - start < 10.0",
        "assert a and time.monotonic() - start <= 5",
        "def f():\n    assert 0 < time.time_ns() - start < 3",
        "assert report.seconds < 30",
    ):
        assert bounds_on_the_wall(wrong) == [1 + wrong.count("\n")]
    for right in (
        "assert time.process_time() - start < 10.0",
        "assert 0 < spent <= time.perf_counter() - start",
        "while time.monotonic() < deadline: pass",
        "assert report.seconds > 0",
    ):
        assert bounds_on_the_wall(right) == []


def test_what_is_skipped_without_a_module_runs_in_make_test_or_beside() -> None:
    needed = {}
    for path in FILES:
        room = path.relative_to(TESTS).parts[0]
        if room not in conftest.BESIDE and path.name != "test_gpu_device.py":
            for name in re.findall(r'importorskip\("(\w+)', path.read_text(encoding="utf-8")):
                needed.setdefault(name, path)
    assert "matplotlib" in needed
    assert not {name: str(path) for name, path in needed.items() if name not in INSTALLED}


def test_all_that_asks_for_a_compiler_of_kernels_is_run_with_one() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    words = " ".join(re.findall(r"tests/gpu/test_gpu_%\.py,([\w ]+)\)", makefile)).split()
    asking = {
        path.stem.removeprefix("test_gpu_")
        for path in (TESTS / "gpu").glob("test_*.py")
        if re.search(r"kernel_device|kernel_budget\.nvrtc", path.read_text(encoding="utf-8"))
    }
    assert asking <= {*words}


def test_each_folder_beside_has_a_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for folder in conftest.BESIDE:
        assert re.search(rf"\btests/{folder}\b", makefile), folder


def run_of_ci(folder: Path, fails: str = "nothing") -> tuple[int, list[str], str]:
    """Exit code, calls of `make` and output of `.ci/run` where make does nothing but write down."""
    (folder / "bin").mkdir()
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    made = (
        '#!/bin/sh\necho "$*" >> calls\ncase "$*" in *{}*) exit 2;; esac\necho "== 3 passed =="\n'
    )
    for name, text in (("make", made.format(fails)), ("g++", "#!/bin/sh\n")):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        [folder / ".ci" / "run"], env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    return done.returncode, (folder / "calls").read_text().splitlines(), done.stdout


def test_ci_begins_with_the_commands_of_the_readme_in_an_environment_of_their_own(
    tmp_path: Path,
) -> None:
    code, calls, output = run_of_ci(tmp_path)
    assert code == 0
    assert output.splitlines()[-1] == "== 3 passed =="
    of_readme = [call for call in calls if call.startswith("VENV=.venv-readme ")]
    assert calls[0] == of_readme[0] == "VENV=.venv-readme demo"
    assert [call.split()[1] for call in of_readme] == ["demo", "test"]
    others = [call for call in calls if call not in of_readme]
    assert all(call.startswith("VENV=.venv-more ") for call in others)
    for target in ("lint", "docs", "test-kernels", "test-stress", "test-slow", "test-torch"):
        assert re.search(rf" {target}\b", " ".join(others))


@pytest.mark.parametrize("fails", ["readme demo", "readme test", "install", "lint", "test-torch"])
def test_ci_fails_where_any_part_does_and_goes_on(tmp_path: Path, fails: str) -> None:
    code, calls, output = run_of_ci(tmp_path, f'"{fails}"')
    assert code != 0
    assert "test-torch" in calls[-1]
    assert len(calls) == 8
    if fails != "test-torch":
        assert "failed: " in output
