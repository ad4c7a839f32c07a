"""Loads functions from a file that cannot be imported, and runs the statements they depend on."""

from __future__ import annotations

import ast
import builtins
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import metadata
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mdsd_opt.auditing.file_statements import ANY, IMPORTED, UNTOLD, Statement, Statements, imported
from mdsd_opt.base.foreign import foreign
from mdsd_opt.errors import ForeignFault, InvalidInput

#: Only one file at a time is watched while it runs.
_LOADING = threading.RLock()


def load_definitions(
    path: str | PathLike[str], *names: str, package: str | None = None, **given: Any
) -> ModuleType:
    """Execute some definitions of a file, and the statements they depend on, without the rest.

    They are bound to what running the whole file binds them to. Of the file's top level those
    statements run, unmodified and in order, that bind or may change a name that is needed, and
    those that these need in turn; what cannot be told counts as a change. Annotations are not
    evaluated. Of the imports only those are made that are needed, and only of Python's own
    modules, NumPy and PyTorch.

    Parameters
    ----------
    path : path
        Path of a Python file; within an installed package, relative to where that is installed.
    *names : str
        Functions, classes or constants at the file's top level.
    package : str, optional
        Name of an installed distribution.
    **given
        Replacements of other names that the definitions use.

    Returns
    -------
    module
        Module with the definitions as attributes.

    Raises
    ------
    InvalidInput
        No such file or definition, the file is no Python, or a statement that is needed raises,
        uses a name of another package that is not given, or asks whether one is installed.
    """
    file = _located(path, package)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the file is not the caller's
            tree = ast.parse(file.read_bytes(), str(file))
            statements = Statements(tree, str(file))
    except (OSError, SyntaxError, ValueError) as error:
        raise InvalidInput(f"{file} cannot be read as Python: {error}") from error
    needed = statements.needed(names, given)
    subject = f"{', '.join(names)} of {file}"
    _refuse_foreign(needed, subject)
    # no import finds a name with a space
    module = ModuleType(f"definitions of {file.name}", ast.get_docstring(tree, clean=False))
    vars(module).update(given, __file__=str(file))
    with _imports_watched(module) as refused:
        for statement, decided in needed.items():
            try:
                if UNTOLD in statements.effects[statement]:
                    raise LookupError("it asks what is installed, or for annotations")
                with foreign(subject):
                    exec(statement.code, vars(module))
                    settings = np.geterr()
                np.seterr(**settings)  # what a file sets for itself stays set
                if refused:
                    raise refused[0]
            except Exception as error:
                ended = error.__cause__ if isinstance(error, ForeignFault) else None
                cause = refused[0] if refused else ended or error
                line = _line_of(cause, str(file)) or statement.node.lineno
                raise InvalidInput(
                    f"{subject} hang on line {line}, which cannot be executed "
                    f"({type(cause).__name__}: {cause}): give {_listed(decided)} by name"
                ) from cause
            vars(module).update(given)
    if missing := [name for name in names if not hasattr(module, name)]:
        raise InvalidInput(f"{file} defines no {', '.join(missing)} at its top level")
    return module


def _located(path: str | PathLike[str], package: str | None) -> Path:
    if package is None:
        return Path(path)
    try:
        return Path(str(metadata.distribution(package).locate_file(str(path))))
    except metadata.PackageNotFoundError:
        raise InvalidInput(f"{package} is not installed: pip install --no-deps {package}") from None


def _refuse_foreign(needed: dict[Statement, set[str]], subject: str) -> None:
    """Raise if a needed name is bound by an import from another package."""
    foreign: dict[str, int] = {}
    for one, decided in needed.items():
        if isinstance(one.node, ast.Import | ast.ImportFrom):
            imports = [name for name, package in imported(one.node).items() if not package]
            foreign |= dict.fromkeys(decided if ANY in imports else imports, one.node.lineno)
    if foreign:
        lines = sorted({*foreign.values()})
        raise InvalidInput(
            f"{subject} need {_listed(foreign)} from other packages "
            f"({', '.join(f'line {line}' for line in lines)}): "
            "give them by name, as they are or something that stands in for them"
        )


def _listed(names: Iterable[str]) -> str:
    """Sorted list of the names, without the placeholders."""
    return ", ".join(sorted(name for name in names if name.isidentifier())) or "what it binds"


def _line_of(error: BaseException, path: str) -> int | None:
    """Innermost line of the file that the error comes through."""
    stack = traceback.extract_tb(error.__traceback__)
    return next((at.lineno for at in reversed(stack) if at.filename == path), None)


@contextmanager
def _imports_watched(module: ModuleType) -> Iterator[list[ImportError]]:
    """Refuse imports of other packages, and note each, as the module may catch the error.

    Meanwhile the module is where a dataclass looks up its annotations.
    """
    refused: list[ImportError] = []
    original = builtins.__import__

    def watched(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        if globals is vars(module) and (level or name.partition(".")[0] not in IMPORTED):
            refused.append(ImportError(f"{'.' * level}{name} is of another package"))
            raise refused[-1]
        return original(name, globals, locals, fromlist, level)

    with _LOADING:
        sys.modules[module.__name__] = module
        builtins.__import__ = watched
        try:
            yield refused
        finally:
            builtins.__import__ = original
            del sys.modules[module.__name__]
