"""Verifiers by name: those of the files in this folder, and those registered or installed.

A file here, or a folder, whose source has a line that begins with ``VERIFIER =`` is a verifier of
the file's name. It is imported when it is asked for.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mdsd_opt.base.registry import Registry, files_that_declare
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.errors import InvalidInput
from mdsd_opt.verifiers.base import Verifier

_PACKAGE = "mdsd_opt.verifiers"

#: Names that come first in lists, in this order; the others follow by name.
_FIRST = (
    "optimal", "naive_target", "single_draft", "rrs", "kseq", "spechub", "greedy",
    "importance_sampling", "ratio_hull", "gumbel", "race", "lp",
)  # fmt: skip


def _checked(found: Any, given: str) -> Verifier:
    if not isinstance(found, Verifier):
        kind, of = (
            ("the class", found) if isinstance(found, type) else ("an object of", type(found))
        )
        raise InvalidInput(
            f"{given} is {kind} {of.__name__}: give an object of a class that is derived from "
            "mdsd_opt.verifiers.Verifier"
        )
    VERIFIERS.valid_name(getattr(found, "name", None), given)
    schemes = getattr(found, "schemes", None)
    if not (isinstance(schemes, tuple) and schemes):
        raise InvalidInput(
            f"{given} does not say for which drafts it is lossless: give it a tuple of draft "
            "schemes in `schemes`"
        )
    return found


VERIFIERS: Registry[Verifier] = Registry(
    "verifier", _PACKAGE, partial(files_that_declare, "VERIFIER", _PACKAGE, _FIRST), _checked
)


def names() -> tuple[str, ...]:
    """Names of all verification algorithms: the package's, then those registered or installed."""
    return VERIFIERS.names()


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
    found = verifier if isinstance(verifier, Verifier) else VERIFIERS.get(verifier)
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
    VERIFIERS.register(verifier)
