"""All errors that the package raises on purpose.

Each one is also the builtin a Python user would catch (`ValueError`, `ImportError`, ...), and each
message says what was given, what is wrong with it, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MdsdError(Exception):
    """Base of every error raised by mdsd_opt."""


class InvalidInput(MdsdError, ValueError):
    """An argument has the wrong shape, type or range."""


class InvalidDistribution(InvalidInput):
    """Probabilities or logits that do not describe a distribution."""


class UnknownName(InvalidInput):
    """A method, verifier, scheme, backend or conjecture that does not exist."""

    @classmethod
    def among(cls, kind: str, given: object, known: Iterable[str]) -> UnknownName:
        """Build the error that lists what exists and guesses what was meant."""
        names = sorted(known)
        close = difflib.get_close_matches(str(given), names, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return cls(f"unknown {kind} {given!r}.{hint} Known: {', '.join(names)}.")


class ProblemTooLarge(MdsdError, ValueError):
    """An exponential method was asked for a size that does not fit the budget."""


class UnsupportedScheme(InvalidInput):
    """A method or verifier was given a draft scheme it is not valid for."""


class SolverError(MdsdError, RuntimeError):
    """A numerical solver refused the problem or failed on it; its own words are in the message."""


class UnreadableFile(MdsdError, ValueError):
    """A file that is missing, broken, or not what it should be."""


class MissingExtra(MdsdError, ImportError):
    """An optional dependency is not installed."""

    @classmethod
    def of(cls, package: str, extra: str, purpose: str) -> MissingExtra:
        """Build the error with the `pip install` line that mends it."""
        return cls(f"{purpose} needs {package}, which is not installed: {install_line(extra)}")


def install_line(extra: str) -> str:
    """Command that installs an extra, whether the package came from a wheel or a checkout."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("mdsd-opt") or []
    except PackageNotFoundError:  # it was never installed
        lines = []
    marked = [line.replace('"', "'").partition(";") for line in lines]
    needed = [name.strip() for name, _, marker in marked if f"extra == '{extra}'" in marker]
    if not needed:
        return f"pip install '.[{extra}]' in the folder of mdsd-opt"
    return " ".join(["pip install", *(f"'{name}'" for name in needed)])


class WorkerDied(MdsdError, RuntimeError):
    """A worker process of an engine ended before its work was done."""


class ServerError(MdsdError, ConnectionError):
    """A server that is not there, refuses, does not answer in time, or speaks another language."""


class ForeignFault(InvalidInput):
    """Code that is not ours did something else than answer, so that nothing can be said of it."""
