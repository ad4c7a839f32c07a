"""Single-draft speculative sampling on the first of the drafts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, WithReplacement
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Decision, Verifier, target_of
from mdsd_opt.verifiers.rejection import accepted, draft_of, nothing_accepted, residual_law

Vector = NDArray[np.float64]


class SingleDraft(Verifier):
    r"""Accept X_1 with probability min(1, p/q), else draw from :math:`(p - q)_+`.

    The residual may hit one of the other drafts, so the acceptance rate is
    :math:`\sum \min(p, q) + \sum (p - q)_+ (1 - (1 - q)^{K-1})`. Lossless for drafts with
    replacement, optimal for K = 1. Cost O(V), for the rate and for a decision.
    """

    name: ClassVar[str] = "single_draft"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (WithReplacement,)

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        p, q = target_of(problem, exact), draft_of(problem, exact)
        accept = nothing_accepted(drafts, p)
        accept[0] = accepted(p[drafts[0]], q[drafts[0]])
        return Decision(accept, residual_law(p, q))

    def acceptance_rate(self, problem: TransportProblem) -> float:
        self.check(problem)
        assert isinstance(problem.drafts, WithReplacement)
        return single_draft_rate(problem.target, problem.drafts.q, problem.num_drafts)


def single_draft_rate(p: Vector, q: Vector, num_drafts: int) -> float:
    """Acceptance rate of single-draft sampling with the residual hits of K - 1 other drafts."""
    overlap = float(np.minimum(p, q).sum())
    hit = 1.0 - (1.0 - q) ** (num_drafts - 1)
    return min(overlap + float(np.maximum(p - q, 0.0) @ hit), 1.0)


VERIFIER = SingleDraft()
