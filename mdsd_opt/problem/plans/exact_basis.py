"""The exact plan behind a basis of the transport LP.

The basic arcs of a vertex form a forest on tokens and draft sets. A node whose slack is not basic
has its whole mass on its arcs, so peeling off such nodes with one arc left fixes the masses one by
one, in Fractions, whatever rounding the solver had.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from mdsd_opt.problem import TransportProblem
from mdsd_opt.problem.plans.feasibility import exact_support_masses
from mdsd_opt.problem.solution import TransportPlan


def basis_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction] | None:
    """Mass of each arc recomputed from the plan's basis; None if that is no feasible plan."""
    basis = plan.basis
    if basis is None:
        return None
    num_tokens, tokens = problem.vocab_size, plan.tokens.tolist()
    left = [*problem.exact_target, *exact_support_masses(problem, plan)]
    slack = [*basis.token_slacks.tolist(), *basis.support_slacks.tolist()]

    supports = (num_tokens + plan.arc_support).tolist()
    arcs_at: list[set[int]] = [set() for _ in left]
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
        mass = left[node]
        other = supports[arc] if node < num_tokens else tokens[arc]
        arcs_at[other].discard(arc)
        left[node] = Fraction(0)
        left[other] -= mass
        masses[arc] = mass
        if mass < 0 or left[other] < 0:
            return None
        if len(arcs_at[other]) == 1 and not slack[other]:
            leaves.append(other)
    return None if any(arcs_at) else masses
