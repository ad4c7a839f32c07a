"""Is a transport plan feasible, and what is left of it once it is made so?"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import SupportLaw
from mdsd_opt.problem import TransportProblem
from mdsd_opt.problem.solution import TransportPlan, weighted_count


def plan_violations(problem: TransportProblem, plan: TransportPlan, tolerance: float) -> list[str]:
    """Ways in which the plan breaks a constraint of the problem, in words."""
    if not _arrays_fit(plan):
        return ["the plan's arrays do not fit together"]
    if not np.isfinite(plan.mass).all():
        return ["the plan has a mass that is not finite"]
    if plan.tokens.size and not (plan.tokens.min() >= 0 and plan.tokens.max() < problem.vocab_size):
        return ["the plan names a token outside the vocabulary"]
    found = []
    lowest = plan.mass.min(initial=0.0)
    if lowest < -tolerance:
        found.append(f"the plan has a negative mass {lowest:.3g}")
    excess = plan.token_mass(problem.vocab_size) - problem.target
    token = int(excess.argmax())
    if excess[token] > tolerance:
        found.append(f"the plan gives token {token} {excess[token]:.3g} more than the target has")
    excess = plan.support_mass() - support_masses(problem, plan)
    support = int(excess.argmax()) if excess.size else 0
    if excess.size and excess[support] > tolerance:
        members = plan.tokens[plan.offsets[support] : plan.offsets[support + 1]].tolist()
        found.append(
            f"the plan moves {excess[support]:.3g} more through draft set {members} than the "
            "drafts put there"
        )
    return found


def _arrays_fit(plan: TransportPlan) -> bool:
    tokens, offsets, mass = plan.tokens, plan.offsets, plan.mass
    return (
        tokens.ndim == offsets.ndim == mass.ndim == 1
        and tokens.dtype.kind == offsets.dtype.kind == "i"
        and offsets.size > 0
        and int(offsets[0]) == 0
        and bool((np.diff(offsets) >= 0).all())
        and tokens.size == mass.size == int(offsets[-1])
    )


def support_masses(problem: TransportProblem, plan: TransportPlan) -> NDArray[np.float64]:
    """W_S of the plan's draft sets, from the problem; 0 for sets that are never drafted.

    A set listed twice gets its mass once, at its first place.
    """
    law = problem.drafts.support_law()
    if _same_sets(law, plan):
        return law.mass
    masses = dict(zip(law.sets(), law.mass.tolist(), strict=True))
    bounds = plan.offsets.tolist()
    tokens = plan.tokens.tolist()
    result = [masses.pop(tuple(sorted(tokens[a:b])), 0.0) for a, b in pairwise(bounds)]
    return np.array(result, dtype=np.float64)


def _same_sets(law: SupportLaw, plan: TransportPlan) -> bool:
    return np.array_equal(law.offsets, plan.offsets) and np.array_equal(law.tokens, plan.tokens)


def feasible_mass(problem: TransportProblem, plan: TransportPlan) -> NDArray[np.float64]:
    """The plan's masses, each scaled down by what its token or its draft set exceeds."""
    return clip_to_marginals(plan, problem.target, support_masses(problem, plan))


def clip_to_marginals(
    plan: TransportPlan, target: NDArray[np.float64], support_mass: NDArray[np.float64]
) -> NDArray[np.float64]:
    """C(i, S) min(1, p_i / C(i, .), W_S / C(., S)): feasible, and C itself if C is."""
    mass = np.maximum(plan.mass, 0.0)
    arc_support = plan.arc_support
    by_token = weighted_count(plan.tokens, mass, target.size)
    by_support = weighted_count(arc_support, mass, support_mass.size)
    keep_token = _share_kept(target, by_token)
    keep_support = _share_kept(support_mass, by_support)
    clipped: NDArray[np.float64] = mass * np.minimum(
        keep_token[plan.tokens], keep_support[arc_support]
    )
    return clipped


def _share_kept(allowed: NDArray[np.float64], used: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.minimum(1.0, np.divide(allowed, used, out=np.ones(used.shape), where=used > 0))
