"""Ignore the drafts and sample the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from mdsd_opt.base.arrays import Integers, Vector
from mdsd_opt.drafts import DraftScheme, TopKDrafts, inclusion_masses
from mdsd_opt.prefix_search import BatchRates
from mdsd_opt.problem import TransportProblem, checked_problem
from mdsd_opt.verifiers.base import Verifier, optimal_rates, target_of
from mdsd_opt.verifiers.rejection import nothing_accepted
from mdsd_opt.verifiers.verdicts import Decision


class NaiveTarget(Verifier):
    r"""Sample p; the token is accepted if it happens to be drafted.

    Acceptance :math:`\sum_i p_i \Pr(i \in \{X_1..X_K\})`. Lossless for any draft law, optimal for
    drafts that are certain (top-K). Cost O(V), for the rate and for a decision; the rate costs
    about 50 K times as much without replacement at K > 2, and grows with the number of sets for an
    explicit law. Also called naive speculative sampling [SpecInfer].
    """

    name: ClassVar[str] = "naive_target"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (DraftScheme,)

    @property
    def batch_rates(self) -> dict[str, BatchRates]:
        return {
            "with_replacement": BatchRates(_mass_with_replacement),
            "without_replacement": BatchRates(
                lambda p, q, counts, seed: inclusion_masses(q, p, counts)
            ),
            "greedy": BatchRates(_mass_greedy),
            **optimal_rates([TopKDrafts]),  # it reaches the optimum of drafts that are certain
        }

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
        p = target_of(problem, exact)
        return Decision(nothing_accepted(drafts, p), p)

    def acceptance_rate(self, problem: TransportProblem) -> float:
        return min(checked_problem(problem).drafts.drafted_mass(problem.target), 1.0)


def _mass_with_replacement(p: Vector, q: Vector, counts: list[int], seed: int) -> Sequence[float]:
    """Target mass of K independent drafts."""
    missed = np.log1p(-np.minimum(q, 1 - 1e-16))
    return [-float((p * np.expm1(k * missed)).sum()) for k in counts]


def _mass_greedy(p: Vector, q: Vector, counts: list[int], seed: int) -> Sequence[float]:
    """Target mass of the K - 1 likeliest tokens and one of the rest."""
    likeliest = TopKDrafts(q, max(counts)).always_drafted
    rates = []
    for k in counts:
        fixed = likeliest[: k - 1]
        rest = q.copy()
        rest[fixed] = 0.0
        total = rest.sum()
        drawn = float((p * rest).sum()) / total if total > 0 else 0.0
        rates.append(float(p[fixed].sum()) + drawn)
    return rates


VERIFIER = NaiveTarget()
