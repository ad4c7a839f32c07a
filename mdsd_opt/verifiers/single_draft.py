"""Single-draft speculative sampling on the first of the drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from mdsd_opt.base.arrays import Integers, Vector
from mdsd_opt.drafts import DraftScheme, WithReplacement
from mdsd_opt.prefix_search import BatchRates
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Verifier, target_of
from mdsd_opt.verifiers.rejection import accepted, draft_of, nothing_accepted, residual_law
from mdsd_opt.verifiers.verdicts import Decision


class SingleDraft(Verifier):
    r"""Accept X_1 with probability min(1, p/q), else draw from :math:`(p - q)_+`.

    The residual may hit one of the other drafts, so the acceptance rate is
    :math:`\sum \min(p, q) + \sum (p - q)_+ (1 - (1 - q)^{K-1})`. Lossless for drafts with
    replacement, optimal for K = 1. Cost O(V), for the rate and for a decision.
    """

    name: ClassVar[str] = "single_draft"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (WithReplacement,)

    @property
    def batch_rates(self) -> dict[str, BatchRates]:
        return {
            "with_replacement": BatchRates(
                lambda p, q, counts, seed: single_draft_rates(p, q, counts)
            )
        }

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
        p, q = target_of(problem, exact), draft_of(problem, exact)
        accept = nothing_accepted(drafts, p)
        accept[0] = accepted(p[drafts[0]], q[drafts[0]])
        return Decision(accept, residual_law(p, q))

    def acceptance_rate(self, problem: TransportProblem) -> float:
        self.check(problem)
        q = draft_of(problem, exact=False)
        return single_draft_rates(problem.target, q, [problem.num_drafts])[0]


def single_draft_rates(p: Vector, q: Vector, num_drafts: Sequence[int]) -> list[float]:
    """Acceptance rates of single-draft sampling with the residual hits of K - 1 other drafts."""
    overlap = float(np.minimum(p, q).sum())
    above = np.flatnonzero(p > q)
    surplus, missed = p[above] - q[above], np.log1p(-np.minimum(q[above], 1 - 1e-16))
    hits = (float((surplus * np.expm1((k - 1) * missed)).sum()) for k in num_drafts)
    return [min(overlap - hit, 1.0) for hit in hits]


VERIFIER = SingleDraft()
