"""The masses of an integer flow, without any rounding."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from mdsd_opt.problem import TransportProblem
from mdsd_opt.problem.plans.feasibility import exact_support_masses
from mdsd_opt.problem.solution import TransportPlan


def integer_flow_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction] | None:
    """numerators / denominator of each arc, or None unless that plan is exactly feasible."""
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
