"""The masses of an integer flow, without any rounding."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np

from mdsd_opt.problem import TransportProblem
from mdsd_opt.problem.solution import TransportPlan


def integer_flow_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction] | None:
    """numerators / denominator of each arc, or None unless that plan is exactly feasible."""
    numerators, scale = plan.numerators, plan.denominator
    if numerators is None or numerators.shape != plan.tokens.shape or scale < 1:
        return None
    if numerators.dtype != np.int64 or numerators.min(initial=0) < 0:
        return None

    flow = numerators.tolist()  # Python integers: no sum can overflow
    tokens = plan.tokens.tolist()
    bounds = plan.offsets.tolist()
    by_token = [0] * problem.vocab_size
    for i, x in zip(tokens, flow, strict=True):
        by_token[i] += x
    if any(x > scale * p for x, p in zip(by_token, problem.exact_target, strict=True)):
        return None

    law = problem.drafts.exact_support_law()
    for start, stop in pairwise(bounds):
        # pop: a set that is listed twice gets its mass once
        allowed = law.pop(tuple(sorted(tokens[start:stop])), Fraction(0))
        if sum(flow[start:stop]) > scale * allowed:
            return None
    return [Fraction(x, scale) for x in flow]
