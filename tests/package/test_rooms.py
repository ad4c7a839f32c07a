"""The tower: imports run down, rooms are those that CONTRIBUTING shows."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.faces import face_of

import mdsd_opt
from mdsd_opt.drafts import all_schemes
from mdsd_opt.gpu.rates import BY_NAME

PACKAGE = Path(mdsd_opt.__file__).parent

#: From the ground up; a module imports from its own room and from those before it.
ROOMS = (
    *(
        "base",
        "formats",
        "evidence",
        "servers",
        "prefix_search",
        "drafts",
        "problem",
        "solvers",
        "verifiers",
        "cddlib_checks",
    ),
    *("gpu", "batch", "trees", "serving", "auditing", "decoding", "corpora", "planning"),
    *("bench", "plots", "cli"),
)

#: Imported by any room.
LOOSE = {"errors", "_gone", "_version", "data"}


@cache
def imports(text: str) -> list[ast.Import | ast.ImportFrom]:
    """All imports of a module, those inside functions included."""
    nodes = ast.walk(ast.parse(text))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def rooms_imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and first part of every import from the package."""
    for node in imports(path.read_text(encoding="utf-8")):
        if isinstance(node, ast.ImportFrom) and node.module == "mdsd_opt":
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mdsd_opt."):
            yield node.lineno, str(node.module).split(".")[1]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from ((node.lineno, name[1] if name[1:] else "") for name in names
                        if name[0] == "mdsd_opt")  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_imports_run_down(room: str) -> None:
    below = {*LOOSE, *ROOMS[: ROOMS.index(room) + 1]}
    if room == "cli":  # above all: it may ask for what is public by the package's own name
        below |= {"", *mdsd_opt.__all__}
    paths = (PACKAGE / room).rglob("*.py")
    found = [(path, *place) for path in paths for place in rooms_imported(path)]
    upward = [
        f"{path.relative_to(PACKAGE)}:{line}: {to}" for path, line, to in found if to not in below
    ]
    assert not upward


def test_the_test_sees_an_import_that_runs_up(tmp_path: Path) -> None:
    for told in ("from mdsd_opt.cli import app", "from mdsd_opt import cli", "import mdsd_opt.cli"):
        path = tmp_path / "module.py"
        path.write_text(f"def f():\n    {told}\n", encoding="utf-8")
        assert [name for _, name in rooms_imported(path)] == ["cli"]


def inner_imports(path: Path, room: str, faces: dict[str, dict[str, str]]) -> Iterator[str]:
    """Places where a module of a room imports past another room's face."""
    for node in imports(path.read_text(encoding="utf-8")):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names if alias.name.startswith("mdsd_opt.")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mdsd_opt."):
            other = str(node.module).removeprefix("mdsd_opt.")
            known = faces.get(other, {})
            modules = [f"{node.module}.{a.name}" for a in node.names if a.name not in (*known, "*")]
        else:
            continue
        for module in modules:
            if module.split(".")[1] not in {room, "base", *LOOSE}:
                yield f"{path.name}:{node.lineno}: {module}"


FACES = {room: face_of(PACKAGE / room) for room in ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_other_rooms_are_entered_by_their_faces(room: str) -> None:
    paths = (PACKAGE / room).rglob("*.py")
    assert [past for path in paths for past in inner_imports(path, room, FACES)] == []


def test_tests_enter_by_faces() -> None:
    """What a face gives is not imported past it, which would hold tests to where it is defined."""
    files = {path.stem for path in PACKAGE.rglob("*")}  # a function may have its file's name
    past = [
        f"{path.name}:{node.lineno}: {node.module}.{name.name}"
        for path in Path(__file__).parents[1].rglob("*.py")
        for node in imports(path.read_text(encoding="utf-8"))
        if isinstance(node, ast.ImportFrom) and len(parts := str(node.module).split(".")) > 2
        for name in node.names
        if parts[0] == "mdsd_opt" and name.name in {*FACES.get(parts[1], ())} - files
    ]
    assert past == []


@cache
def names_asked() -> dict[str, set[str]]:
    """Names that modules of the package take from each room's face."""
    names: dict[str, set[str]] = {room: set() for room in ROOMS}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        rooms = {}
        for node in imports(text):
            if isinstance(node, ast.ImportFrom) and node.module == "mdsd_opt":
                rooms |= {x.asname or x.name: x.name for x in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                room = node.module.removeprefix("mdsd_opt.")
                names.setdefault(room, set()).update(alias.name for alias in node.names)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names.setdefault(rooms.get(node.value.id, ""), set()).add(node.attr)
    return names


@pytest.mark.parametrize("room", [room for room in ROOMS if FACES[room]])
def test_a_face_gives_what_it_names(room: str) -> None:
    module = importlib.import_module(f"mdsd_opt.{room}")
    assert {*getattr(module, "__all__", ())} <= {*FACES[room]}
    for name in FACES[room]:
        assert hasattr(module, name)
    asked = {*getattr(module, "__all__", ()), *face_of(PACKAGE)} | names_asked()[room]
    assert {*FACES[room]} <= asked


def test_the_test_sees_an_import_past_a_face(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "from mdsd_opt.trees import Node, draft_tree\nfrom mdsd_opt.base.arrays import spread\n"
        "def f():\n    from mdsd_opt.trees.plans import Cost\n    import mdsd_opt.trees.plans\n"
    )
    assert [*inner_imports(path, "cli", FACES)] == [
        *("module.py:1: mdsd_opt.trees.draft_tree", "module.py:4: mdsd_opt.trees.plans.Cost"),
        "module.py:5: mdsd_opt.trees.plans",
    ]
    assert [*inner_imports(path, "trees", FACES)] == []


#: What a module imports when it is run: modules of the package.
Graph = dict[str, set[str]]


def modules_of(package: Path) -> dict[str, Path]:
    """Files of a package, by their dotted names."""
    files = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def run_at_import(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that are run with the module: in bodies of classes, `if` and `try`, too.

    Those inside functions run later, those for type checkers never.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from run_at_import(ast.Module([other], []))
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from run_at_import(child)


def import_graph(package: Path) -> Graph:
    """Modules that each module imports as it is run, and the packages these stand in.

    A name of a room's face stands for the module that it is taken from. A module's own packages are
    not counted where it imports what stands beside it: they were begun before it. They are where it
    asks for one of their names.
    """
    files = modules_of(package)
    faces = {name: face_of(path.parent) for name, path in files.items()
             if path.name == "__init__.py"}  # fmt: skip
    graph: Graph = {}
    for module, path in files.items():
        graph[module] = set()
        for node in run_at_import(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative imports are not read here"
                face = faces.get(str(node.module), {})
                whole = [f"{node.module}.{face.get(name, name)}" for name in names]
                names = [name if name in files else str(node.module) for name in whole]
            for name in {*names} & files.keys():
                parts = name.split(".")
                above = {".".join(parts[:n]) for n in range(1, len(parts))}
                graph[module] |= {x for x in above if not f"{module}.".startswith(f"{x}.")} | {name}
    return graph


def circles(graph: Graph) -> list[str]:
    """Modules that stand in a circle, or between two of them."""
    left, ends = dict(graph), [""]
    while ends:
        imported = set().union(*left.values())
        ends = [x for x, to in left.items() if x not in imported or not to & left.keys()]
        left = {x: to for x, to in left.items() if x not in ends}
    return sorted(left)


def test_no_circle_of_imports_between_rooms_or_inside_one() -> None:
    graph = import_graph(PACKAGE)
    assert sum(map(len, graph.values())) > 1000
    assert circles(graph) == []


def test_the_test_sees_a_circle(tmp_path: Path) -> None:
    for folder in ("planted", "planted/room"):
        (tmp_path / folder).mkdir()
    texts = {
        "__init__": "",
        "user": "from planted.room import name\nfrom planted.below import x",
        "below": "x = 1\nif x:\n    from planted.room.deep import y",
        "room/__init__": "from planted.room.deep import y\nfrom planted.room import name",
        "room/name": "def f():\n    from planted.room import y\n",
        "room/deep": "import typing\nif typing.TYPE_CHECKING:\n    import planted.below",
    }

    def found(**changed: str) -> list[str]:
        for name, text in {**texts, **changed}.items():
            (tmp_path / "planted" / f"{name}.py").write_text(text, encoding="utf-8")
        return circles(import_graph(tmp_path / "planted"))

    assert found() == []
    # The package of what is imported is run first, and with it what stands in its __init__.
    assert found(**{"room/deep": "from planted.below import x"}) == [
        *("planted.below", "planted.room", "planted.room.deep")
    ]
    assert found(**{"room/deep": "class A:\n    from planted.room import y"}) == [
        *("planted.room", "planted.room.deep")
    ]


def rooms_in_strings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and room of every string, but for docstrings, that names a module of the package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            for room in re.findall(r"\bmdsd_opt\.(\w+)[.:]", node.value):
                yield node.lineno, room


@pytest.mark.parametrize("room", ROOMS)
def test_no_string_names_a_module_above(room: str) -> None:
    above = ROOMS[ROOMS.index(room) + 1 :]
    paths = (PACKAGE / room).rglob("*.py")
    found = [(path, *place) for path in paths for place in rooms_in_strings(path)]
    assert not [f"{path}:{line}: {to}" for path, line, to in found if to in above]


def test_the_test_sees_a_string_that_names_a_module(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""See `mdsd_opt.gpu.pair`."""\n\nKERNEL = "mdsd_opt.gpu.rates:rrs"\n')
    assert [*rooms_in_strings(path)] == [(3, "gpu")]


def test_names_of_device_kernels_are_those_of_the_table() -> None:
    """Rooms below name kernels by words, which the room that has them looks up."""
    kinds = [getattr(kind, "optimal_kernels", None) for kind in all_schemes().values()]
    verifiers = [mdsd_opt.verifiers.get(name) for name in mdsd_opt.verifiers.names()]
    declared = {kernels.device for kernels in kinds if kernels is not None}
    declared |= {rates.device for each in verifiers for rates in each.batch_rates.values()}
    assert declared - {""} == set(BY_NAME)


def test_a_class_name_has_one_meaning() -> None:
    parsed = (ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py"))
    names = Counter(x.name for tree in parsed for x in tree.body if isinstance(x, ast.ClassDef))
    assert len(names) > 500
    assert [name for name, count in names.items() if count > 1] == []


def test_folders_are_the_rooms() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders - {"data"} == set(ROOMS)
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert re.findall(r"^\|[a-z ]*\| `(\w+)` \|", text, re.MULTILINE) == [*reversed(ROOMS)]
