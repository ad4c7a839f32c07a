"""What numbers of a solver prove: a plan that is feasible, and the best subset of its prices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Flags, Vector
from mdsd_opt.base.arrays import frozen, weighted_count
from mdsd_opt.drafts import SupportLaw
from mdsd_opt.problem import PlanBasis, TransportPlan, TransportProblem, clip_to_marginals
from mdsd_opt.solvers.linear_programmes import TransportNetwork


def feasible_plan(
    problem: TransportProblem, law: SupportLaw, mass: Vector, basis: PlanBasis | None = None
) -> TransportPlan:
    """Plan with the masses of the arcs, clipped to the marginals."""
    plan = TransportPlan(law.tokens, law.offsets, mass, basis=basis)
    return replace(plan, mass=frozen(clip_to_marginals(plan, problem.target, law.mass)))


def even_plan(problem: TransportProblem, law: SupportLaw) -> TransportPlan:
    """Plan that hands the mass of each draft set to its tokens alike, as far as p goes."""
    sizes = np.diff(law.offsets)
    handed = np.repeat(law.mass / np.maximum(sizes, 1), sizes)
    selected = weighted_count(law.tokens, handed, problem.vocab_size)
    share = np.divide(problem.target, selected, out=np.ones_like(selected), where=selected > 0)
    return feasible_plan(problem, law, handed * np.minimum(share, 1.0)[law.tokens])


def ratio_subset(problem: TransportProblem, law: SupportLaw) -> tuple[float, Flags]:
    """Best prefix of the tokens by target over mass of the draft sets they are in, and its cut."""
    inside = weighted_count(law.tokens, np.repeat(law.mass, np.diff(law.offsets)), law.vocab_size)
    ratio = np.divide(problem.target, inside, out=np.full_like(inside, np.inf), where=inside > 0)
    return rounded_subset(problem, law, -ratio)


def on_supports(
    network: TransportNetwork, tuples: NDArray[np.int32], flow: Vector, law: SupportLaw
) -> Vector:
    """Sums of a flow on tuples over the tuples of each draft set, one for each arc of `law`."""
    places = {members: s for s, members in enumerate(law.sets())}
    support_of = np.array([places[tuple(sorted({*row} - {-1}))] for row in tuples.tolist()])
    # Within a set tokens ascend in both, so an arc is found by its set and token.
    vocab_size = network.target.size
    wanted = support_of[network.events] * vocab_size + network.tokens
    arcs = law.arc_support * vocab_size + law.tokens
    return weighted_count(np.searchsorted(arcs, wanted), flow, law.num_arcs)


def evidence(
    problem: TransportProblem,
    law: SupportLaw,
    mass: Vector,
    price: Vector,
    basis: PlanBasis | None,
    optimal: bool,
) -> tuple[TransportPlan, float, Flags]:
    """Plan, upper bound and its subset, from masses of the arcs and prices of the tokens.

    Of a solver that was stopped they are the better of its own and of what takes one pass.
    """
    plan = feasible_plan(problem, law, mass, basis)
    upper, subset = rounded_subset(problem, law, price)
    if not optimal:
        plan = max(plan, even_plan(problem, law), key=lambda x: x.value)
        upper, subset = min((upper, subset), ratio_subset(problem, law), key=lambda x: x[0])
    return plan, upper, subset


def rounded_subset(
    problem: TransportProblem, law: SupportLaw, price: Vector
) -> tuple[float, Flags]:
    """Best level set {price > level} of token prices, and its cut value 1 + P(H) - Q(H).

    A feasible dual point is an average of its level sets, so the best of them is no worse.
    """
    order = np.argsort(-price, kind="stable")
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    inside = np.concatenate([[0.0], np.cumsum(problem.target[order])])
    complete = np.zeros(law.num_supports, dtype=np.int64)  # prefix length that holds the set
    filled = np.flatnonzero(np.diff(law.offsets) > 0)
    if filled.size:
        complete[filled] = np.maximum.reduceat(rank[law.tokens], law.offsets[filled]) + 1
    contained = np.cumsum(weighted_count(complete, law.mass, order.size + 1))
    # A level set ends where the price changes.
    ranked = price[order]  # may be infinite
    ends = np.concatenate([[True], ranked[1:] != ranked[:-1], [True]])
    values = np.where(ends, 1.0 + inside - contained, np.inf)
    length = int(np.argmin(values))
    subset = np.zeros(order.size, dtype=np.bool_)
    subset[order[:length]] = True
    return float(values[length]), subset
