"""Ignore the drafts and sample the target."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Decision, Verifier, target_of
from mdsd_opt.verifiers.rejection import nothing_accepted


class NaiveTarget(Verifier):
    r"""Sample p; accepted if the token happens to be drafted.

    Acceptance :math:`\sum_i p_i \Pr(i \in \{X_1..X_K\})`. Lossless for any draft law, optimal for
    drafts that are certain (top-K). Cost O(V), for the rate and for a decision; the rate costs
    about 50 K times as much without replacement at K > 2, and grows with the number of sets for an
    explicit law. Also called naive speculative sampling [SpecInfer].
    """

    name: ClassVar[str] = "naive_target"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (DraftScheme,)

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        p = target_of(problem, exact)
        return Decision(nothing_accepted(drafts, p), p)

    def acceptance_rate(self, problem: TransportProblem) -> float:
        return min(problem.drafts.drafted_mass(problem.target), 1.0)


VERIFIER = NaiveTarget()
