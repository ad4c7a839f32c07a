"""Functions out of a file that cannot be imported: their source runs as it stands, alone."""

from __future__ import annotations
import __future__

import ast
import builtins
import sys
import warnings
from collections.abc import Iterable, Iterator
from importlib import metadata
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from mdsd_opt.errors import InvalidInput

#: Besides Python's own, what imports of a file may bring in.
_IMPORTED = frozenset(sys.stdlib_module_names) | {"numpy", "torch"}


def load_definitions(
    path: str | PathLike[str], *names: str, package: str | None = None, **given: Any
) -> ModuleType:
    """Execute some definitions of a file, and what of the file they need, without the rest.

    Source lines run unmodified and keep their numbers. Of the file's imports only those are made
    that these definitions use, and only of Python's own modules, NumPy and PyTorch.

    Parameters
    ----------
    path : path
        Of a Python file; within an installed package, relative to where that is installed.
    *names : str
        Functions, classes or constants at the file's top level.
    package : str, optional
        Name of an installed distribution.
    **given
        What stands in for other names that the definitions use.

    Returns
    -------
    module
        With the definitions as attributes.

    Raises
    ------
    InvalidInput
        No such file or definition, the file is no Python, or a definition uses a name that is
        neither in the file nor given.
    """
    file = Path(path)
    if package is not None:
        try:
            file = Path(str(metadata.distribution(package).locate_file(str(path))))
        except metadata.PackageNotFoundError:
            raise InvalidInput(
                f"{package} is not installed: pip install --no-deps {package}"
            ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the file is not the caller's
            tree = ast.parse(file.read_text(), str(file))
    except (OSError, SyntaxError, ValueError) as error:
        raise InvalidInput(f"{file} cannot be read as Python: {error}") from error
    bound = {name: statement for statement in _flat(tree.body) for name in _binds(statement)}
    if missing := [name for name in names if name not in bound]:
        raise InvalidInput(f"{file} defines no {', '.join(missing)} at its top level")
    kept, foreign = _needed(names, bound, set(given))
    if foreign:
        raise InvalidInput(
            f"{', '.join(names)} of {file} need {', '.join(sorted(foreign))} from other packages: "
            "give them by name, as they are or something that stands in for them"
        )
    # no import finds a name with a space
    module = ModuleType(f"definitions of {file.name}")
    vars(module).update(given)
    body = [statement for statement in _flat(tree.body) if statement in kept]
    # annotations may name what is not there
    flags = __future__.annotations.compiler_flag
    code = compile(ast.Module(body, []), str(file), "exec", flags, dont_inherit=True)
    sys.modules[module.__name__] = module  # where a dataclass looks up its annotations
    try:
        exec(code, vars(module))
    finally:
        del sys.modules[module.__name__]
    return module


def _flat(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, and those that a `try` or an `if` holds."""
    for statement in statements:
        if isinstance(statement, ast.Try | ast.If):
            yield from _flat([*statement.body, *statement.orelse])
        elif not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
            yield statement


def _binds(statement: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in statement.names]
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        found = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        return [name.id for name in found if isinstance(name.ctx, ast.Store)]
    return []


def _needed(
    names: Iterable[str], bound: dict[str, ast.stmt], given: set[str]
) -> tuple[set[ast.stmt], set[str]]:
    """Statements that define the names and all that they use; names that no statement may bring."""
    kept: set[ast.stmt] = set()
    foreign: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        statement = bound.get(name)
        if name in given or statement is None or statement in kept:
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom) and not _may_import(statement):
            foreign.add(name)
            continue
        kept.add(statement)
        waiting += _uses(statement)
    return kept, foreign


def _may_import(statement: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(statement, ast.ImportFrom):
        modules = [] if statement.level else [statement.module or ""]
    else:
        modules = [alias.name for alias in statement.names]
    return bool(modules) and all(module.partition(".")[0] in _IMPORTED for module in modules)


def _uses(statement: ast.stmt) -> set[str]:
    """Names that a statement reads, those in annotations left out."""
    used: set[str] = set()
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            used.add(node.id)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns"):
                continue
            children = value if isinstance(value, list) else [value]
            waiting += [child for child in children if isinstance(child, ast.AST)]
    return used - set(vars(builtins))
