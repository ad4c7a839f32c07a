"""Solvers for the transport problem, one file each, behind one `solve`."""

from __future__ import annotations

import importlib
import inspect
import time
from dataclasses import dataclass, replace
from typing import Any

from mdsd_opt.drafts import PrefixDraftScheme
from mdsd_opt.drafts.fixed_plus import peeled
from mdsd_opt.drafts.product_form import product_form
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solution import Solution

__all__ = ["Method", "exact_optimum", "methods", "solve"]


@dataclass(frozen=True, slots=True)
class Method:
    """What a method is for, what it costs, and what it needs."""

    purpose: str
    cost: str
    needs: str
    exact: bool

    def __str__(self) -> str:
        return f"{self.purpose}. Cost: {self.cost}. Needs: {self.needs}."


_METHODS = {
    "subset_selection": Method(
        purpose="exact optimum and subset at any vocabulary size",
        cost="O(V log V), times about 30 K without replacement",
        needs="a scheme with a prefix order: with or without replacement, greedy, top-K",
        exact=True,
    ),
    "full_lp": Method(
        purpose="the full K-draft transport LP; returns plan and subset",
        cost="about K V^K / K! variables",
        needs="any scheme; backend 'highs' or 'cvxpy'",
        exact=True,
    ),
    "dual_lp": Method(
        purpose="the dual of the transport LP; returns the subset",
        cost="about K V^K / K! rows",
        needs="any scheme; backend 'highs' or 'cvxpy'",
        exact=True,
    ),
    "max_flow": Method(
        purpose="the same network as an integer maximum flow; returns plan and subset",
        cost="about K V^K / K! arcs, larger V than the LPs",
        needs="any scheme",
        exact=True,
    ),
    "submodular": Method(
        purpose="exact optimum without a prefix order, with a proof of the lower bound",
        cost="some ten passes over V for different models; else ten to twenty times V evaluations",
        needs="any scheme; only its containment probabilities are used",
        exact=True,
    ),
    "truncated_lp": Method(
        purpose="the truncated LP of Khisti et al., a lower bound with a bound on its loss",
        cost="O(V log V) and an LP in s^2/2 variables",
        needs="two drafts, from one or two draft models",
        exact=False,
    ),
}


def methods() -> dict[str, Method]:
    """Every method by name, with what it is for, costs and needs (`str` gives a sentence)."""
    return dict(_METHODS)


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
    if method == "auto":
        return _solve_automatically(problem, options)
    if method not in _METHODS:
        raise UnknownName.among("method", method, ["auto", *_METHODS])
    return _run(problem, method, options)


def _run(problem: TransportProblem, method: str, options: dict[str, Any]) -> Solution:
    known = _options_of(method)
    for name in options:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise InvalidInput(f"method {method!r} has no option {name!r}. Its options: {listed}.")
    start = time.perf_counter()
    found = _function(method)(problem, **options)
    return Solution.of(found, method, time.perf_counter() - start)


def _function(method: str) -> Any:
    return importlib.import_module(f"mdsd_opt.solvers.{method}").solve


def _options_of(method: str) -> list[str]:
    parameters = inspect.signature(_function(method)).parameters
    return [name for name in parameters if name != "problem"]


def _solve_automatically(problem: TransportProblem, options: dict[str, Any]) -> Solution:
    """Options are limits that a prefix order has no use for, and that the other methods share."""
    scheme = problem.drafts.scheme
    shared = [name for name in _options_of("full_lp") if name in _options_of("max_flow")]
    for name in options:
        if name not in shared:
            raise InvalidInput(
                f"method 'auto' has no option {name!r}. Its options: {', '.join(shared)}; name a "
                "method to give it others."
            )
    if isinstance(problem.drafts, PrefixDraftScheme):
        reason = f"{scheme} drafts have a prefix order, so sorting is exact at any size"
        return _told(_run(problem, "subset_selection", {}), reason)
    if product_form(peeled(problem.drafts)[1]) is not None:
        limits = {name: options[name] for name in options if name == "time_limit"}
        reason = f"{scheme} drafts have no prefix order; for independent draws any size is fine"
        return _told(_run(problem, "submodular", limits), reason)
    refused = "the transport LP fits the budget"
    for method in ("full_lp", "max_flow", "submodular"):
        try:
            reason = f"{scheme} drafts have no prefix order, and {refused}"
            return _told(_run(problem, method, options), reason)
        except ProblemTooLarge as error:
            refused, last = f"{method} is over the budget", error
    raise last


def _told(solution: Solution, reason: str) -> Solution:
    return replace(solution, message=f"auto took {solution.method}: {reason}. {solution.message}")


def exact_optimum(problem: TransportProblem) -> Any:
    """alpha* as a Fraction and an optimal subset, for schemes with a prefix order."""
    from mdsd_opt.solvers.exact_subset_selection import exact_optimum as compute

    return compute(problem)
