"""Mutants: small faults put into the package at random, each with the test that finds it.

Which tests enter which functions is noted first, then mutants are drawn in the functions that some
test enters, and those tests run on each, in a copy of the tree. What stands in
`tests/goldens/mutants.json` is drawn again from nothing: a mutant is known by its line and text, so
that it outlives changes elsewhere, and is passed over once its line is gone.

    python tests/support/mutants.py reach PYTEST_ARGUMENT ...   what enters what, in build/mutants
    python tests/support/mutants.py draw SEED COUNT             judge new ones, and record them
    python tests/support/mutants.py check SEED COUNT            judge some of the recorded again
    python tests/support/mutants.py anew                        judge those whose test is gone

Left out are kernels, which have tests against references of their own, and what devices run.
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "mdsd_opt"
RECORDED = ROOT / "tests" / "goldens" / "mutants.json"
REACH = ROOT / "build" / "mutants"

#: Rooms whose code runs on devices, or that hold data alone.
AWAY = ("gpu", "serving", "data")
#: What marks functions that are compiled.
COMPILED = ("kernel", "jit", "intrinsic")

#: Seconds after which tests of a mutant hang; how many are tried first, and how many at all.
HANGS, FIRST, MOST = 300, 25, 100

#: How pytest is asked, and which tests are quick.
PYTEST = [sys.executable, "-m", "pytest", "-q", "-n0", "--no-header"]
PYTEST += ["-m", "not slow and not exhaustive"]

#: A test that fails, of which pytest tells the reason after its name.
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?(?:\[.*?\])?)(?: - |$)", re.M)

OPPOSITE = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}


@dataclass(frozen=True)
class Mutant:
    """`new` in place of `old`, at a column of the one line of its function that reads `line`.

    `killed_by` is the test that fails, "time" if they hang, and empty where all those tried pass.
    """

    file: str
    function: str
    line: str
    column: int
    old: str
    new: str
    kind: str
    killed_by: str = ""

    def planted(self, text: str) -> str | None:
        """The text of the file with this fault, or None where its place is gone."""
        span = functions(text).get(self.function)
        if span is None:
            return None
        lines = text.splitlines(keepends=True)
        found = [k for k in range(*span) if lines[k].strip() == self.line]
        if len(found) != 1:
            return None
        indent = len(lines[found[0]]) - len(lines[found[0]].lstrip())
        begin = sum(map(len, lines[: found[0]])) + indent + self.column
        if not text.startswith(self.old, begin):
            return None
        return text[:begin] + self.new + text[begin + len(self.old) :]


def named(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods, by the names that tracebacks have, but for those that are compiled."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from named(node, f"{outer}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            marks = " ".join(map(ast.unparse, node.decorator_list))
            if not any(word in marks for word in COMPILED):
                yield outer + node.name, node
        else:
            yield from named(node, outer)


@cache
def functions(text: str) -> dict[str, tuple[int, int]]:
    """The range of lines, from 0, of each function."""
    return {name: (f.lineno - 1, f.end_lineno or 0) for name, f in named(ast.parse(text))}


def changed(node: ast.AST) -> tuple[str, str] | None:
    """What stands in place of a node, and the kind of fault that it is."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPPOSITE:
            sides = ast.unparse(left), ast.unparse(right)
            return f"({sides[0]}) {OPPOSITE[type(op)]} ({sides[1]})", "comparison"
        case ast.BoolOp(op=op, values=values):
            sign = " or " if isinstance(op, ast.And) else " and "
            return sign.join(f"({ast.unparse(value)})" for value in values), "comparison"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"({ast.unparse(operand)})", "comparison"
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            return f"({ast.unparse(operand)})", "sign"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            sign = ARITHMETIC[type(op)]
            return f"(({ast.unparse(left)}) {sign} ({ast.unparse(right)}))", "sign"
        case ast.Constant(value=bool(value)):
            return repr(not value), "constant"
        case ast.Constant(value=int(value) | float(value)):
            return repr(value + 1), "constant"
        case ast.Expr(value=ast.Constant()):
            return None  # A docstring, or a body of none.
        case ast.Expr() | ast.AugAssign() | ast.Raise():
            return "pass", "left out"
    return None


def inside(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a body, without annotations, texts and what an error says."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.Raise | ast.JoinedStr):
            continue
        left_out = {id(getattr(node, name, None)) for name in ("annotation", "returns", "args")}
        left_out |= {id(x) for x in getattr(node, "decorator_list", ())}
        pending += [x for x in ast.iter_child_nodes(node) if id(x) not in left_out]


def between(lines: list[str], node: ast.expr | ast.stmt) -> str:
    """The text of a node; its columns count bytes."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    some = [line.encode() for line in lines[first : last + 1]]
    some[-1] = some[-1][: node.end_col_offset]
    some[0] = some[0][node.col_offset :]
    return b"\n".join(some).decode()


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """All mutants of a file whose lines say where they are."""
    lines = text.splitlines()
    for name, function in named(ast.parse(text)):
        known = Counter(x.strip() for x in lines[function.lineno - 1 : function.end_lineno])
        for node in inside(function):
            new, line = changed(node), lines[getattr(node, "lineno", 1) - 1]
            if new is None or known[line.strip()] != 1:
                continue
            column = len(line.encode()[: node.col_offset].decode()) - len(line) + len(line.lstrip())
            yield Mutant(file, name, line.strip(), column, between(lines, node), *new)


# As a plugin of pytest: which functions of the package a test enters.

_seen: set[object] = set()
_entered: dict[str, list[str]] = defaultdict(list)


def _note(frame: object, event: str, _argument: object) -> None:
    if event == "call":
        _seen.add(frame.f_code)  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Note what is called while a test runs, in all threads of this process."""
    _seen.clear()
    threading.setprofile(_note)
    sys.setprofile(_note)
    try:
        return (yield)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        package = f"{ROOT / PACKAGE}{os.sep}"
        for code in _seen:
            if code.co_filename.startswith(package):
                file = Path(code.co_filename).relative_to(ROOT).as_posix()
                name = code.co_qualname.partition(".<locals>")[0]
                _entered[f"{file}::{name}"].append(item.nodeid)


def pytest_sessionfinish():
    if _entered:
        REACH.mkdir(parents=True, exist_ok=True)
        (REACH / f"{os.getpid()}.json").write_text(json.dumps(_entered))


# Drawing and judging.


def room_of(file: str) -> str:
    """The folder of tests of a file's room."""
    return f"tests/{file.split('/')[1].partition('.')[0]}"


def reached() -> dict[str, list[str]]:
    """The tests that enter a function, those of its own room and that enter little first."""
    entered: dict[str, set[str]] = defaultdict(set)
    for path in REACH.glob("*.json"):
        for function, tests in json.loads(path.read_text()).items():
            entered[function] |= set(tests)
    number = Counter(test for tests in entered.values() for test in tests)
    rooms = {name: f"{room_of(name.partition('::')[0])}/" for name in entered}
    return {
        name: sorted(tests, key=lambda x: (not x.startswith(rooms[name]), number[x], x))
        for name, tests in entered.items()
    }


def text_of(path: Path) -> str:
    """The text of a file, or nothing where it is gone."""
    return path.read_text("utf-8") if path.exists() else ""


def recorded() -> list[Mutant]:
    return [Mutant(**each) for each in json.loads(RECORDED.read_text("utf-8"))]


def copied(folder: Path) -> Path:
    """A copy of the tree, without the folders that git ignores wherever they stand."""
    ignored = (line.removesuffix("/") for line in text_of(ROOT / ".gitignore").splitlines())
    names = [line for line in ignored if "/" not in line]
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", *names), dirs_exist_ok=True)
    return folder


def failing(tree: Path, tests: list[str]) -> str:
    """The first of some tests that fails in a tree, "time" where they hang, or nothing."""
    if not tests:
        return ""
    asked = tree / "asked.txt"
    asked.write_text("\n".join(tests))
    # A group of processes that ends as one: a mutant may let one run for ever.
    run = subprocess.Popen(
        [*PYTEST, "-x", "-pno:cacheprovider", "--tb=no", f"@{asked}"],
        cwd=tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        told, _ = run.communicate(timeout=HANGS)
    except subprocess.TimeoutExpired:
        return "time"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    if unknown := re.search(r"^ERROR: not found: (.*)", told, re.M):
        raise SystemExit(f"{unknown[1]} is gone: note anew what tests enter (mutants.py reach)")
    if failed := FAILED.search(told):
        return failed[1]
    return "" if run.returncode == 0 else f"pytest ends with {run.returncode}"


def killer(tree: Path, mutant: Mutant, tests: list[str]) -> str:
    """The test that fails on a mutant, of those that are given in the order to try them."""
    path = tree / mutant.file
    text = path.read_text("utf-8")
    planted = mutant.planted(text)
    assert planted is not None, f"{mutant.file} has no line {mutant.line!r}"
    try:
        path.write_text(planted, "utf-8")
        return failing(tree, tests[:FIRST]) or failing(tree, tests[FIRST:MOST])
    finally:
        path.write_text(text, "utf-8")


def gone(tests: set[str]) -> set[str]:
    """Those that are no longer among the quick tests."""
    files = sorted({path for x in tests if (ROOT / (path := x.partition("::")[0])).exists()})
    asked = [*PYTEST, "--collect-only", *files]
    there = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    return tests - set(there.stdout.splitlines())


def record(mutants: list[Mutant]) -> None:
    lines = ",\n".join(json.dumps(asdict(x)) for x in mutants)
    RECORDED.write_text(f"[\n{lines}\n]\n", "utf-8")


def parses(text: str | None) -> bool:
    try:
        return text is not None and bool(ast.parse(text))
    except SyntaxError:
        return False


def draw(seed: int, count: int) -> list[Mutant]:
    """Some mutants that no one has recorded, a kind as often as any other."""
    tests, rng, known = (
        reached(),
        random.Random(seed),
        {replace(x, killed_by="") for x in recorded()},
    )
    by_kind: dict[str, list[Mutant]] = defaultdict(list)
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        if file.split("/")[1] not in AWAY:
            for mutant in mutants_of(file, path.read_text("utf-8")):
                if f"{file}::{mutant.function}" in tests and mutant not in known:
                    by_kind[mutant.kind].append(mutant)
    print({kind: len(some) for kind, some in by_kind.items()}, flush=True)
    drawn: list[Mutant] = []
    while len(drawn) < count and any(by_kind.values()):
        some = by_kind[rng.choice(sorted(kind for kind in by_kind if by_kind[kind]))]
        mutant = some.pop(rng.randrange(len(some)))
        if parses(mutant.planted((ROOT / mutant.file).read_text("utf-8"))):
            drawn.append(mutant)
    return drawn


def main(arguments: list[str]) -> int:
    """Note, draw or check, as this file's first lines tell."""
    if arguments[0] == "reach":
        there = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "support.mutants", *arguments[1:]]
        return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": there}).returncode
    seed, count = map(int, arguments[1:] or (0, 0))
    old, tests, wrong = recorded(), reached(), 0
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        if arguments[0] == "draw":
            for mutant in draw(seed, count):
                by = killer(tree, mutant, tests[f"{mutant.file}::{mutant.function}"])
                record([*recorded(), judged := replace(mutant, killed_by=by)])
                print(by or "LIVES", judged, flush=True)
            return 0
        there = [x for x in old if x.killed_by and x.planted(text_of(tree / x.file))]
        lost = gone({x.killed_by for x in there if "::" in x.killed_by})
        if arguments[0] == "anew":
            for mutant in (x for x in there if x.killed_by in lost):
                more = tests.get(f"{mutant.file}::{mutant.function}", [])
                near = [x for x in more if x not in lost] or [room_of(mutant.file)]
                by = killer(tree, mutant, near)
                old[old.index(mutant)] = replace(mutant, killed_by=by)
                record(old)
                print(by or "LIVES", mutant, flush=True)
            return 0
        if lost:
            print(f"judge anew (mutants.py anew) what these killed, which are gone: {sorted(lost)}")
            return 1
        print(f"{len(there)} of {len(old)} were killed and have their lines", flush=True)
        for mutant in random.Random(seed).sample(there, min(count, len(there))):
            more = tests.get(f"{mutant.file}::{mutant.function}", [])
            by = killer(tree, mutant, [x for x in (mutant.killed_by, *more) if "::" in x])
            wrong += not by
            print(by or "LIVES", mutant, flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
