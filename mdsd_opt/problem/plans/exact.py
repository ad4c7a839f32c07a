"""A transport plan in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from mdsd_opt.problem import TransportProblem
from mdsd_opt.problem.plans.exact_basis import basis_masses
from mdsd_opt.problem.plans.exact_flow import integer_flow_masses
from mdsd_opt.problem.plans.feasibility import exact_support_masses
from mdsd_opt.problem.solution import TransportPlan


def feasible_value(problem: TransportProblem, plan: TransportPlan) -> Fraction:
    """Value of `feasible_masses`."""
    return sum(feasible_masses(problem, plan), Fraction(0))


def feasible_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction]:
    """Exactly feasible mass of each arc: the plan's integers or its basis if they hold, else
    clipped."""
    for route in (integer_flow_masses, basis_masses):
        masses = route(problem, plan)
        if masses is not None:
            return masses
    return clipped_masses(problem, plan)


def clipped_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction]:
    """C(i, S) min(1, p_i / C(i, .), W_S / C(., S)), each mass taken as the exact dyadic."""
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
