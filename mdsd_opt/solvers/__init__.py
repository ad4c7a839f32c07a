"""Solvers for the transport problem, one file each, behind one `solve`."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mdsd_opt.base.checked import checked_amount
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.problem import TransportProblem
from mdsd_opt.problem.solution import Solution
from mdsd_opt.solvers.budget import LIMITS
from mdsd_opt.solvers.method import Method

__all__ = ["Method", "exact_optimum", "methods", "solve"]

#: Each is the name of its file.
_NAMES = ("subset_selection", "full_lp", "dual_lp", "max_flow", "submodular", "truncated_lp")


def methods() -> dict[str, Method]:
    """Every method by name, with what it is for, costs and needs (`str` gives a sentence)."""
    return {name: _method(name) for name in _NAMES}


def _method(name: str) -> Method:
    return importlib.import_module(f"mdsd_opt.solvers.{name}").METHOD


def solve(problem: TransportProblem, method: str = "auto", **options: Any) -> Solution:
    """Solve a transport problem.

    Parameters
    ----------
    problem : TransportProblem
    method : str
        A name from `methods`, or "auto", which takes the best available one for the scheme and says
        in ``solution.message`` what it took and why.
    **options
        Options of that method, such as ``backend="cvxpy"`` or ``time_limit=10``.

    Returns
    -------
    Solution

    Raises
    ------
    UnknownName
        No such method.
    ProblemTooLarge
        An exponential method does not fit its budget; the message names one that would.
    """
    for name in LIMITS:
        limit = options.get(name)
        whole = name != "time_limit" and isinstance(limit, int)  # nothing fits one below 0
        if limit is not None and not whole:
            checked_amount(name, limit)
    if method == "auto":
        return _solve_automatically(problem, options)
    if method not in _NAMES:
        raise UnknownName.among("method", method, ["auto", *_NAMES])
    return _run(problem, method, options)


def _run(problem: TransportProblem, name: str, options: dict[str, Any]) -> Solution:
    method = _method(name)
    _require_known(name, options, method.options)
    start = time.perf_counter()
    found = method.solve(problem, **options)
    return Solution.of(found, name, time.perf_counter() - start)


def _solve_automatically(problem: TransportProblem, options: dict[str, Any]) -> Solution:
    from mdsd_opt.solvers.choice import choose

    _require_known("auto", options, LIMITS, "; name a method to give it others")
    choice = choose(problem, options)
    solution = _run(problem, choice.method, dict(choice.limits))
    message = f"auto took {choice.method}: {choice.reason}. {solution.message}"
    return replace(solution, message=message)


def _require_known(
    method: str, options: dict[str, Any], known: Sequence[str], advice: str = ""
) -> None:
    for name in options:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise InvalidInput(
                f"method {method!r} has no option {name!r}. Its options: {listed}{advice}."
            )


def exact_optimum(problem: TransportProblem) -> Any:
    """alpha* as a Fraction and an optimal subset, for schemes with a prefix order."""
    from mdsd_opt.solvers.exact_subset_selection import exact_optimum as compute

    return compute(problem)
