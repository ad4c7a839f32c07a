"""The tests themselves: none asks how long something took, each runs somewhere."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import conftest
import pytest
from support.few_lines import few_lines

from mdsd_opt.base.long_runs import threaded
from mdsd_opt.drafts import support_law as counting

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
FILES = sorted(TESTS.rglob("*.py"))

#: What `make test` installs beside the package itself.
INSTALLED = {"cdd", "cvxpy", "dask", "httpx", "matplotlib", "ml_dtypes", "pty", "scs"}


#: How a text tells that a number is one of a clock.
ASKED = re.compile(r"\b(perf_counter|monotonic|process_time|thread_time|time\.time)(_ns)?\(")
CLOCK = re.compile(
    rf"{ASKED.pattern}|_seconds\b"
    r"|\b(seconds|spent|took|elapsed|\w*_ms|ms)\b(?! =)"
)


def bounds_on_clocks(text: str) -> list[int]:
    """Lines that assert that a time is less than, or about, what no clock was asked for.

    A time is what a clock is called for, what is named like one, and every name that one of these
    is given to. A program that a test holds as a text may ask no clock of the processor.
    """
    tree, names, asks = ast.parse(text), set[str](), ASKED.search(text)

    def is_time(node: ast.expr) -> bool:
        inside = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
        return bool(CLOCK.search(ast.unparse(node)) or inside & names)

    def is_about(node: ast.expr) -> bool:
        return any(
            isinstance(x, ast.Call)
            and ast.unparse(x.func).endswith("approx")
            and isinstance(x.args[0], ast.Constant)
            and {"rel", "abs"} & {keyword.arg for keyword in x.keywords}
            for x in ast.walk(node)
        )

    lines = []
    for node in ast.walk(tree):
        if asks and isinstance(node, ast.Assign) and ASKED.search(ast.unparse(node.value)):
            targets = (x for target in node.targets for x in ast.walk(target))
            names |= {x.id for x in targets if isinstance(x, ast.Name)}
        if isinstance(node, ast.Constant) and "process_time(" in str(node.value):
            lines.append(node.lineno)
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.Assert):
            continue
        for node in ast.walk(statement.test):
            if not isinstance(node, ast.Compare):
                continue
            sides = [node.left, *node.comparators]
            for sign, one, other in zip(node.ops, sides, sides[1:], strict=False):
                low, high = (other, one) if isinstance(sign, ast.Gt | ast.GtE) else (one, other)
                is_less = isinstance(sign, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
                equal = isinstance(sign, ast.Eq) and (is_about(low) or is_about(high))
                if (is_less and is_time(low) and not is_time(high)) or (
                    equal and is_time(low) != is_time(high)
                ):
                    lines.append(node.lineno)
    return lines


def test_no_bound_on_a_clock() -> None:
    """A slow machine breaks them: `few_lines`, a count of calls or a clock of one's own."""
    lines = {path: bounds_on_clocks(path.read_text(encoding="utf-8")) for path in FILES}
    assert len(lines) > 100
    found = {str(x): numbers for x, numbers in lines.items() if numbers}
    assert {*found} == {__file__}  # the examples below


def test_bounds_are_seen() -> None:
    for wrong in (
        "assert time.perf_counter() - start < 10.0",
        "assert time.process_time() - start < PATIENCE",
        "assert a and time.monotonic() - start <= 5",
        "def f():\n    assert 0 < time.time_ns() - start < 3",
        "assert report.seconds < 30",
        "assert 2 * PATIENCE > spent",
        "t = time.process_time() - start\nassert t / 9 < 1",
        'assert metrics["verify_seconds"] < 0.3',
        "assert one.ms == pytest.approx(6.0, rel=0.25)",
    ):
        assert bounds_on_clocks(wrong) == [1 + wrong.count("\n")], wrong
    assert bounds_on_clocks("run('print(time.process_time())')") == [1]
    for right in (
        "assert 0 < spent <= time.perf_counter() - start",
        "while time.monotonic() < deadline: pass",
        "assert report.seconds > 0",
        "assert one.ms == pytest.approx(6.0)",
        'assert metrics["verify_seconds"] == 0.4',
        "with few_lines(100) as counted: pass\nassert counted.lines < 20",
    ):
        assert bounds_on_clocks(right) == [], right


def test_few_lines_ends_what_goes_on() -> None:
    """A loop of the package, here and in a thread of another's; none of what stands outside it."""
    with (
        few_lines(10),
        pytest.raises(AssertionError, match="10 lines: count_arr"),
    ):
        counting.count_arrangements(100, 50)
    with few_lines(10), pytest.raises(AssertionError, match="more than 10 lines"):
        list(threaded(lambda n: counting.count_arrangements(100, n), [50, 51], 2, "x"))
    with few_lines(10) as counted:
        assert sum(n for n in range(1000)) == 499_500
        assert counting.count_arrangements(3, 2) == 6
    assert 5 <= counted.lines <= 10
    assert counting.count_arrangements(100, 20) > 0


def run_of_tests(folder: Path, *options: str) -> list[str]:
    """What a run of this folder prints, by the settings of the tests."""
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", folder]
    chosen = ["-p", "no:cacheprovider", "--confcutdir", folder, "-p", "conftest", "-v"]
    done = subprocess.run(
        [*command, *chosen, *options, folder],
        capture_output=True, text=True, cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{ROOT}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


CLOCKED = """
import os, subprocess, sys, time
import pytest

PROGRAM = "import time; print(time.monotonic() / time.clock_gettime(time.CLOCK_MONOTONIC))"

@pytest.mark.parametrize("n", range(5))
def test_clocks(n):
    times = float(os.environ["MDSD_OPT_SLOW"])
    here = time.monotonic() / time.clock_gettime(time.CLOCK_MONOTONIC)
    there = float(subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True).stdout)
    assert here == pytest.approx(times, rel=1e-3)
    assert there == pytest.approx(times, rel=1e-3)
"""


def test_clocks_of_all_processes_are_slowed_and_the_order_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MDSD_OPT_SLOW", raising=False)
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(CLOCKED)

    def order(seed: int, *options: str) -> list[tuple[str, str]]:
        told = run_of_tests(tmp_path, "--slow", "5", "--seed-order", str(seed), *options)
        assert f"--slow 5 --seed-order {seed}" in told
        found = re.findall(r"(test_\w+\.py)::test_clocks(\[\d\])", "\n".join(told))
        return [*dict.fromkeys(found)]  # workers are told of twice

    first = order(1)
    assert len({*first}) == 10
    assert len({name for name, _ in first[:5]}) == 1
    assert first == order(1, "-n", "1") != order(2)


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


def imported(path: Path) -> set[str]:
    """Modules that a file of tests imports, whether it can do without them or not."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("importorskip"):
            names |= {str(x.value) for x in node.args[:1] if isinstance(x, ast.Constant)}
    return names


def needed_by(room: Path) -> set[str]:
    """Packages that the room's tests import, and those that what they share with others imports."""
    files, names = set[Path](), set[str]()
    rest = [*room.rglob("*.py")]
    while rest:
        files.add(path := rest.pop())
        found = imported(path)
        names |= {name.partition(".")[0] for name in found}
        shared = (TESTS.joinpath(*name.split(".")).with_suffix(".py") for name in found)
        rest += [each for each in shared if each.exists() and each not in files]
    return names


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
@pytest.mark.parametrize(
    "room", sorted({path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/test_*.py")})
)
def test_make_test_sets_up_what_a_room_needs(room: str) -> None:
    """Each room alone, where nothing has been installed: the commands that make would run."""
    command = ["make", "-n", "test", "VENV=.venv-none", f"ROOM={room}", "TEST_OPTIONS="]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"-m pytest .*\btests/{room}\b", told)
    if room in conftest.BESIDE:
        return
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = (x for x in groups["dependency-groups"]["test"] if isinstance(x, str))
    of_tests = {re.split(r"[^\w-]", name)[0].replace("-", "_") for name in names}
    needed = needed_by(TESTS / room)
    assert "--group test" in told or not needed & of_tests
    assert ("[cdd,ppl]" in told) == ("cdd" in needed or room == "cli")


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
    assert re.search(r"SLOW=5 SEED=\d+ ", of_readme[1])
    others = [call for call in calls if call not in of_readme]
    assert all(call.startswith("VENV=.venv-more ") for call in others)
    beside = ("kernels", "slow", "lowest", "stress", "torch")
    for target in ("lint", "docs", *(f"test-{name}" for name in beside)):
        assert re.search(rf" {target}\b", " ".join(others))


@pytest.mark.parametrize(
    "fails", ["readme demo", "readme test", "install", "lint", "test-lowest", "test-torch"]
)
def test_ci_fails_where_any_part_does_and_goes_on(tmp_path: Path, fails: str) -> None:
    code, calls, output = run_of_ci(tmp_path, f'"{fails}"')
    assert code != 0
    assert "test-torch" in calls[-1]
    assert len(calls) == 6
    if fails != "test-torch":
        assert "failed: " in output


def test_the_lowest_versions_are_those_that_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lowest = (ROOT / "lowest.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)$", lowest, re.MULTILINE))
    declared = dict(re.findall(r"([\w-]+)>=([\d.]+)", " ".join(project["dependencies"])))
    assert len(declared) == len(project["dependencies"])
    for name, version in declared.items():
        assert pinned[name].removesuffix(".0") == version.removesuffix(".0"), name
    recipe = (ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8")
    assert dict(re.findall(r"- ([\w-]+) >=([\d.]+)", recipe)).items() >= declared.items()
