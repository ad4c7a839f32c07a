"""Acceptance by way of the residual: its draw may hit a draft that was not selected."""

from __future__ import annotations

import numpy as np

from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Verifier
from mdsd_opt.verifiers.estimate import Estimate

#: Draft tuples up to which the acceptance rate is enumerated.
MAX_TUPLES = 3000


def with_residual_hits(
    verifier: Verifier, problem: TransportProblem, bound: float, num_samples: int, seed: int
) -> float:
    """Acceptance rate, residual hits included: enumerated where that is feasible, else estimated.

    Parameters
    ----------
    bound : float
        The rate without residual hits.
    num_samples, seed : int
        Draft tuples whose exact probability of a hit is averaged.
    """
    if problem.drafts.count_tuples() <= MAX_TUPLES:
        return min(float(verifier.enumerated_acceptance_rate(problem)), 1.0)
    sample = problem.drafts.sample(np.random.default_rng(seed), num_samples)
    hit = np.zeros(num_samples)
    for n, drafts in enumerate(sample):
        decision = verifier.decide(problem, drafts)
        if decision.residual is not None:
            rejected = max(1.0 - float(decision.accept.sum()), 0.0)
            hit[n] = rejected * decision.residual[np.unique(drafts)].sum()
    error = float(hit.std(ddof=1) / np.sqrt(num_samples))
    return Estimate(min(bound + float(hit.mean()), 1.0), error)
