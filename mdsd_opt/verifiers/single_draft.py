"""Single-draft speculative sampling on the first of the drafts."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, WithReplacement
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Decision, Verifier, normalised, positive_part, target_of


class SingleDraft(Verifier):
    r"""Accept X_1 with probability min(1, p/q), else draw from :math:`(p - q)_+`.

    The residual may hit one of the other drafts, so the acceptance rate is
    :math:`\sum \min(p, q) + \sum (p - q)_+ (1 - (1 - q)^{K-1})`. Lossless for drafts with
    replacement, optimal for K = 1. Cost O(V).
    """

    name: ClassVar[str] = "single_draft"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (WithReplacement,)

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        p, q = target_of(problem, exact), draft_of(problem, exact)
        accept = np.zeros(drafts.size, dtype=p.dtype) + p[0] * 0
        accept[0] = accepted(p[drafts[0]], q[drafts[0]])
        return Decision(accept, normalised(positive_part(p - q)))

    def acceptance_rate(self, problem: TransportProblem) -> float:
        self.check(problem)
        assert isinstance(problem.drafts, WithReplacement)
        p, q = problem.target, problem.drafts.q
        overlap = float(np.minimum(p, q).sum())
        hit = 1.0 - (1.0 - q) ** (problem.num_drafts - 1)
        return min(overlap + float(np.maximum(p - q, 0.0) @ hit), 1.0)


def draft_of(problem: TransportProblem, exact: bool) -> NDArray[Any]:
    """q of drafts with or without replacement, as float64 or as Fractions."""
    drafts: Any = problem.drafts
    return np.array(drafts.exact_q, dtype=object) if exact else drafts.q


def accepted(p: Any, q: Any) -> Any:
    """min(1, p/q) for one token; zero where p is, whatever q."""
    if p >= q:
        return p * 0 + (1 if p > 0 else 0)
    return p / q


VERIFIER = SingleDraft()
