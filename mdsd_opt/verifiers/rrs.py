"""Recursive rejection sampling: one draft after another, against what is left of the target."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, IndependentDrafts, WithoutReplacement, WithReplacement
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Decision, Verifier, normalised, positive_part, target_of
from mdsd_opt.verifiers.estimate import Estimate
from mdsd_opt.verifiers.rrs_rates import independent_rate, without_replacement_rate
from mdsd_opt.verifiers.single_draft import accepted

Law = NDArray[Any]


class RecursiveRejection(Verifier):
    r"""Accept X_j with probability min(1, p_j/q_j), else go on with :math:`p_{j+1} \propto (p_j -
    q_j)_+`.

    With replacement q_j = q (SpecInfer's multi-step sampling); without replacement q_j is q without
    the tokens drawn, renormalised [RSD]; for different draft models it is the model of draft j. A
    rejected token has no residual mass left, so no draft is hit later. Lossless for all three, not
    optimal. Cost O(K V) a decision; the rate costs O(K V), without replacement O(V log V) at K = 2
    and beyond that an exact recursion on small vocabularies or an estimate with a standard error.
    """

    name: ClassVar[str] = "rrs"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (
        WithReplacement,
        WithoutReplacement,
        IndependentDrafts,
    )

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        law_of = _draft_laws(problem, exact)
        left: Law | None = target_of(problem, exact)
        zero = problem.exact_target[0] * 0 if exact else 0.0
        accept = np.zeros(drafts.size, dtype=object if exact else np.float64) + zero
        unsettled = zero + 1
        for k, token in enumerate(drafts.tolist()):
            if token < 0 or unsettled <= 0:
                break
            assert left is not None
            q = law_of(k, drafts[:k])
            share = accepted(left[token], q[token])
            rest = normalised(positive_part(left - q))
            if rest is None:  # the two laws agree, so nothing is ever rejected here
                share = zero + 1
            accept[k] = unsettled * share
            unsettled = unsettled * (1 - share)
            left = rest
        return Decision(accept, left if unsettled > 0 else None)

    def acceptance_rate(
        self, problem: TransportProblem, num_samples: int = 200, seed: int = 0
    ) -> float:
        """Pr(some draft is accepted); an `Estimate` where the exact recursion is out of reach.

        Parameters
        ----------
        problem : TransportProblem
        num_samples, seed : int
            Of the Rao-Blackwellised estimate, if one is needed.
        """
        self.check(problem)
        drafts = problem.drafts
        if isinstance(drafts, WithoutReplacement):
            rate, error = without_replacement_rate(
                problem.target, drafts.q, drafts.num_drafts, num_samples, seed
            )
            return rate if error is None else Estimate(rate, error)
        if isinstance(drafts, IndependentDrafts):
            return independent_rate(problem.target, list(drafts.q))
        assert isinstance(drafts, WithReplacement)
        return independent_rate(problem.target, [drafts.q] * drafts.num_drafts)


def _draft_laws(problem: TransportProblem, exact: bool) -> Callable[[int, Law], Law]:
    """(k, tokens drawn before) -> law of draft k."""
    drafts = problem.drafts
    if isinstance(drafts, IndependentDrafts):
        models = [np.array(q, dtype=object) for q in drafts.exact_q] if exact else list(drafts.q)
        return lambda k, drawn: models[k]
    assert isinstance(drafts, (WithReplacement, WithoutReplacement))
    q: Law = np.array(drafts.exact_q, dtype=object) if exact else drafts.q
    if isinstance(drafts, WithReplacement):
        return lambda k, drawn: q

    def without_drawn(k: int, drawn: Law) -> Law:
        rest = q.copy()
        rest[drawn] = Fraction(0) if exact else 0.0
        total = rest.sum()
        result: Law = rest / total if total > 0 else rest
        return result

    return without_drawn


VERIFIER = RecursiveRejection()
