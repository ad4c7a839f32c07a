"""Functions of files that cannot be imported: what is not there has stand-ins."""

from __future__ import annotations
import __future__

import ast
import builtins
import sys
import traceback
import warnings
from importlib import metadata
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from mdsd_opt.base.foreign import foreign
from mdsd_opt.errors import ForeignFault, InvalidInput

#: Packages that are imported: Python's own and these.
_IMPORTED = frozenset(sys.stdlib_module_names) | {"numpy", "torch"}

#: Annotations are not evaluated.
_FLAGS = __future__.annotations.compiler_flag


def load_definitions(
    path: str | PathLike[str], *names: str, package: str | None = None, **given: Any
) -> ModuleType:
    """Execute a file without the packages that it imports.

    Python's own modules, NumPy and PyTorch are imported. All other imports succeed as well, and
    bind stand-ins, whose attributes and results are stand-ins: a decorator hands its function back
    as it is, a base class adds nothing. To use one in any other way is an error, in the file and
    in the calls of its functions after, so that no answer hangs on what is not there. What another
    package would have done to the file's own objects is not done. Annotations are not evaluated.

    Parameters
    ----------
    path : path
        Path of a Python file; within an installed package, relative to where that is installed.
    *names : str
        Functions, classes or constants that the file has to define.
    package : str, optional
        Name of an installed distribution.
    **given
        What names of the file are bound to instead.

    Returns
    -------
    module
        Module that the file makes.

    Raises
    ------
    InvalidInput
        No such file or definition, the file is no Python, or a statement raises or hangs on a
        stand-in; the message has its line.
    """
    file = _located(path, package)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the file is not the caller's
            tree = ast.parse(file.read_bytes(), str(file))
            codes = [
                compile(ast.Module([node], []), str(file), "exec", _FLAGS, dont_inherit=True)
                for node in tree.body
                if not isinstance(getattr(node, "value", None), ast.Constant)
                or not isinstance(node, ast.Expr)
            ]
    except (OSError, SyntaxError, ValueError) as error:
        raise InvalidInput(f"{file} cannot be read as Python: {error}") from error
    # no import finds a name with spaces, under which a dataclass looks up its annotations
    module = ModuleType(f"definitions of {file}", ast.get_docstring(tree, clean=False))
    absent = _Absent(given)
    own = {**vars(builtins), "__import__": absent.imported}
    vars(module).update(given, __file__=str(file), __builtins__=own)
    sys.modules[module.__name__] = module
    try:
        with foreign(str(file)):
            for code in codes:
                exec(code, vars(module))
                vars(module).update(given)
            settings = np.geterr()
        np.seterr(**settings)  # what a file sets for itself stays set
    except Exception as error:
        cause = (isinstance(error, ForeignFault) and error.__cause__) or error
        stack = traceback.extract_tb(cause.__traceback__)
        line = next((at.lineno for at in reversed(stack) if at.filename == str(file)), "?")
        raise InvalidInput(
            f"{file} hangs on line {line}, which cannot be executed ({type(cause).__name__}: "
            f"{cause}): give what it needs by name"
        ) from cause
    finally:
        absent.is_loading = False
        sys.modules.pop(module.__name__, None)
    if missing := [name for name in names if name not in vars(module)]:
        raise InvalidInput(f"{file} defines no {', '.join(missing)} at its top level")
    for name in names:
        if isinstance(vars(module)[name], _StandIn):
            vars(module)[name]()
    return module


def _located(path: str | PathLike[str], package: str | None) -> Path:
    if package is None:
        return Path(path)
    try:
        return Path(str(metadata.distribution(package).locate_file(str(path))))
    except metadata.PackageNotFoundError:
        raise InvalidInput(f"{package} is not installed: pip install --no-deps {package}") from None


class _Absent:
    """Packages that are not imported; `is_loading` while the file that asks for them runs."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given, self.is_loading = given, True

    def imported(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        """Module of an import, in the place of Python's `__import__`."""
        if not level and name.partition(".")[0] in _IMPORTED:
            return __import__(name, globals, locals, fromlist, level)
        if "*" in (fromlist or ()):
            raise ImportError(f"which names {'.' * level}{name} binds is not known")
        return _StandIn("." * level + (name if fromlist else name.partition(".")[0]), self)


class _Base:
    """Base of a class with a base that is not there."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__()


class _StandIn:
    """Something of a package that is not imported."""

    def __init__(self, name: str, absent: _Absent) -> None:
        self._stands_for, self._absent = name, absent

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{self._stands_for} is not there, and so has no {name}")
        return self._absent.given.get(name, _StandIn(f"{self._stands_for}.{name}", self._absent))

    def _refused(self, *_: Any) -> NoReturn:
        raise InvalidInput(
            f"{self._stands_for} of another package is needed: give it, or what uses it, by the "
            "name that it has in the file, as it is or something that stands in for it"
        )

    def _made(self, *given: Any, **named: Any) -> Any:
        """What a call gives as the file is run: of a decorator, what it decorates."""
        if not self._absent.is_loading:
            self._refused()
        decorates = len(given) == 1 and not named and callable(given[0])
        return given[0] if decorates else _StandIn(f"{self._stands_for}(...)", self._absent)

    def _of_types(self, *types: Any) -> _StandIn:
        return self if self._absent.is_loading else self._refused()

    def _is(self, other: Any) -> bool:
        if other is self or isinstance(other, type) or type(other).__module__ == "typing":
            return other is self  # as annotations are told apart
        return self._refused()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        absent = [base for base in bases if isinstance(base, _StandIn)]
        return (_Base,) if absent[0] is self else ()

    __call__ = _made
    __getitem__ = __or__ = __ror__ = _of_types
    __bool__ = __len__ = __iter__ = __contains__ = __index__ = __float__ = __enter__ = _refused
    __lt__ = __le__ = __gt__ = __ge__ = _refused
    __eq__ = _is
    __instancecheck__ = __subclasscheck__ = _refused
    __hash__ = object.__hash__
