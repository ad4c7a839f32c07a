"""One `solve` for all methods, and which of them a problem is best given to."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

from mdsd_opt.base.checked import checked_amount
from mdsd_opt.base.foreign import foreign
from mdsd_opt.drafts import product_form
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem import Found as Found
from mdsd_opt.problem import Solution, TransportProblem, checked_problem, read_solution
from mdsd_opt.problem import Status as Status
from mdsd_opt.solvers.method import LIMITS, Method
from mdsd_opt.solvers.registry import METHODS, get

#: By how much an acceptance rate may exceed one.
_ROUNDING = 1e-6


def solve(problem: TransportProblem, method: Any = "auto", **options: Any) -> Solution:
    """Solve a transport problem.

    Parameters
    ----------
    problem : TransportProblem
    method : str, Method or callable
        A name from `methods`; or "auto", which takes the best available one for the scheme and says
        in ``solution.message`` what it took and why; or one of your own, by its registered name,
        as ``"module:attribute"``, as a `Method` or as a function ``(problem, **options)`` ->
        `Found`.
    **options
        Options of that method, such as ``backend="cvxpy"`` or ``time_limit=10``.

    Returns
    -------
    Solution

    Raises
    ------
    UnknownName
        No such method.
    InvalidInput
        No such option, or a method of your own that returns something else than `Found`.
    ProblemTooLarge
        An exponential method does not fit its budget; the message names one that would.
    """
    for name in LIMITS:
        limit = options.get(name)
        whole = name != "time_limit" and isinstance(limit, int)  # nothing fits one below 0
        if limit is not None and not whole:
            checked_amount(name, limit)
    checked_problem(problem)
    if isinstance(method, str) and method == "auto":
        return _solve_automatically(problem, options)
    return _run(problem, get(method), options)


def _run(problem: TransportProblem, method: Method, options: dict[str, Any]) -> Solution:
    if not method.takes_any:
        _require_known(method.name, options, method.options)
    for module in method.loads:
        with suppress(ImportError):  # what is missing is named where it is needed
            importlib.import_module(module)
    start, compiled = time.perf_counter(), _seconds_compiled()
    own = method.name in METHODS.own()
    with nullcontext() if own else foreign(f"method {method.name!r}"):
        outcome = method.solve(problem, **options)
    seconds = time.perf_counter() - start - (_seconds_compiled() - compiled)
    if not isinstance(outcome, Found):
        raise InvalidInput(
            f"method {method.name!r} returned a {type(outcome).__name__}: return a "
            "mdsd_opt.solvers.Found"
        )
    if not own:
        _, unreadable = read_solution(outcome, problem.vocab_size)
        if not unreadable and not 0 <= outcome.acceptance_rate <= 1 + _ROUNDING:
            unreadable = [f"acceptance_rate is {outcome.acceptance_rate}"]
        if unreadable:
            told = "; ".join(unreadable)
            raise InvalidInput(f"method {method.name!r} returned a Found that is none: {told}")
    return Solution.of(outcome, method.name, seconds)


def _seconds_compiled() -> float:
    """Seconds this process has spent on compiling kernels; the compiler is not loaded for it."""
    kernels = sys.modules.get("mdsd_opt.base.numba_cache")
    seconds = getattr(kernels, "seconds_compiled", None)  # another thread may be importing it
    return 0.0 if seconds is None else float(seconds())


def _solve_automatically(problem: TransportProblem, options: dict[str, Any]) -> Solution:
    _require_known("auto", options, LIMITS, "; name a method to give it others")
    choice = choose(problem, options)
    solution = _run(problem, get(choice.method), dict(choice.limits))
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


@dataclass(frozen=True, slots=True)
class Choice:
    """A method, the limits that apply to it, and why it was chosen."""

    method: str
    limits: Mapping[str, Any]
    reason: str


def choose(problem: TransportProblem, limits: Mapping[str, Any]) -> Choice:
    """Best method for a problem, from its draft scheme and its size alone.

    ================================================= ================== =================
    drafts                                            method             limits
    ================================================= ================== =================
    with a prefix order                               `subset_selection` none
    independent draws, also beside a fixed set        `submodular`       time_limit
    all others, if the LP fits its budget             `full_lp`          all
    else, if the flow network fits its budget         `max_flow`         all
    else (which refuses what is too large for it too) `submodular`       all
    ================================================= ================== =================

    Parameters
    ----------
    problem : TransportProblem
    limits : mapping
        Some of `LIMITS`.
    """
    from mdsd_opt.solvers import full_lp, max_flow

    scheme = problem.drafts.scheme
    if problem.drafts.prefix_form is not None:
        why = f"{scheme} drafts have a prefix order, so sorting is exact at any size"
        return Choice("subset_selection", {}, why)
    why = f"{scheme} drafts have no prefix order"
    if product_form(problem.drafts.beside_fixed) is not None:
        used = {name: limits[name] for name in limits if name == "time_limit"}
        return Choice("submodular", used, f"{why}; for independent draws any size is fine")
    budget = {name: limits[name] for name in limits if name != "time_limit"}
    if full_lp.needs(problem, **budget).fit:
        return Choice("full_lp", limits, f"{why}, and the transport LP fits the budget")
    if max_flow.needs(problem, **budget).fit:
        return Choice("max_flow", limits, f"{why}, and full_lp is over the budget")
    return Choice("submodular", limits, f"{why}, and max_flow is over the budget")
