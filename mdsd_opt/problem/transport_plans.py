"""Transport plans: checks of feasibility, feasible parts, and the exact plan.

The basic arcs of a vertex form a forest on tokens and draft sets. A node whose slack is not basic
has its whole mass on its arcs, so peeling off such nodes with one arc left fixes the masses one by
one, in Fractions, whatever rounding the solver had.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

from mdsd_opt.base.array_types import Floats
from mdsd_opt.base.arrays import weighted_count
from mdsd_opt.base.checked import floats, integers, mask, of_kind
from mdsd_opt.drafts import SupportLaw
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem.solution import PlanBasis, TransportPlan
from mdsd_opt.problem.transport_problem import TransportProblem

Mass = TypeVar("Mass", float, Fraction)

_UNFIT = "the plan's arrays do not fit together"


def read_plan(plan: Any, vocab_size: int) -> TransportPlan:
    """Plan with integers in int64 and masses in float64; `InvalidInput` if parts do not fit."""
    plan = of_kind(plan, TransportPlan, "the plan", "a TransportPlan")
    tokens = integers(plan.tokens, f"{_UNFIT}: tokens")
    offsets = integers(plan.offsets, f"{_UNFIT}: offsets")
    mass = floats(plan.mass, f"{_UNFIT}: mass")
    fit = (
        tokens.ndim == offsets.ndim == 1
        and tokens.shape == mass.shape
        and offsets.size > 0
        and int(offsets[0]) == 0
        and bool((offsets[1:] >= offsets[:-1]).all())  # a difference could overflow
        and tokens.size == int(offsets[-1])
    )
    if not fit:
        raise InvalidInput(_UNFIT)
    if not np.isfinite(mass).all():
        raise InvalidInput("the plan has a mass that is not finite")
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < vocab_size):
        raise InvalidInput("the plan names a token outside the vocabulary")
    numerators = plan.numerators
    if numerators is not None:
        numerators = integers(numerators, f"{_UNFIT}: numerators")
        if numerators.shape != tokens.shape:
            raise InvalidInput(f"{_UNFIT}: numerators has shape {numerators.shape}")
    denominator: Any = plan.denominator
    if not isinstance(denominator, Integral) or denominator < 1:
        raise InvalidInput(f"the plan's denominator is {denominator!r}: give a positive integer")
    basis = _read_basis(plan.basis, tokens.size, vocab_size, offsets.size - 1)
    return TransportPlan(tokens, offsets, mass, basis, numerators, int(denominator))


def _read_basis(basis: Any, num_arcs: int, num_tokens: int, num_supports: int) -> PlanBasis | None:
    if basis is None:
        return None
    basis = of_kind(basis, PlanBasis, "the plan's basis", "a PlanBasis")
    return PlanBasis(
        arcs=mask(basis.arcs, f"{_UNFIT}: basis", num_arcs, "arcs"),
        token_slacks=mask(basis.token_slacks, f"{_UNFIT}: basis", num_tokens, "tokens"),
        support_slacks=mask(basis.support_slacks, f"{_UNFIT}: basis", num_supports, "sets"),
    )


def plan_violations(problem: TransportProblem, plan: TransportPlan, tolerance: float) -> list[str]:
    """Ways in which the plan breaks a constraint of the problem, in words."""
    faults = []
    lowest = plan.mass.min(initial=0.0)
    if lowest < -tolerance:
        faults.append(f"the plan has a negative mass {lowest:.3g}")
    excess = plan.token_mass(problem.vocab_size) - problem.target
    token = int(excess.argmax())
    if excess[token] > tolerance:
        faults.append(f"the plan gives token {token} {excess[token]:.3g} more than the target has")
    excess = plan.support_mass() - support_masses(problem, plan)
    support = int(excess.argmax()) if excess.size else 0
    if excess.size and excess[support] > tolerance:
        members = plan.tokens[plan.offsets[support] : plan.offsets[support + 1]].tolist()
        faults.append(
            f"the plan moves {excess[support]:.3g} more through draft set {members} than the "
            "drafts put there"
        )
    return faults


def support_masses(problem: TransportProblem, plan: TransportPlan) -> Floats:
    """Masses W_S of the plan's draft sets, from the problem, as `taken_masses` from the law."""
    law = problem.drafts.support_law()
    if _same_sets(law, plan):
        return law.mass
    masses = dict(zip(law.sets(), law.mass.tolist(), strict=True))
    return np.array(taken_masses(masses, plan, 0.0), dtype=np.float64)


def exact_support_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction]:
    """Same as `support_masses`, in exact arithmetic."""
    return taken_masses(problem.drafts.exact_support_law(), plan, Fraction(0))


def taken_masses(
    law: dict[tuple[int, ...], Mass], plan: TransportPlan, nothing: Mass
) -> list[Mass]:
    """Mass of each draft set of the plan, removed from the law; `nothing` if it has none.

    So a set that is listed twice, in whatever order, gets its mass once, at its first place.
    """
    tokens, bounds = plan.tokens.tolist(), plan.offsets.tolist()
    return [law.pop(tuple(sorted(tokens[a:b])), nothing) for a, b in pairwise(bounds)]


def _same_sets(law: SupportLaw, plan: TransportPlan) -> bool:
    return np.array_equal(law.offsets, plan.offsets) and np.array_equal(law.tokens, plan.tokens)


def feasible_mass(problem: TransportProblem, plan: TransportPlan) -> Floats:
    """Masses of the plan, each scaled down by the excess of its token or its draft set."""
    return clip_to_marginals(plan, problem.target, support_masses(problem, plan))


def clip_to_marginals(plan: TransportPlan, target: Floats, support_mass: Floats) -> Floats:
    """Masses C(i, S) min(1, p_i / C(i, .), W_S / C(., S)): feasible, and C itself if C is."""
    mass = np.maximum(plan.mass, 0.0)
    arc_support = plan.arc_support
    by_token = weighted_count(plan.tokens, mass, target.size)
    by_support = weighted_count(arc_support, mass, support_mass.size)
    keep_token = _share_kept(target, by_token)
    keep_support = _share_kept(support_mass, by_support)
    return mass * np.minimum(keep_token[plan.tokens], keep_support[arc_support])


def _share_kept(allowed: Floats, used: Floats) -> Floats:
    with np.errstate(over="ignore"):  # of much allowed and next to nothing used
        return np.minimum(1.0, np.divide(allowed, used, out=np.ones(used.shape), where=used > 0))


def feasible_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction]:
    """Exactly feasible mass of each arc: its integers or basis if they hold, else clipped."""
    for route in (integer_flow_masses, basis_masses):
        masses = route(problem, plan)
        if masses is not None:
            return masses
    return clipped_masses(problem, plan)


def clipped_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction]:
    """Masses C(i, S) min(1, p_i / C(i, .), W_S / C(., S)), each taken as the exact dyadic."""
    allowed_masses = exact_support_masses(problem, plan)
    p = problem.exact_target
    bounds = plan.offsets.tolist()
    tokens = plan.tokens.tolist()
    mass = [Fraction(max(x, 0.0)) for x in plan.mass.tolist()]
    by_token = [Fraction(0)] * problem.vocab_size
    for i, x in zip(tokens, mass, strict=True):
        by_token[i] += x
    clipped = []
    for (start, stop), allowed in zip(pairwise(bounds), allowed_masses, strict=True):
        used = sum(mass[start:stop], Fraction(0))
        keep_support = min(Fraction(1), allowed / used) if used else Fraction(0)
        for i, x in zip(tokens[start:stop], mass[start:stop], strict=True):
            clipped.append(x * min(keep_support, p[i] / by_token[i]) if x else x)
    return clipped


def basis_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction] | None:
    """Mass of each arc recomputed from the plan's basis; None if that is no feasible plan."""
    basis = plan.basis
    if basis is None:
        return None
    num_tokens, tokens = problem.vocab_size, plan.tokens.tolist()
    residual = [*problem.exact_target, *exact_support_masses(problem, plan)]
    slack = [*basis.token_slacks.tolist(), *basis.support_slacks.tolist()]

    supports = (num_tokens + plan.arc_support).tolist()
    arcs_at: list[set[int]] = [set() for _ in residual]
    for arc in np.flatnonzero(basis.arcs).tolist():
        arcs_at[tokens[arc]].add(arc)
        arcs_at[supports[arc]].add(arc)
    masses = [Fraction(0)] * len(tokens)
    leaves = [node for node, arcs in enumerate(arcs_at) if len(arcs) == 1 and not slack[node]]
    while leaves:
        node = leaves.pop()
        if len(arcs_at[node]) != 1:
            continue
        arc = arcs_at[node].pop()
        mass = residual[node]
        other = supports[arc] if node < num_tokens else tokens[arc]
        arcs_at[other].discard(arc)
        residual[node] = Fraction(0)
        residual[other] -= mass
        masses[arc] = mass
        if mass < 0 or residual[other] < 0:
            return None
        if len(arcs_at[other]) == 1 and not slack[other]:
            leaves.append(other)
    return None if any(arcs_at) else masses


def integer_flow_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction] | None:
    """Exact masses, numerators / denominator, or None unless that plan is exactly feasible."""
    numerators, scale = plan.numerators, plan.denominator
    if numerators is None or numerators.min(initial=0) < 0:
        return None

    flow = numerators.tolist()  # Python integers: no sum can overflow
    tokens = plan.tokens.tolist()
    bounds = plan.offsets.tolist()
    by_token = [0] * problem.vocab_size
    for i, x in zip(tokens, flow, strict=True):
        by_token[i] += x
    if any(x > scale * p for x, p in zip(by_token, problem.exact_target, strict=True)):
        return None

    allowed_masses = exact_support_masses(problem, plan)
    for (start, stop), allowed in zip(pairwise(bounds), allowed_masses, strict=True):
        if sum(flow[start:stop]) > scale * allowed:
            return None
    return [Fraction(x, scale) for x in flow]
