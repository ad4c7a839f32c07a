"""What a claim is, and how one is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mdsd_opt.cddlib_checks.random_trials import Search
from mdsd_opt.cddlib_checks.result import Evidence


@dataclass(frozen=True, slots=True)
class Job:
    """One engine with its arguments, to be run in a child process.

    Where it `decides`, its proof covers all that the jobs after it could show: they are a second
    look, which takes no longer than the proof did.
    """

    title: str
    engine: Callable[..., Evidence]
    arguments: dict[str, Any]
    decides: bool = False


#: From V, K and the draft that was given, if any, to the jobs that settle the claim.
Jobs = Callable[[int, int, Any], list[Job]]


@dataclass(frozen=True, slots=True)
class Conjecture:
    """A claim of the theory, or a false one that the checks must be able to refute.

    Attributes
    ----------
    name, statement, source : str
    status : str
        "theorem", "conjecture" or "false".
    method : str
        The engines that settle it.
    smallest : tuple of int
        The least V and K for which the claim says anything.
    """

    name: str
    statement: str
    source: str
    status: str
    method: str
    jobs: Jobs = field(repr=False)
    smallest: tuple[int, int] = (1, 1)
    search: Search | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        told = ("name", "statement", "source", "status", "method")
        return {name: getattr(self, name) for name in told}


#: All claims, in the order of their declarations.
CONJECTURES: dict[str, Conjecture] = {}


def claim(
    source: str,
    method: str,
    *,
    status: str = "theorem",
    smallest: tuple[int, int] = (1, 1),
    search: Search | None = None,
) -> Callable[[Jobs], Jobs]:
    """Declare a claim: the function lists its jobs, has its name, and states it as docstring."""

    def declared(jobs: Jobs) -> Jobs:
        name, statement = jobs.__name__, " ".join((jobs.__doc__ or "").split())
        CONJECTURES[name] = Conjecture(
            name, statement, source, status, method, jobs, smallest, search
        )
        return jobs

    return declared
