"""Verifiers by name: those of the files in this folder, and those registered or installed.

A file here, or a folder, whose source has a line that begins with ``VERIFIER =`` is a verifier of
the file's name. It is imported when it is asked for.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from typing import Any

from mdsd_opt.base.installed import loaded, plugged_in
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.verifiers.base import Verifier

#: This package, which is also the group of entry points for verifiers.
_PACKAGE = "mdsd_opt.verifiers"

#: Names that come first in lists, in this order; the others follow by name.
_FIRST = (
    "optimal", "naive_target", "single_draft", "rrs", "kseq", "spechub", "greedy",
    "importance_sampling", "ratio_hull", "gumbel", "race", "lp",
)  # fmt: skip

registered: dict[str, Verifier] = {}


def names() -> tuple[str, ...]:
    """Names of all verification algorithms: the package's, then those registered or installed."""
    return (*built_in_names(), *registered, *plugged_in(_PACKAGE))


def batch_verifiers(scheme: str | None = None) -> list[str]:
    """Names of the verifiers that have rates in batches, for these drafts or for any scheme."""
    schemes = SINGLE_MODEL_SCHEMES if scheme is None else (scheme,)
    return [name for name in names() if any(get(name).batch_rates_for(x) for x in schemes)]


def get(verifier: str | Verifier, **options: Any) -> Verifier:
    """Verification algorithm of a name.

    Parameters
    ----------
    verifier : str or Verifier
        A name, ``"module:attribute"``, or a verifier, which is returned as it is.
    **options
        Options of the algorithm, such as ``binned=True`` for ``"optimal"`` or ``size=8`` for
        ``"importance_sampling"``.

    Raises
    ------
    UnknownName
        No such algorithm; the message lists those that exist.
    InvalidInput
        The algorithm has no such option, or what ``"module:attribute"`` names is no verifier.
    """
    found = _found(verifier)
    if not options:
        return found
    try:
        return found.configured(**options)
    except TypeError as error:
        raise InvalidInput(
            f"verifier {found.name!r} does not take {sorted(options)}: {error}"
        ) from None


def register(verifier: Verifier) -> None:
    """Register a verifier by its name, which is then known wherever one is taken.

    Parameters
    ----------
    verifier : Verifier
        An object with a `name` that no other verifier has. Of its methods it needs `decide` and
        `acceptance_rate`. Batches go through it position by position, unless it declares
        `batch_rates`.

    Raises
    ------
    InvalidInput
        No verifier, without a name, or of a name that is taken.
    """
    name = checked(verifier, "the verifier to register").name
    if name in names():
        raise InvalidInput(f"there is a verifier {name!r} already: give this one another name")
    registered[name] = verifier


def _found(verifier: Any) -> Verifier:
    if isinstance(verifier, Verifier):
        return verifier
    known = isinstance(verifier, str) and (
        ":" in verifier or verifier in built_in_names() or verifier in names()
    )
    if not known:
        raise UnknownName.among("verifier", verifier, names())
    if ":" in verifier:
        return checked(loaded(verifier), repr(verifier))
    if verifier in registered:
        return registered[verifier]
    if verifier not in built_in_names():
        return checked(loaded(plugged_in(_PACKAGE)[verifier]), repr(verifier))
    return importlib.import_module(f"{_PACKAGE}.{verifier}").VERIFIER


def checked(found: Any, given: str) -> Verifier:
    """The given verifier; `InvalidInput` if it is none, or has no name or schemes."""
    if not isinstance(found, Verifier):
        kind, of = (
            ("the class", found) if isinstance(found, type) else ("an object of", type(found))
        )
        raise InvalidInput(
            f"{given} is {kind} {of.__name__}: give an object of a class that is derived from "
            "mdsd_opt.verifiers.Verifier"
        )
    name, schemes = getattr(found, "name", None), getattr(found, "schemes", None)
    if not (isinstance(name, str) and name.isidentifier() and name != "all"):
        raise InvalidInput(
            f"{given} has the name {name!r}: give it one of letters, digits and _, other than 'all'"
        )
    if not (isinstance(schemes, tuple) and schemes):
        raise InvalidInput(
            f"{given} does not say for which drafts it is lossless: give it a tuple of draft "
            "schemes in `schemes`"
        )
    return found


@functools.cache
def built_in_names() -> tuple[str, ...]:
    """Names of the verifiers in this folder, from their sources: imports would need numba."""
    folder = importlib.import_module(_PACKAGE).__path__
    found = [entry.name for entry in pkgutil.iter_modules(folder) if _declares_one(entry.name)]
    places = {name: place for place, name in enumerate(_FIRST)}
    return tuple(sorted(found, key=lambda name: (places.get(name, len(places)), name)))


def _declares_one(module: str) -> bool:
    spec = importlib.util.find_spec(f"{_PACKAGE}.{module}")
    source = spec.loader.get_source(spec.name) if spec and spec.loader else None  # type: ignore[attr-defined]
    return "\nVERIFIER = " in (source or "")
