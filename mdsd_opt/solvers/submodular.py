r"""Submodular minimisation, for schemes where no order of the tokens has an optimal prefix.

Either branch and bound over the masses that an optimal subset has under each draft model, or the
minimum-norm point of a base polytope, by Wolfe's algorithm (Fujishige; Wolfe 1976): for a
submodular F with F(empty) = 0, the level set {x <= 0} of the minimum-norm point x of
:math:`B(F) = \{x : x(H) \le F(H),\; x(V) = F(V)\}` minimises F, and :math:`\sum_i \min(x_i, 0)` is
its minimum (Fujishige). A linear function is minimised over B(F) by the greedy rule, in n
evaluations of F along one order, so a point is kept as a mixture of orders. Every iterate gives
both bounds: the best level set above, :math:`\sum \min(x, 0)` below, which is what a level-set
integral of the Lovasz extension comes to.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Vector
from mdsd_opt.base.checked import checked_amount, checked_tolerance
from mdsd_opt.drafts import DraftScheme, ProductForm, product_form, split_fixed
from mdsd_opt.problem import (
    BoxCover,
    Found,
    OrderMixture,
    Status,
    TileBound,
    TransportProblem,
    tile_bound,
)
from mdsd_opt.solvers.method import DEFAULT_MAX_BYTES, Method, Needs

#: Subset, lower bound on min P(H) - Q(H), its proof, facts of the run.
Outcome = tuple[NDArray[np.bool_], float, BoxCover | OrderMixture, dict[str, Any]]

#: Most evaluations of the containment oracle that the general routine may be estimated to need.
DEFAULT_MAX_VARIABLES = 1_000_000

#: Number of orders along which Q is estimated to be evaluated; seldom more than twenty.
_ORDERS = 100

#: Weights below this are removed from the mixture.
_NEGLIGIBLE = 1e-13


def solve(
    problem: TransportProblem,
    *,
    tolerance: float = 1e-9,
    max_tiles: int = 20_000,
    time_limit: float | None = None,
    max_variables: int = DEFAULT_MAX_VARIABLES,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Found:
    r"""Find the optimum :math:`1 + \min_H [P(H) - Q(H)]` for any Q; -Q is submodular for every law.

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
        Limit in seconds; the bounds found so far are returned.
    max_variables, max_bytes : int
        Budget of the general routine: evaluations of Q, estimated as those along 100 orders.

    Returns
    -------
    Found
        Result with the subset and a proof of the lower bound that `certify` recomputes; no plan.

    Raises
    ------
    ProblemTooLarge
        The general routine does not fit the budget.
    """
    checked_tolerance("tolerance", tolerance)
    checked_amount("max_tiles", max_tiles)
    limits = SearchLimits(tolerance, max_tiles, time_limit, max_variables, max_bytes)
    subset, lower, proof, stats = smallest_difference(problem, problem.target, limits)
    upper = problem.cut_value(subset)
    lower = min(1.0 + lower, upper)
    done = upper - lower <= tolerance * (1 + 1e-6) + 1e-14
    return Found(
        acceptance_rate=upper if done else lower,
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
class SearchLimits:
    """Limits at which the search stops; see `solve`."""

    tolerance: float = 1e-9
    max_tiles: int = 20_000
    time_limit: float | None = None
    max_variables: int = DEFAULT_MAX_VARIABLES
    max_bytes: int = DEFAULT_MAX_BYTES


def smallest_difference(problem: TransportProblem, masses: Vector, limits: SearchLimits) -> Outcome:
    """Minimise masses(H) - Q(H) over the H that hold all tokens that are always drafted.

    Masses, shape (V,), are not negative: the target, or a multiple of it. Q is the problem's, of
    which errors speak: `ProblemTooLarge` where the general routine does not fit the budget.
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
    name="submodular",
    purpose="exact optimum without a prefix order, with a proof of the lower bound",
    cost="some ten passes over V for different models; else ten to twenty times V evaluations",
    needs="any scheme; only its containment probabilities are used",
    exact=True,
    solve=solve,
)


def _by_orders(
    problem: TransportProblem, p: Vector, drafts: DraftScheme, limits: SearchLimits
) -> Outcome:
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

    def along(order: Integers) -> Vector:
        inside = np.concatenate([[0.0], np.cumsum(p[order])])
        return inside - (drafts.prefix_containment(order) - empty)

    limit = max(100, 50 * p.size)
    minimum = min_norm_point(along, p.size, limits.tolerance, limit, limits.time_limit)
    subset = np.zeros(p.size, dtype=np.bool_)
    subset[minimum.prefix] = True
    stats = {"evaluations": minimum.evaluations, "proof_orders": len(minimum.orders)}
    return subset, minimum.lower - empty, OrderMixture(minimum.orders, minimum.weights), stats


@dataclass(frozen=True, slots=True, eq=False)
class MinNormPoint:
    """Best level set with its value, the lower bound, and the mixture of orders that proves it.

    `value` and `lower` are bounds on min F, `prefix` the members of the best set; the orders, shape
    (m, n), have weights, shape (m,); `evaluations` are the orders along which F was evaluated.
    """

    value: float
    lower: float
    prefix: Integers
    orders: Integers
    weights: Vector
    evaluations: int


def min_norm_point(
    along: Callable[[Integers], Vector],
    size: int,
    tolerance: float,
    max_evaluations: int,
    time_limit: float | None,
) -> MinNormPoint:
    """Minimise a submodular F of `size` elements, until the bounds are as close as the tolerance.

    ``along(order)`` gives F of the prefixes of an order, the empty one included, shape (size + 1,).
    """
    deadline = np.inf if time_limit is None else time.perf_counter() + time_limit
    best, prefix = 0.0, np.empty(0, dtype=np.int64)
    lower, mixture = -np.inf, (np.empty((0, size), np.int64), np.empty(0))
    orders: list[Integers] = []
    points = np.empty((0, size))
    weights = np.empty(0)
    x = np.zeros(size)
    evaluations = 0
    while True:
        order = np.argsort(x, kind="stable")
        curve = along(order)
        evaluations += 1
        j = int(np.argmin(curve))
        if curve[j] < best:
            best, prefix = float(curve[j]), order[:j].copy()
        vertex = np.empty(size)
        vertex[order] = np.diff(curve)
        if not orders:
            orders, points, weights = [order], vertex[None], np.ones(1)
            x = vertex
        else:
            known = (np.abs(points - vertex).max(axis=1) <= 1e-15).any()
            step = x - vertex  # its own length counts: near the end both may be tiny
            improves = x @ step > 1e-15 * np.sqrt(float(x @ x) * float(step @ step))
            if known or not improves:
                break
            orders.append(order)
            points = np.vstack([points, vertex])
            weights = np.append(weights, 0.0)
            orders, points, weights = _to_corral(orders, points, weights)
            x = weights @ points
        reached = float(np.minimum(x, 0.0).sum())
        if reached > lower:
            lower, mixture = reached, (np.array(orders), weights.copy())
        if best - lower <= tolerance or evaluations >= max_evaluations:
            break
        if time.perf_counter() > deadline:
            break
    return MinNormPoint(best, min(lower, best), prefix, *mixture, evaluations)


def _to_corral(
    orders: list[Integers], points: Vector, weights: Vector
) -> tuple[list[Integers], Vector, Vector]:
    """Run Wolfe's minor cycle: drop points until the nearest point of their span is inside them."""
    while True:
        target = _affine_weights(points)
        if (target > _NEGLIGIBLE).all():
            return orders, points, target
        falling = target <= _NEGLIGIBLE
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(falling, weights / (weights - target), np.inf)
        step = min(float(np.nanmin(steps)), 1.0)
        weights = (1.0 - step) * weights + step * target
        stay = weights > _NEGLIGIBLE
        if stay.all():  # rounding: drop the one that was to fall
            stay[int(np.nanargmin(steps))] = False
        orders = [order for order, keep in zip(orders, stay, strict=True) if keep]
        points, weights = points[stay], weights[stay]
        weights = weights / weights.sum()
        if len(orders) == 1:
            return orders, points, np.ones(1)


def _affine_weights(points: Vector) -> Vector:
    """Weights, summing to one, of the point nearest to the origin in the span of the points.

    They are computed from the points themselves: their products would square the distance of two
    that are close. The shortest point has what the others leave of one, so that the least weights
    are not rounded.
    """
    base = int(np.argmin((points * points).sum(axis=1)))
    rest = np.arange(len(points)) != base
    affine = np.empty(len(points))
    affine[rest] = np.linalg.lstsq((points[rest] - points[base]).T, -points[base], rcond=None)[0]
    affine[base] = 1.0 - affine[rest].sum()
    return affine


def _by_boxes(p: Vector, form: ProductForm, limits: SearchLimits) -> Outcome:
    """Split the tile of the least bound until it comes within tolerance of the best subset."""
    tolerance = limits.tolerance
    deadline = np.inf if limits.time_limit is None else time.perf_counter() + limits.time_limit
    best, subset = 0.0, np.zeros(p.size, dtype=np.bool_)
    open_tiles: list[tuple[float, int, Vector, Vector, TileBound]] = []
    closed: list[tuple[Vector, Vector]] = []
    lower_closed = 0.0  # the empty subset belongs to no tile in particular
    count = 0

    def visit(low: Vector, high: Vector) -> None:
        nonlocal best, subset, lower_closed, count
        count += 1
        bound = tile_bound(p, form, low, high)
        if bound is None:
            closed.append((low, high))
            return
        if bound.value < best:
            best, subset = float(bound.value), bound.subset
        if bound.lower >= best - tolerance:
            closed.append((low, high))
            lower_closed = min(lower_closed, float(bound.lower))
        else:
            heapq.heappush(open_tiles, (float(bound.lower), count, low, high, bound))

    size = len(form.q)
    visit(np.zeros(size), np.ones(size))
    while open_tiles and open_tiles[0][0] < best - tolerance:
        if count >= limits.max_tiles or time.perf_counter() > deadline:
            break
        _, _, low, high, bound = heapq.heappop(open_tiles)
        r = int(np.argmax(bound.high - bound.low))
        cut = float(bound.low[r] + bound.high[r]) / 2
        for side_low, side_high in _halves(low, high, r, cut):
            visit(side_low, side_high)
    closed += [(low, high) for _, _, low, high, _ in open_tiles]
    lower = min([lower_closed, best, *(bound for bound, *_ in open_tiles)])
    cover = BoxCover(np.array([low for low, _ in closed]), np.array([high for _, high in closed]))
    return subset, lower, cover, {"tiles": count, "proof_tiles": len(closed)}


def _halves(low: Vector, high: Vector, r: int, cut: float) -> list[tuple[Any, Any]]:
    below, above = high.copy(), low.copy()
    below[r] = above[r] = cut
    return [(low, below), (above, high)]
