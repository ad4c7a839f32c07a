"""Methods by name: of the files in this folder with a ``METHOD``, registered and installed."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from mdsd_opt.base.registry import Registry, files_that_declare
from mdsd_opt.errors import InvalidInput
from mdsd_opt.solvers.method import Method

_PACKAGE = "mdsd_opt.solvers"

#: Names that come first in lists, in this order; the others follow by name.
_FIRST = ("subset_selection", "full_lp", "dual_lp", "max_flow", "submodular", "truncated_lp")


def _checked(found: Any, given: str) -> Method:
    if not isinstance(found, Method):
        if not callable(found) or isinstance(found, type):
            raise InvalidInput(
                f"{given} is {found!r:.60}: give a mdsd_opt.solvers.Method, or a function "
                "(problem, **options) -> mdsd_opt.solvers.Found"
            )
        found = Method(solve=found)
    METHODS.valid_name(found.name, given)
    try:
        inspect.signature(found.solve).bind(None)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{given} cannot be called with one problem: {error}") from None
    return found


METHODS: Registry[Method] = Registry(
    "method", _PACKAGE, partial(files_that_declare, "METHOD", _PACKAGE, _FIRST), _checked, ("auto",)
)


def methods() -> dict[str, Method]:
    """Methods by name, with what each is for, costs and needs (`str` gives a sentence).

    Those of the package come first, then what is registered or installed.
    """
    return {name: METHODS.get(name) for name in METHODS.names()}


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
        return _checked(method, "the method")
    return METHODS.get(method)


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
    METHODS.register(method)
