"""Methods by name: the package's, registered and installed ones, ``"module:attribute"``."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from mdsd_opt.base.installed import loaded, plugged_in
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.solvers.method import Method

#: Names of the methods of the package, each the name of its file.
_NAMES = ("subset_selection", "full_lp", "dual_lp", "max_flow", "submodular", "truncated_lp")

_GROUP = "mdsd_opt.solvers"

registered: dict[str, Method] = {}


def methods() -> dict[str, Method]:
    """Methods by name, with what each is for, costs and needs (`str` gives a sentence).

    Those of the package come first, then what is registered or installed.
    """
    return {name: get(name) for name in (*_NAMES, *registered, *plugged_in(_GROUP))}


def get(method: Any) -> Method:
    """Method of a name, of ``"module:attribute"``, or of a function; a `Method` as it is.

    Raises
    ------
    UnknownName
        No such method; the message lists those that exist.
    InvalidInput
        What was given, or what ``"module:attribute"`` names, is no method.
    """
    if isinstance(method, Method) or callable(method):
        return checked(method, "the method")
    if isinstance(method, str):
        if method in registered:
            return registered[method]
        if method in _NAMES:
            return importlib.import_module(f"mdsd_opt.solvers.{method}").METHOD
        if ":" in method:
            return checked(loaded(method), repr(method))
        if method in plugged_in(_GROUP):
            place = plugged_in(_GROUP)[method]
            return checked(loaded(place), f"the installed method {method!r}")
    known = ("auto", *_NAMES, *registered, *plugged_in(_GROUP))
    raise UnknownName.among("method", method, known)


def register(method: Any) -> None:
    """Register a method by its name, which is then known wherever one is taken.

    Parameters
    ----------
    method : Method or callable
        A `Method`, or a function ``solve(problem, **options)`` -> `Found`, whose name is the name.

    Raises
    ------
    InvalidInput
        No method, without a name, or of a name that is taken.
    """
    taken = checked(method, "the method to register")
    if taken.name in (*_NAMES, *registered, *plugged_in(_GROUP)):
        raise InvalidInput(f"there is a method {taken.name!r} already: give this one another name")
    registered[taken.name] = taken


def is_built_in(method: str) -> bool:
    """Whether a method is one of the package's own."""
    return method in _NAMES


def checked(found: Any, given: str) -> Method:
    """The given method, or that of the given function; `InvalidInput` if it is none."""
    if not isinstance(found, Method):
        if not callable(found) or isinstance(found, type):
            raise InvalidInput(
                f"{given} is {found!r:.60}: give a mdsd_opt.solvers.Method, or a function "
                "(problem, **options) -> mdsd_opt.solvers.Found"
            )
        found = Method(solve=found)
    name = found.name
    if not (isinstance(name, str) and name.isidentifier() and name not in ("all", "auto")):
        raise InvalidInput(
            f"{given} has the name {name!r}: give it one of letters, digits and _, other than "
            "'all' and 'auto'"
        )
    try:
        inspect.signature(found.solve).bind(None)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{given} cannot be called with one problem: {error}") from None
    return found
