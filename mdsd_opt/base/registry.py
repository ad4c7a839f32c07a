"""What is known by name: the package's own, what users register, and what is installed.

Verifiers, solvers, draft schemes, tree rules, engines and APIs of servers are each a `Registry`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from mdsd_opt.base.installed import loaded, plugged_in
from mdsd_opt.errors import InvalidInput, UnknownName

T = TypeVar("T")


@dataclass(slots=True)
class Registry(Generic[T]):
    """Objects of one kind by name: those of the package, registered ones, then installed ones.

    Attributes
    ----------
    kind : str
        What they are in messages, such as "verifier".
    group : str
        Entry points of installed packages that are such objects.
    own : callable
        Gives the package's objects by name: each itself, or its ``"module:attribute"``.
    checked : callable
        ``checked(found, given)``: the object as it is kept, or an `InvalidInput` that begins with
        `given`.
    meant : tuple of str
        Names that callers give a meaning of their own, such as "auto".
    registered : dict
    """

    kind: str
    group: str
    own: Callable[[], Mapping[str, Any]]
    checked: Callable[[Any, str], T]
    meant: tuple[str, ...] = ()
    registered: dict[str, T] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """All names, the package's first."""
        return (*self.own(), *self.registered, *plugged_in(self.group))

    def get(self, name: Any) -> T:
        """Object of a name, or of ``"module:attribute"``; else `UnknownName`, `InvalidInput`."""
        if isinstance(name, str):
            if name in self.registered:
                return self.registered[name]
            if name in (own := self.own()):
                return _object_at(own[name]) if isinstance(own[name], str) else own[name]
            place = name if ":" in name else plugged_in(self.group).get(name)
            if place is not None:
                return self.checked(loaded(place), f"the {self.kind} {name!r}")
        raise UnknownName.among(self.kind, name, (*self.meant, *self.names()))

    def register(self, thing: Any) -> None:
        """Keep an object by its `name`; `InvalidInput` if it is none, or its name is taken."""
        found: Any = self.checked(thing, f"the {self.kind} to register")
        self.registered[self.new_name(found.name)] = found

    def new_name(self, name: Any, beside: Iterable[str] = ()) -> str:
        """Name that is valid, and not taken here nor `beside`; else `InvalidInput`."""
        valid = self.valid_name(name, f"the {self.kind} to register")
        if valid in {*self.names(), *beside}:
            raise InvalidInput(
                f"there is a {self.kind} {name!r} already: give this one another name"
            )
        return valid

    def valid_name(self, name: Any, given: str) -> str:
        """Name that may be registered; else `InvalidInput`, which begins with `given`."""
        reserved = ("all", *self.meant)
        if isinstance(name, str) and name.isidentifier() and name not in reserved:
            return name
        raise InvalidInput(
            f"{given} has the name {name!r}: give it one of letters, digits and _, other than "
            f"{' and '.join(map(repr, reserved))}"
        )


@functools.cache
def files_that_declare(attribute: str, package: str, first: tuple[str, ...] = ()) -> dict[str, str]:
    """``"module:attribute"`` by name, of the files of a package with a line ``ATTRIBUTE = ...``.

    Sources are read, not imported, which would take numba. The names of `first` come first.
    """
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    found = [x.name for x in modules if _declares(attribute, f"{package}.{x.name}")]
    places = {name: place for place, name in enumerate(first)}
    found.sort(key=lambda name: (places.get(name, len(places)), name))
    return {name: f"{package}.{name}:{attribute}" for name in found}


def _declares(attribute: str, module: str) -> bool:
    spec = importlib.util.find_spec(module)
    source = spec.loader.get_source(module) if spec and spec.loader else None  # type: ignore[attr-defined]
    return f"\n{attribute} = " in (source or "")


def _object_at(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)
