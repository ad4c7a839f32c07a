"""Submodular minimisation: the optimum where no order of the tokens holds an optimal subset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.checked import checked_amount, checked_tolerance
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.drafts.fixed_plus import split_fixed
from mdsd_opt.drafts.product_form import ProductForm, product_form
from mdsd_opt.problem import TransportProblem
from mdsd_opt.problem.lower_bounds.boxes import BoxCover
from mdsd_opt.problem.lower_bounds.orders import OrderMixture
from mdsd_opt.problem.solution import Found, Status
from mdsd_opt.solvers import budget
from mdsd_opt.solvers.budget import Needs
from mdsd_opt.solvers.method import Method

Vector = NDArray[np.float64]

#: Subset, lower bound on min P(H) - Q(H), its proof, facts of the run.
Outcome = tuple[NDArray[np.bool_], float, BoxCover | OrderMixture, dict[str, Any]]

#: Evaluations of the containment oracle that the general routine may be estimated to need.
DEFAULT_MAX_VARIABLES = 1_000_000

#: Orders along which the general routine is estimated to evaluate Q; seldom more than twenty.
_ORDERS = 100


def solve(
    problem: TransportProblem,
    *,
    tolerance: float = 1e-9,
    max_tiles: int = 20_000,
    time_limit: float | None = None,
    max_variables: int = DEFAULT_MAX_VARIABLES,
    max_bytes: int = budget.DEFAULT_MAX_BYTES,
) -> Found:
    r"""Optimum :math:`1 + \min_H [P(H) - Q(H)]` for any Q; -Q is submodular for every draft law.

    Drafts from different models, and mixtures of such, also beside a fixed set: branch and bound
    over the point :math:`(q_1(H), .., q_K(H))` with chain bounds, any V. Usually some ten passes
    over the vocabulary. Every other scheme: Wolfe's minimum-norm point, from the containment oracle
    alone, at moderate V; the LPs and `max_flow` take longer steps but need the law of the draft
    sets listed.

    Parameters
    ----------
    problem : TransportProblem
    tolerance : float
        Largest gap between the bounds.
    max_tiles : int
        Tiles after which the branch and bound stops with the bounds it has.
    time_limit : float, optional
        In seconds; the bounds found so far are returned.
    max_variables, max_bytes : int
        Budget of the general routine: evaluations of Q, estimated as those along 100 orders.

    Returns
    -------
    Found
        With the subset and a proof of the lower bound that `certify` recomputes; no plan.

    Raises
    ------
    ProblemTooLarge
        The general routine does not fit the budget.
    """
    checked_tolerance("tolerance", tolerance)
    checked_amount("max_tiles", max_tiles)
    limits = Limits(tolerance, max_tiles, time_limit, max_variables, max_bytes)
    subset, lower, proof, stats = smallest_difference(problem, problem.target, limits)
    upper = problem.cut_value(subset)
    lower = min(1.0 + lower, upper)
    done = upper - lower <= tolerance * (1 + 1e-6) + 1e-14
    return Found(
        acceptance_rate=upper,
        lower_bound=lower,
        upper_bound=upper,
        status=Status.OPTIMAL if done else Status.LIMIT,
        subset=subset,
        proof=proof,
        message=_MESSAGES[type(proof)],
        stats=stats,
    )


_MESSAGES = {
    BoxCover: "branch and bound over (q_1(H), .., q_K(H)) with chain bounds",
    OrderMixture: "minimum-norm point of the base polytope (Fujishige, Wolfe)",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop; see `solve`."""

    tolerance: float = 1e-9
    max_tiles: int = 20_000
    time_limit: float | None = None
    max_variables: int = DEFAULT_MAX_VARIABLES
    max_bytes: int = budget.DEFAULT_MAX_BYTES


def smallest_difference(problem: TransportProblem, masses: Vector, limits: Limits) -> Outcome:
    """Minimise masses(H) - Q(H) over the H that hold all tokens that are always drafted.

    Parameters
    ----------
    problem : TransportProblem
        Q, and what errors speak of.
    masses : ndarray, shape (V,)
        Non-negative; the target, or a multiple of it.
    limits : Limits

    Raises
    ------
    ProblemTooLarge
        The general routine does not fit the budget.
    """
    fixed, drafts = split_fixed(problem.drafts)
    p = masses.copy()
    p[fixed] = 0.0  # drafted anyway
    form = product_form(drafts)
    if form is None:
        subset, lower, proof, stats = _by_orders(problem, p, drafts, limits)
    else:
        subset, lower, proof, stats = _by_boxes(p, form, limits)
    subset[fixed] = True
    return subset, float(masses[fixed].sum()) + lower, proof, stats


METHOD = Method(
    purpose="exact optimum without a prefix order, with a proof of the lower bound",
    cost="some ten passes over V for different models; else ten to twenty times V evaluations",
    needs="any scheme; only its containment probabilities are used",
    exact=True,
    solve=solve,
)


def _by_boxes(p: Vector, form: ProductForm, limits: Limits) -> Outcome:
    from mdsd_opt.solvers.draft_boxes import search

    found = search(p, form, limits.tolerance, limits.max_tiles, limits.time_limit)
    stats = {"tiles": found.tiles, "proof_tiles": len(found.cover.low)}
    return found.subset, found.lower, found.cover, stats


def _by_orders(
    problem: TransportProblem, p: Vector, drafts: DraftScheme, limits: Limits
) -> Outcome:
    from mdsd_opt.solvers.min_norm_point import min_norm_point

    Needs(
        method="submodular (minimum-norm point)",
        problem=problem,
        variables=_ORDERS * p.size,
        num_bytes=24 * _ORDERS * p.size,
        max_variables=limits.max_variables,
        max_bytes=limits.max_bytes,
        lists_draft_sets=False,
    ).require()
    empty = drafts.containment(np.zeros(p.size, dtype=np.bool_))

    def along(order: NDArray[np.int64]) -> Vector:
        inside = np.concatenate([[0.0], np.cumsum(p[order])])
        values: Vector = inside - (drafts.prefix_containment(order) - empty)
        return values

    limit = max(100, 50 * p.size)
    found = min_norm_point(along, p.size, limits.tolerance, limit, limits.time_limit)
    subset = np.zeros(p.size, dtype=np.bool_)
    subset[found.prefix] = True
    stats = {"evaluations": found.evaluations, "proof_orders": len(found.orders)}
    return subset, found.lower - empty, OrderMixture(found.orders, found.weights), stats
