"""Statements of a file that some of its names depend on: those that bind or may change them."""

from __future__ import annotations
import __future__

import ast
import copy
import dis
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from inspect import CO_OPTIMIZED
from types import CodeType

#: Packages from which a file may import: Python's own and these.
IMPORTED = frozenset(sys.stdlib_module_names) | {"numpy", "torch"}

#: Stands for every name: `exec` may bind any, and so may `*` of an unknown module.
ANY = "*"

#: Stands for facts outside the file: installed packages, values of annotations.
UNTOLD = "?"

#: Packages with settings that a call may change, even where only its value is used.
_SETTINGS = frozenset({"builtins", "decimal", "numpy", "random", "torch"})

#: Attributes through which a frame or a function reaches the names of its module.
_NAMESPACES = frozenset({"__globals__", "f_back", "f_globals", "f_locals"})

_Import = ast.Import | ast.ImportFrom
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = _Function | ast.ClassDef
_Assignment = ast.Assign | ast.AnnAssign


class Statement:
    """A statement at a file's top level, compiled without its annotations."""

    def __init__(self, node: ast.stmt, path: str) -> None:
        self.node = node
        flags = __future__.annotations.compiler_flag
        module = ast.Module([node], [])
        self.code: CodeType = compile(module, path, "exec", flags, dont_inherit=True)
        #: Names that it binds or deletes as it runs, and those of the file that its functions bind.
        self.binds, self.stored = set[str](), set[str]()
        #: Names that it reads as it runs, and those that its functions read, but for locals.
        self.now, self.names = set[str](), set[str]()
        #: Names of what its annotations call, were they evaluated.
        self.annotated = {
            name
            for part in _parts(node)
            for field in ("annotation", "returns")
            for call in _parts(getattr(part, field, None) or ast.Pass())
            if isinstance(call, ast.Call)
            for name in _handled(call)
        }
        self._look_into(self.code, True)
        for part in _parts(node, functions=False):
            if isinstance(part, ast.ImportFrom) and part.names[0].name == "*":
                self.binds |= imported(part).keys()

    def _look_into(self, code: CodeType, runs: bool) -> None:
        for line in dis.get_instructions(code):
            if not line.opname.endswith(("D_NAME", "E_NAME", "_GLOBAL", "_GLOBALS")):
                continue
            if line.opname.startswith(("LOAD_", "DELETE_")):
                self.names.add(line.argval)
                self.now |= {line.argval} if runs else set()
            if line.opname.startswith("LOAD_"):
                continue
            if line.opname.endswith("_GLOBAL") or code is self.code:
                (self.binds if runs else self.stored).add(line.argval)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):  # of a class, a comprehension, a lambda; of a function
                at_once = not inner.co_flags & CO_OPTIMIZED or inner.co_name.startswith("<")
                self._look_into(inner, runs and at_once)


class Statements:
    """The statements of a file; finds those that are needed for some of its names.

    Where it cannot be told whether a statement changes what a name is bound to, it is needed. Only
    code of other packages is trusted to change nothing of the file but what is handed to it.
    """

    def __init__(self, tree: ast.Module, path: str) -> None:
        self._all = [Statement(node, path) for node in _single(tree.body)]
        if any(getattr(node, "module", "") == "__future__" for node in tree.body):
            for one in self._all:
                one.annotated = set()
        self._packages: dict[str, str] = {}
        self._kinds: dict[str, set[str]] = defaultdict(set)
        # whether functions of the file may be called where a class is made
        self._hooks = any(
            getattr(part, "name", "") in ("__init_subclass__", "__set_name__")
            or (isinstance(part, ast.ClassDef) and part.keywords)
            for part in _parts(tree)
        )
        for one in self._all:
            self._classify(one)
        self._touched_by: dict[str, set[Statement]] = defaultdict(set)
        self._changes = {one: self._changed(one, one.names) | one.stored for one in self._all}
        for one in self._all:
            for name in one.binds | self._changes[one]:
                self._touched_by[name].add(one)
        self.effects = {one: self._effects(one) for one in self._all}

    def needed(self, names: Collection[str], given: Collection[str]) -> dict[Statement, set[str]]:
        """Statements that the names depend on, in order, with the needed names that each decides.

        What is given by name needs none of them.
        """
        needed, aliases = {*names, "<builtins>"} - {*given}, set[str]()
        statements: dict[Statement, set[str]] = {}

        def decided(n: int, one: Statement) -> set[str]:
            if ANY in needed | self.effects[one]:
                return {ANY}
            unknown = needed if ANY in one.binds else ()
            stays = {name for name in unknown if self._stays(name, n, statements)}
            return (one.binds & needed) | (self.effects[one] & (needed | aliases)) | stays

        while new := {
            one: names
            for n, one in enumerate(self._all)
            if one not in statements and (names := decided(n, one))
        }:
            statements |= new
            for one in new:
                aliases |= one.binds.difference(given)
                read = one.names | one.stored | (self._changes[one] & {ANY})
                needed |= read.difference(given)
                known = self._packages.keys() & read.difference(given)
                needed |= {f"<{self._packages[name]}>" for name in known}
        return {one: statements[one] for one in self._all if one in statements}

    def _effects(self, one: Statement) -> set[str]:
        """Names whose values the statement may change as it runs, and its other dependencies."""
        calls = self._calls(one)
        begin = one.names if calls else one.now
        own = {name for name in one.annotated if self._kinds.get(name, set()) - {"import"}}
        if isinstance(one.node, ast.ClassDef) and not calls:  # its bases do nothing
            begin = begin & _names_in(*one.node.decorator_list, *one.node.body, functions=False)
        changed = self._changed(one, begin, calls) | (one.stored if calls else set())
        changed |= {UNTOLD} if own else set()
        reached, waiting = {one}, [*begin, *own]
        while waiting:
            for other in self._touched_by[waiting.pop()] - reached:
                reached.add(other)
                changed |= self._changes[other]
                waiting += other.names
        return changed

    def _stays(self, name: str, n: int, statements: Collection[Statement]) -> bool:
        """Whether the value that `*` may give the name in statement n may be read later."""
        for one in self._all[n + 1 :]:
            plain = isinstance(one.node, _Definition | _Import | _Assignment)
            if plain and name in one.binds and name not in one.now:
                return False
            if one in statements and (isinstance(one.node, ast.ClassDef) or self._calls(one)):
                break
        return not name.startswith(("<", "__"))

    def _classify(self, one: Statement) -> None:
        """Record what kinds of things the statement binds its names to."""
        kinds: dict[str, set[str]] = defaultdict(set)
        constant = set[int]()
        for part in _parts(one.node, functions=False):
            if isinstance(part, _Import):
                for name, package in imported(part).items():
                    kinds[name].add("import")
                    self._packages |= {name: package} if package else {}
            elif isinstance(part, _Definition):
                kinds[part.name].add("other" if self._handed(part) else "definition")
            elif isinstance(part, _Assignment) and self._constant(part.value):
                targets = part.targets if isinstance(part, ast.Assign) else [part.target]
                constant |= {id(target) for target in targets}
            elif isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
                kinds[part.id].add("constant" if id(part) in constant else "other")
        for name in one.binds | one.stored:
            self._kinds[name] |= {"other"} if name in one.stored else kinds[name] or {"other"}

    def _constant(self, value: ast.AST | None) -> bool:
        """Whether the value is one that nothing can change."""
        match value:
            case ast.Constant() | ast.operator() | ast.unaryop() | ast.expr_context():
                return True
            case ast.Name():
                return self._kinds.get(value.id) == {"constant"}
            case ast.UnaryOp() | ast.BinOp() | ast.Tuple():
                return all(map(self._constant, ast.iter_child_nodes(value)))
            case ast.Call(func=ast.Name(id="float" | "int" | "str" | "bool"), keywords=[]):
                return all(map(self._constant, value.args))
            case ast.Call(func=ast.Attribute(attr="getLogger") | ast.Name(id="getLogger")):
                return True  # what is logged decides nothing
        return False

    def _handed(self, node: _Definition) -> bool:
        """Whether decorators not of Python, NumPy or PyTorch get it, and so may call it."""
        parts = _parts(*node.decorator_list)
        return any(
            isinstance(part, ast.Lambda)
            or (
                (isinstance(part, ast.Name) and part.id in self._kinds)
                and not (part.id in self._packages and self._kinds[part.id] == {"import"})
            )
            for part in parts
        )

    def _calls(self, one: Statement) -> bool:
        """Whether functions that the statement defines may be called as it runs."""
        node = one.node
        if isinstance(node, ast.ClassDef):
            hooked = any(name in self._kinds for name in one.now) and self._hooks
            enum = any(self._packages.get(name) == "enum" for name in one.now)  # makes instances
            return bool(node.keywords) or hooked or enum or self._handed(node)
        return not isinstance(node, _Import | _Function) or (
            isinstance(node, _Function) and self._handed(node)
        )

    def _changed(self, one: Statement, names: set[str], functions: bool = True) -> set[str]:
        """Names in the statement whose values it may change, and placeholders for other names."""
        parts = list(_parts(one.node, functions=functions))
        called = {id(part.func) for part in parts if isinstance(part, ast.Call)}
        values = {p.id for p in parts if isinstance(p, ast.Name) and id(p) not in called}
        acted, computed, changes = set[str](), set[str](), set[str]()
        if not isinstance(one.node, _Definition):
            for part in _parts(one.node, functions=False):
                value = part.value if isinstance(part, _Assignment) else None
                if value and any(isinstance(inner, ast.Call) for inner in _parts(value)):
                    computed |= _names_in(value)
        for part in parts:
            if isinstance(part, ast.Expr):
                acted |= _handled(part.value)
            elif isinstance(part, ast.Attribute | ast.Subscript):
                acted |= set() if isinstance(part.ctx, ast.Load) else _handled(part)
                name, of = getattr(part, "attr", ""), self._packages.get(ast.unparse(part.value))
                if (of, name) == ("sys", "modules") or name in _NAMESPACES:
                    changes.add(ANY)
                if name == "__annotations__":
                    changes.add(UNTOLD)
        for name in names:
            kinds, package = self._kinds.get(name, set()), self._packages.get(name)
            if "other" in kinds or ("definition" in kinds and name in values):
                changes.add(name)
            if name in acted or (name in computed and package in _SETTINGS):
                changes |= {f"<{package}>"} if package else set()
            if package in ("importlib", "pkgutil") or name == "__import__":
                changes.add(UNTOLD)
            everything = name in ("exec", "eval", "globals", "__builtins__")
            if (package, name) == ("sys", "modules") or (name == "__name__" and name in acted):
                changes.add(ANY)  # through the module
            if not kinds and (everything or name in {"locals", "vars"} & one.now):
                changes.add(ANY)
        return changes


def imported(node: _Import) -> dict[str, str]:
    """Names that an import binds, each with its package ("" where that may not be imported)."""
    if isinstance(node, ast.Import):
        modules = {a.asname or a.name.partition(".")[0]: a.name for a in node.names}
    else:
        module = "" if node.level else node.module or ""
        modules = {alias.asname or alias.name: module for alias in node.names}
    packages = {name: module.partition(".")[0] for name, module in modules.items()}
    packages = {name: one if one in IMPORTED else "" for name, one in packages.items()}
    if packages.get(ANY):
        brought: dict[str, object] = {}
        try:
            exec(ast.unparse(node), brought)
        except ImportError:  # PyTorch is not installed
            return {ANY: ""}
        return dict.fromkeys(brought.keys() - {"__builtins__"}, packages[ANY])
    return packages


def _single(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in statements:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            continue
        if isinstance(node, _Import):
            for alias in node.names:
                one = copy.copy(node)
                one.names = [alias]
                yield one
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            yield from _single(node.orelse)
        else:
            yield node


def _parts(*nodes: ast.AST, functions: bool = True) -> Iterator[ast.AST]:
    """Nodes and their descendants, without annotations and, unless asked for, function bodies."""
    waiting = [*nodes]
    while waiting:
        node = waiting.pop()
        yield node
        skipped = {"annotation", "returns"}
        if not functions and isinstance(node, _Function | ast.Lambda):
            skipped.add("body")
        for field, value in ast.iter_fields(node):
            if field not in skipped:
                children = value if isinstance(value, list) else [value]
                waiting += [child for child in children if isinstance(child, ast.AST)]


def _names_in(*nodes: ast.AST, functions: bool = True) -> set[str]:
    return {part.id for part in _parts(*nodes, functions=functions) if isinstance(part, ast.Name)}


def _handled(node: ast.AST) -> set[str]:
    """Names of which a part is called or stored, and those that are passed as an argument."""
    names = set[str]()
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        if isinstance(node, ast.Call):
            names |= {one.id for one in node.args if isinstance(one, ast.Name)}
        node = node.func if isinstance(node, ast.Call) else node.value
    return names | ({node.id} if isinstance(node, ast.Name) else set())
