"""Functions that packages ship: how an adapter declares one, and what audits make of it."""

from __future__ import annotations
import __future__

import ast
import builtins
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from mdsd_opt.auditing.chain_calls import Caller, chain_of, chain_rule
from mdsd_opt.auditing.subject import TreeVerify
from mdsd_opt.base.arrays import Integers, Matrix, Text
from mdsd_opt.base.foreign import foreign
from mdsd_opt.drafts import scheme_maker
from mdsd_opt.errors import ForeignFault, InvalidInput, MissingExtra
from mdsd_opt.trees import Node, Topology

#: Number of calls that show how to read the answers of a function that verifies a chain.
_READ_CALLS = 16


class Drafted(NamedTuple):
    """Trees that an engine is audited on, and the scheme of their drafts."""

    tree: Topology
    scheme: str = "with_replacement"


@dataclass(frozen=True, slots=True)
class Engine:
    """Shipped function, ready to be called: for `audit` itself, `verify` for `audit_tree`.

    Attributes
    ----------
    name : str
    package, version : str
        Name and version of the installed package.
    function : str
        Place of the function in the package.
    rebound : str
        Replacements that were needed for it to run here; empty if nothing was.
    rule : callable
        Function from the root of a drawn tree (`mdsd_opt.decoding.Node`) and a generator to the
        accepted drafts and one more token.
    drafted : Drafted
        The tree of its standard audits, and the name of the scheme.
    """

    name: str
    package: str
    version: str
    function: str
    rebound: str
    rule: TreeVerify
    drafted: Drafted

    def __call__(
        self, target: Matrix, draft: Matrix, drafts: Integers, rng: np.random.Generator
    ) -> int:
        """First token that the engine gives for drafts in one place."""
        root = Node((), ())
        root.target = target
        scheme = scheme_maker(self.drafted.scheme)(draft, len(drafts))
        for child in root.add_drafts(scheme, np.asarray(drafts)):
            child.target = target
        return self.verify(root, rng)[0]

    def verify(self, root: Node, rng: np.random.Generator) -> Text:
        """Tokens that the engine gives for a tree."""
        tokens: Text = self.rule(root, rng)
        return tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A function that a package ships: where it stands, how it is called, and what it verifies.

    Attributes
    ----------
    package : str
        Name of the distribution.
    tested : tuple of str
        Versions of it that the adapter was tested with.
    path : str
        File of the function, from where packages are installed.
    function : str
        Name in the file, dotted in a class.
    made : callable
        Function from this adapter, whose `load` gives the definition, to the verifier of a chain,
        in a form that `mdsd_opt.audit_chain` takes, or of a tree, see `mdsd_opt.audit_tree`.
    takes, library, batch, num_drafts
        Of a chain: options of `mdsd_opt.audit_chain` by which arguments are handed.
    drafted : Drafted or None
        Of a tree: the tree that it is audited on.
    rebound : str
        Replacements that are needed for it to run; empty if nothing is.
    takes_long : bool
        Whether the standard audits take more than ten minutes.
    """

    package: str
    tested: tuple[str, ...]
    path: str
    function: str
    made: Callable[[Adapter], Callable[..., Any]]
    takes: str = "probabilities"
    library: str = "numpy"
    batch: bool = False
    num_drafts: int = 2
    drafted: Drafted | None = None
    rebound: str = ""
    takes_long: bool = False

    def definitions(self, *names: str, path: str = "", **given: Any) -> ModuleType:
        """Definitions of a file of the package, see `mdsd_opt.auditing.load_definitions`."""
        return load_definitions(path or self.path, *names, package=self.package, **given)

    def load(self, **given: Any) -> Any:
        """The definition, unmodified; names of other packages that it needs are given to it."""
        name = self.function.partition(".")[0]
        return getattr(self.definitions(name, **given), name)

    @property
    def place(self) -> str:
        """Dotted place of the function in the package."""
        return f"{self.path.removesuffix('.py').replace('/', '.')}.{self.function}"

    def version(self, any_version: bool = False) -> str:
        """Installed version: one of those tested, or any, with a warning.

        Raises `MissingExtra` where none is, and `InvalidInput` for others without `any_version`.
        """
        try:
            version = metadata.version(self.package)
        except metadata.PackageNotFoundError:
            raise MissingExtra(
                f"{self.package} is not installed: pip install --no-deps "
                f"{self.package}=={self.tested[-1]}"
            ) from None
        if version.partition("+")[0] not in self.tested:
            known = ", ".join(self.tested)
            if not any_version:
                raise InvalidInput(
                    f"{self.package} {version} is installed; its adapter was tested with {known}, "
                    "and may call another version wrongly. Allow that by any_version=True "
                    "(--any-version)."
                )
            warnings.warn(
                f"{self.package} {version} is called as {known}, with which the adapter was "
                "tested: a finding may be the adapter's",
                stacklevel=3,
            )
        return version

    def engine(self, name: str, any_version: bool = False) -> Engine:
        """Engine with its function loaded, ready to be called."""
        version, verify, drafted = self.version(any_version), self.made(self), self.drafted
        if drafted is None:
            rng = np.random.default_rng(0)
            caller = Caller(verify, self.takes, self.library, rng, self.batch)
            verify = chain_rule(name, caller, self.num_drafts, rng, calls=_READ_CALLS)
            drafted = Drafted(chain_of(self.num_drafts))
        return Engine(name, self.package, version, self.place, self.rebound, verify, drafted)


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
