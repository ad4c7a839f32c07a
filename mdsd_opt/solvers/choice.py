"""Which method "auto" takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mdsd_opt.drafts.product_form import product_form
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers import full_lp, max_flow
from mdsd_opt.solvers.budget import LIMITS as LIMITS


@dataclass(frozen=True, slots=True)
class Choice:
    """A method, the limits it has a use for, and why it was chosen."""

    method: str
    limits: Mapping[str, Any]
    reason: str


def choose(problem: TransportProblem, limits: Mapping[str, Any]) -> Choice:
    """The best method for a problem, from its draft scheme and its size alone.

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
