"""Functions that packages ship: how an adapter declares one, and what audits make of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from mdsd_opt.auditing.chain_calls import Caller, chain_of, chain_rule
from mdsd_opt.auditing.definitions import load_definitions
from mdsd_opt.auditing.subject import TreeVerify
from mdsd_opt.base.array_types import Integers, Matrix, Text
from mdsd_opt.drafts import scheme_maker
from mdsd_opt.errors import InvalidInput, MissingExtra
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
