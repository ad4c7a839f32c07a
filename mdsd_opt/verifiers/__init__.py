"""Verification algorithms, one file each, behind one interface."""

from __future__ import annotations

import importlib

from mdsd_opt.errors import UnknownName
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


def get(name: str) -> Verifier:
    """A verification algorithm by name.

    Raises
    ------
    UnknownName
        No such algorithm; the message lists those that exist.
    """
    if name not in _NAMES:
        raise UnknownName.among("verifier", name, _NAMES)
    verifier: Verifier = importlib.import_module(f"mdsd_opt.verifiers.{name}").VERIFIER
    return verifier
