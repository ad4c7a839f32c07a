"""What the statements of a file do to its names: which they bind, read, and may change."""

from __future__ import annotations

import ast
import builtins
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

#: Besides Python's own, what imports of a file may bring in.
IMPORTED = frozenset(sys.stdlib_module_names) | {"numpy", "torch"}

#: Stands for every name there is, as `exec` may bind it.
ANY = "*"

#: Stands for the question which packages are installed.
INSTALLED = "?"

#: A call may change how these compute, though its value alone is assigned.
_SETTINGS = frozenset({"builtins", "decimal", "numpy", "random", "torch"})

#: How names are mentioned, from part to name.
_Mentions = defaultdict[str, set[str]]


class Statement:
    """A statement at a file's top level.

    Attributes
    ----------
    node : ast.stmt
    binds : set of str
        Names that it binds or deletes when it runs.
    now, later : dict
        Names that are mentioned by what runs with it, and by functions that it merely defines.
        The values say how: "called", "seen" as a value, "stored" into, "acted" on by an expression
        whose value nobody takes, or "computed" with.
    """

    def __init__(self, node: ast.stmt) -> None:
        self.node = node
        self.binds: set[str] = set()
        self.now: _Mentions = defaultdict(set)
        self.later: _Mentions = defaultdict(set)


class Statements(ast.NodeVisitor):
    """The statements of a file, and what each of them may change.

    Names of what is local to functions are left out, and so are annotations, which nothing
    evaluates. Where it cannot be told whether a name is changed, it counts as changed; except that
    code of other packages is trusted to change nothing but what is handed to it.

    Attributes
    ----------
    all : list of Statement
    """

    def __init__(self, tree: ast.Module) -> None:
        self._kinds: dict[str, set[str]] = defaultdict(set)
        self._packages: dict[str, str] = {}
        self._hidden: frozenset[str] = frozenset()  # local to functions and comprehensions
        self._fresh: frozenset[str] = frozenset()  # bound just now by a loop or a with
        self._scope, self._handed, self._how = "module", False, ""
        self.all: list[Statement] = []
        for node in _single(tree.body):
            self._into = Statement(node)
            self._mentions = self._into.now
            self.visit(node)
            self.all.append(self._into)
        self._changed_by: dict[str, list[Statement]] = defaultdict(list)
        for one in self.all:
            for name in one.binds | self._changes(one.now):
                self._changed_by[name].append(one)

    def names(self, one: Statement) -> set[str]:
        """All names that a statement and what it defines need, and the packages they are from."""
        found = {*one.now, *one.later}
        return found | {f"<{self._packages[name]}>" for name in found & self._packages.keys()}

    def effects(self, one: Statement) -> set[str]:
        """Names whose values may be changed when the statement runs, those it binds left out."""
        found = self._changes(one.now)
        reached, waiting = {id(one)}, list(one.now)
        while waiting:
            for other in self._changed_by.get(waiting.pop(), []):
                if id(other) not in reached:
                    reached.add(id(other))
                    found |= self._changes(other.now) | self._changes(other.later)
                    waiting += [*other.now, *other.later]
        return found

    def _changes(self, mentions: _Mentions) -> set[str]:
        found = set()
        for name, how in mentions.items():
            kinds, package = self._kinds.get(name, set()) - {"constant"}, self._packages.get(name)
            if "stored" in how or (
                kinds - {"import"} and (kinds != {"definition"} or "seen" in how)
            ):
                found.add(name)
            if package in ("importlib", "pkgutil"):
                found.add(INSTALLED)
            if how & {"stored", "acted"} or ("computed" in how and package in _SETTINGS):
                found.add(f"<{package}>")
        return found

    @contextmanager
    def _with(self, **changed: Any) -> Iterator[None]:
        before = {name: getattr(self, f"_{name}") for name in changed}
        for name, value in changed.items():
            setattr(self, f"_{name}", value)
        yield
        for name, value in before.items():
            setattr(self, f"_{name}", value)

    def _mention(self, name: str, how: str) -> None:
        if name not in self._hidden and (name not in self._fresh or self._scope == "function"):
            self._mentions[name] |= {how, self._how} - {""}

    def visit(self, node: ast.AST) -> None:
        for name in _bound(node):
            if self._scope == "module" and name not in self._hidden:
                self._into.binds.add(name)
                self._kinds[name].add(self._kind(node))
        super().visit(node)

    def _kind(self, node: ast.AST) -> str:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return "import"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return "definition" if self._trusted(node.decorator_list) else "other"
        value = getattr(self._into.node, "value", None)
        simple = isinstance(self._into.node, ast.Assign | ast.AnnAssign) and value is not None
        return "constant" if simple and self._constant(value) else "other"

    def _constant(self, value: ast.expr) -> bool:
        """Whether nothing but another binding can change the value."""
        match value:
            case ast.Constant():
                return True
            case ast.Name():
                return self._kinds.get(value.id) == {"constant"}
            case ast.UnaryOp() | ast.BinOp() | ast.Tuple() | ast.Compare():
                parts = [part for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr)]
                return all(map(self._constant, parts))
            case ast.Call(func=ast.Name(id="float" | "int" | "str" | "bool"), keywords=[]):
                return all(map(self._constant, value.args))
            case ast.Call(func=ast.Attribute(attr="getLogger") | ast.Name(id="getLogger")):
                return True  # what is logged decides nothing
        return False

    def _trusted(self, nodes: Iterable[ast.AST], *also: str) -> bool:
        """Whether it is Python, NumPy or PyTorch that gets what is defined, and calls none of it."""
        for node in [inner for node in nodes for inner in ast.walk(node)]:
            if isinstance(node, ast.Lambda):
                return False
            if isinstance(node, ast.Name) and node.id in self._kinds:
                if self._packages.get(node.id, *also or [None]) in (None, "enum"):
                    return False
        return True

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read(node, "seen")

    def _read(self, node: ast.Name, how: str) -> None:
        self._mention(node.id, how)
        wild = {"exec", "eval", "globals", "__builtins__"}
        if node.id in wild or (node.id in ("locals", "vars") and self._scope == "module"):
            self._mention(ANY, "stored")
        if node.id == "__import__":
            self._mention(INSTALLED, "stored")

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name):
            self._read(node.func, "called")
        else:
            self.visit(node.func)
        for part in [*node.args, *node.keywords]:
            self.visit(part)

    def visit_Attribute(self, node: ast.Attribute | ast.Subscript) -> None:
        root: ast.AST = node
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        if isinstance(root, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                self._mention(root.id, "stored")
            attribute = getattr(node, "attr", "")
            if attribute == "modules" and self._packages.get(root.id) == "sys":
                self._mention(ANY, "stored")
        if getattr(node, "attr", "") in ("f_globals", "__globals__"):
            self._mention(ANY, "stored")
        self.generic_visit(node)

    visit_Subscript = visit_Attribute

    def visit_Expr(self, node: ast.Expr) -> None:
        with self._with(how="acted"):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        calls = any(isinstance(inner, ast.Call) for inner in ast.walk(node.value))
        with self._with(how="computed" if calls and self._scope == "module" else ""):
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.visit(node.target)
        with self._with(fresh=self._fresh | _stored([node.target])):
            for part in node.body:
                self.visit(part)
        for part in node.orelse:
            self.visit(part)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            with self._with(how="acted"):
                self.visit(item)
        with self._with(fresh=self._fresh | _stored(node.items)):
            for part in node.body:
                self.visit(part)

    def visit_ListComp(self, node: Any) -> None:
        with self._with(hidden=self._hidden | _stored(part.target for part in node.generators)):
            self.generic_visit(node)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_Global(self, node: ast.Global) -> None:
        for name in node.names:
            self._kinds[name].add("other")
            self._mention(name, "stored")

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        if self._scope == "module":
            self._packages |= {n: package for n, package in imported(node).items() if package}

    visit_ImportFrom = visit_Import

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for part in node.decorator_list:
            self.visit(part)
        called = self._handed or not self._trusted(node.decorator_list)
        self._function(node, self._mentions if called else self._into.later)

    visit_AsyncFunctionDef: Any = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node, self._mentions)

    def _function(self, node: ast.FunctionDef | ast.Lambda, mentions: _Mentions) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        hidden, shared = _locals(node)
        hidden |= self._hidden - shared
        with self._with(hidden=hidden, scope="function", handed=False, how="", mentions=mentions):
            for part in node.body if isinstance(node.body, list) else [node.body]:
                self.visit(part)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        bases = [*node.bases, *node.keywords]
        for part in [*node.decorator_list, *bases]:
            self.visit(part)
        handed = not (self._trusted(node.decorator_list) and self._trusted(bases, ""))
        with self._with(scope="class", handed=handed, how=""):
            for part in node.body:
                self.visit(part)


def imported(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """The names that an import binds, each with its package; "" for one that is not imported."""
    if isinstance(node, ast.ImportFrom):
        module = "" if node.level else node.module or ""
        modules = {alias.asname or alias.name: module for alias in node.names}
    else:
        modules = {a.asname or a.name.partition(".")[0]: a.name for a in node.names}
    packages = {name: module.partition(".")[0] for name, module in modules.items()}
    return {name: package if package in IMPORTED else "" for name, package in packages.items()}
