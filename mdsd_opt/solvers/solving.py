"""One `solve` for all methods, those by name, and which of them a problem is best given to."""

from __future__ import annotations

import importlib
import inspect
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mdsd_opt.base.checked import check_truth, checked_amount, checked_tolerance, of_kind
from mdsd_opt.base.foreign import foreign, stopped_after
from mdsd_opt.base.long_runs import told_after
from mdsd_opt.base.registry import Registry, files_that_declare
from mdsd_opt.drafts import product_form
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, SolverError
from mdsd_opt.problem import Found as Found
from mdsd_opt.problem import Solution, TransportProblem, certify, checked_problem, read_solution
from mdsd_opt.problem import Status as Status
from mdsd_opt.solvers.method import LIMITS, Method

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


#: By how much an acceptance rate may exceed one.
_ROUNDING = 1e-6


#: Bounds this close meet, unless the caller has another tolerance; and what rounding may add.
_TOLERANCE, _ULPS = 1e-9, 1e-14

#: Seconds of a solution without a limit after which a line tells of it.
_LONG = 5.0

#: Size V K below which methods of ours that take no limit, which are polynomial, take no second.
_QUICK = 1_000_000


def solve(
    problem: TransportProblem,
    method: Any = "auto",
    *,
    tolerance: float | None = None,
    time_limit: float | None = None,
    verbose: bool = False,
    warm_start: Solution | None = None,
    **options: Any,
) -> Solution:
    """Solve a transport problem.

    Parameters
    ----------
    problem : TransportProblem
    method : str, Method or callable
        A name from `methods`; or "auto", which takes the best available one for the scheme and says
        in ``solution.message`` what it took and why; or one of your own, by its registered name,
        as ``"module:attribute"``, as a `Method` or as a function ``(problem, **options)`` ->
        `Found`.
    tolerance : float, optional
        Distance of the bounds up to which a solution is OPTIMAL, 1e-9 by default. Methods that
        approach the optimum step by step stop there; CVXPY's get it as their own tolerance.
    time_limit : float, optional
        Seconds, in which the programme is built, too; then the status is LIMIT, and the bounds are
        the best that were proven. Without one, a line on stderr tells of a wait of more than five
        seconds. A method of your own that takes no ``time_limit`` is stopped in the main thread of
        a POSIX system, when it next runs a line of Python: a call of compiled code that does not
        return, and other threads, cannot be interrupted.
    verbose : bool
        Show the log of HiGHS or CVXPY on stdout.
    warm_start : Solution, optional
        Solution of a neighbouring problem, for a method of your own that takes one; those of the
        package do not.
    **options
        Options of that method, such as ``backend="cvxpy"``.

    Returns
    -------
    Solution
        Status OPTIMAL only if its bounds are as close as the tolerance. For a method of your own
        they are those that its evidence proves, where these are closer than what it claims.

    Raises
    ------
    UnknownName
        No such method.
    InvalidInput
        The method does not take an option, those above included, and the message lists those that
        it takes; or a method of your own returns something else than `Found`.
    ProblemTooLarge
        An exponential method does not fit its budget; the message names one that would.
    SolverError
        A solver failed, or a method of your own was stopped at the limit.
    """
    check_truth(verbose=verbose)
    if tolerance is not None:
        options["tolerance"] = checked_tolerance("tolerance", tolerance)
    options |= {} if time_limit is None else {"time_limit": time_limit}
    options |= {"verbose": True} if verbose else {}
    options |= {} if warm_start is None else {"warm_start": warm_start}
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
    own, limit = method.name in METHODS.own(), options.get("time_limit")
    tolerance = options.get("tolerance", _TOLERANCE)
    if not method.takes_any:
        ours = () if own else ("time_limit", "tolerance")  # hold for what a user wrote
        options = {x: options[x] for x in options if x not in ours or x in method.options}
        _require_known(method.name, options, method.options)
    for module in method.loads:
        with suppress(ImportError):  # what is missing is named where it is needed
            importlib.import_module(module)
    start, compiled = time.perf_counter(), _seconds_compiled()
    subject = f"method {method.name!r}"
    quick = own and "time_limit" not in method.options
    quick = quick and problem.vocab_size * problem.num_drafts < _QUICK
    waits = limit is None and not quick
    with told_after(_LONG, _waits(problem, method)) if waits else nullcontext():
        if own:
            outcome = method.solve(problem, **options)
        else:
            grace = 1.0 if "time_limit" in options else 0.0  # it may look at the clock itself
            last = None if limit is None else limit + grace
            with foreign(subject), stopped_after(last, subject):
                outcome = method.solve(problem, **options)
    seconds = time.perf_counter() - start - (_seconds_compiled() - compiled)
    of_kind(outcome, Found, f"what method {method.name!r} returns", "a mdsd_opt.solvers.Found")
    if not own:
        _, unreadable = read_solution(outcome, problem.vocab_size)
        if not unreadable and not 0 <= outcome.acceptance_rate <= 1 + _ROUNDING:
            unreadable = [f"acceptance_rate is {outcome.acceptance_rate}"]
        if unreadable:
            told = "; ".join(unreadable)
            raise InvalidInput(f"method {method.name!r} returned a Found that is none: {told}")
        left = None if limit is None else max(0.0, limit - seconds)
        outcome = _proven(problem, outcome, left)
    gap = outcome.upper_bound - outcome.lower_bound
    if outcome.status is Status.OPTIMAL and not gap <= tolerance * (1 + _ROUNDING) + _ULPS:
        outcome = replace(outcome, status=Status.CONVERGED)
    return Solution.of(outcome, method.name, seconds, _plan_by(problem, outcome))


def _proven(problem: TransportProblem, found: Found, seconds: float | None) -> Found:
    """What a user's method found, with the bounds that its evidence proves, if these are closer.

    Claims that the evidence contradicts stay, for a certificate to find.
    """
    try:
        with stopped_after(seconds, "the certificate"):
            proof = certify(problem, Solution.of(found, "", 0.0))
    except (SolverError, ProblemTooLarge):
        return found
    if not proof.valid and found.lower_bound > proof.lower:
        return found
    lower = max(found.lower_bound, min(float(proof.lower), found.upper_bound))
    upper = min(found.upper_bound, max(float(proof.upper), found.lower_bound))
    return replace(found, lower_bound=lower, upper_bound=max(lower, upper))


def _plan_by(problem: TransportProblem, found: Found) -> str:
    """Method that lists the draft sets, where these are few enough to be worth counting."""
    from mdsd_opt.solvers import full_lp

    few = problem.vocab_size <= 2500 and problem.num_drafts <= 64
    return "full_lp" if found.plan is None and few and full_lp.needs(problem).fit else ""


def _waits(problem: TransportProblem, method: Method) -> str:
    size = f"V={problem.vocab_size:,}, K={problem.num_drafts:,}"
    ends = ": with a time_limit it ends with bounds" if "time_limit" in method.options else ""
    return f"mdsd_opt: {method.name} is still at work on {size}{ends}"


def _seconds_compiled() -> float:
    """Seconds this process has spent on compiling kernels; the compiler is not loaded for it."""
    kernels = sys.modules.get("mdsd_opt.base.numba_cache")
    seconds = getattr(kernels, "seconds_compiled", None)  # another thread may be importing it
    return 0.0 if seconds is None else float(seconds())


def _solve_automatically(problem: TransportProblem, options: dict[str, Any]) -> Solution:
    known = (*LIMITS, "tolerance", "verbose")
    _require_known("auto", options, known, "; name a method to give it others")
    choice = choose(problem, {name: options[name] for name in LIMITS if name in options})
    method = get(choice.method)
    others = {x: options[x] for x in known[len(LIMITS) :] if x in options and x in method.options}
    solution = _run(problem, method, {**choice.limits, **others})
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
