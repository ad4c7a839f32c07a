"""Verification algorithms, one file each, behind one interface."""

from __future__ import annotations

import importlib
from typing import Any

from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.verifiers.base import BatchVerdict, Decision, Uniforms, Verdict, Verifier

__all__ = ["BatchVerdict", "Decision", "Uniforms", "Verdict", "Verifier", "get", "names"]

_NAMES = (
    "optimal",
    "naive_target",
    "single_draft",
    "rrs",
    "kseq",
    "spechub",
    "greedy",
    "importance_sampling",
    "ratio_hull",
    "gumbel",
    "lp",
)


def names() -> tuple[str, ...]:
    """Names of all verification algorithms."""
    return _NAMES


def get(name: str, **options: Any) -> Verifier:
    """A verification algorithm by name.

    Parameters
    ----------
    name : str
    **options
        What the algorithm can be told, such as ``collapsed=True`` for ``"optimal"`` or ``size=8``
        for ``"importance_sampling"``.

    Raises
    ------
    UnknownName
        No such algorithm; the message lists those that exist.
    InvalidInput
        The algorithm has no such option.
    """
    if name not in _NAMES:
        raise UnknownName.among("verifier", name, _NAMES)
    verifier: Verifier = importlib.import_module(f"mdsd_opt.verifiers.{name}").VERIFIER
    if not options:
        return verifier
    try:
        return verifier.configured(**options)
    except TypeError as error:
        raise InvalidInput(f"verifier {name!r} does not take {sorted(options)}: {error}") from None
