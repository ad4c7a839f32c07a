"""Ignore the drafts and sample the target."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Decision, Verifier, target_of
from mdsd_opt.verifiers.estimate import Estimate
from mdsd_opt.verifiers.inclusion import inclusion_probabilities

_SAMPLES = 2000


class NaiveTarget(Verifier):
    r"""Sample p; accepted if the token happens to be drafted.

    Acceptance :math:`\sum_i p_i \Pr(i \in \{X_1..X_K\})`. Lossless for any draft law, optimal for
    drafts that are certain (top-K). Cost O(V); without replacement with K > 2 and a large
    vocabulary the rate is an estimate. Also called naive speculative sampling [SpecInfer].
    """

    name: ClassVar[str] = "naive_target"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (DraftScheme,)

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        p = target_of(problem, exact)
        return Decision(np.zeros(drafts.size, dtype=p.dtype) + p[0] * 0, p)

    def acceptance_rate(self, problem: TransportProblem) -> float:
        included = inclusion_probabilities(problem.drafts)
        if included is not None:
            return min(float(problem.target @ included), 1.0)
        drafts = problem.drafts.sample(np.random.default_rng(0), _SAMPLES)
        hits = np.where(drafts >= 0, problem.target[drafts], 0.0).sum(axis=1)  # all distinct
        return Estimate(float(hits.mean()), float(hits.std(ddof=1) / np.sqrt(_SAMPLES)))


VERIFIER = NaiveTarget()
