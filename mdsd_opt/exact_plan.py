"""The value of a transport plan in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from mdsd_opt.exact_basis import basis_value
from mdsd_opt.exact_flow import integer_flow_value
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solution import TransportPlan


def feasible_value(problem: TransportProblem, plan: TransportPlan) -> Fraction:
    """An exactly feasible value: of the plan's integers or its basis if they hold, else clipped."""
    for route in (integer_flow_value, basis_value):
        value = route(problem, plan)
        if value is not None:
            return value
    return clipped_value(problem, plan)


def clipped_value(problem: TransportProblem, plan: TransportPlan) -> Fraction:
    """Sum of C(i, S) min(1, p_i / C(i, .), W_S / C(., S)), each mass taken as the exact dyadic."""
    law = problem.drafts.exact_support_law()
    p = problem.exact_target
    bounds = plan.offsets.tolist()
    tokens = plan.tokens.tolist()
    mass = [Fraction(max(x, 0.0)) for x in plan.mass.tolist()]
    by_token = [Fraction(0)] * problem.vocab_size
    for i, x in zip(tokens, mass, strict=True):
        by_token[i] += x
    total = Fraction(0)
    for start, stop in pairwise(bounds):
        allowed = law.pop(tuple(sorted(tokens[start:stop])), Fraction(0))
        used = sum(mass[start:stop], Fraction(0))
        if used == 0:
            continue
        keep_support = min(Fraction(1), allowed / used)
        for i, x in zip(tokens[start:stop], mass[start:stop], strict=True):
            if x:
                total += x * min(keep_support, p[i] / by_token[i])
    return total
