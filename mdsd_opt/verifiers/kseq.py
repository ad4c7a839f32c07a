"""K-SEQ of SpecTr: K equal accept tests against a scaled draft law."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, WithReplacement
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Decision, Verifier, normalised, positive_part, target_of
from mdsd_opt.verifiers.single_draft import draft_of

Vector = NDArray[np.float64]


class KSeq(Verifier):
    r"""Accept the first X_j that passes a test of probability min(1, p / (rho q)) [SpecTr].

    A test passes with probability :math:`\beta(\rho) = \sum \min(p/\rho, q)`, so token i comes out
    of them with mass :math:`c \min(p_i/\rho, q_i)`, :math:`c = (1 - (1 - \beta)^K)/\beta`, and the
    residual is p minus that. The least rho for which c <= rho, the root of :math:`1 - (1 - \beta)^K
    = \rho \beta` in [1, K], accepts most. Lossless for drafts with replacement; reaches at least
    :math:`1 - (1 - 1/K)^K` of the optimum. Cost O(V log V).
    """

    name: ClassVar[str] = "kseq"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (WithReplacement,)

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        p, q, k = target_of(problem, exact), draft_of(problem, exact), problem.num_drafts
        rho: Any = acceptance_scale(problem.target, draft_of(problem, False), k)
        if exact:
            rho = _feasible_fraction(Fraction(rho), p, q, k)
        passed = np.minimum(p / rho, q)
        beta = passed.sum()
        zero = p[0] * 0
        accept = np.zeros(drafts.size, dtype=p.dtype) + zero
        if beta <= 0:
            return Decision(accept, p)
        unsettled = zero + 1
        for j, token in enumerate(drafts.tolist()):
            share = passed[token] / q[token] if q[token] > 0 else zero
            accept[j] = unsettled * share
            unsettled = unsettled * (1 - share)
        mass = (1 - (1 - beta) ** k) / beta
        return Decision(accept, normalised(positive_part(p - mass * passed)))

    def acceptance_rate(self, problem: TransportProblem) -> float:
        """1 - (1 - beta)^K at the best rho."""
        self.check(problem)
        assert isinstance(problem.drafts, WithReplacement)
        return kseq_rate(problem.target, problem.drafts.q, problem.num_drafts)


def kseq_rate(p: Vector, q: Vector, num_drafts: int) -> float:
    """Acceptance rate of K-SEQ at its best scale."""
    beta = float(np.minimum(p / acceptance_scale(p, q, num_drafts), q).sum())
    return float(-np.expm1(num_drafts * np.log1p(-min(beta, 1.0 - 1e-16))))


def acceptance_scale(p: Vector, q: Vector, num_drafts: int) -> float:
    """rho*, by bisection; the end of the bracket at which the rule is lossless.

    rho beta(rho) = sum min(p, rho q) grows with rho and 1 - (1 - beta)^K falls, so there is one
    root; both are sums over tokens sorted by p/q.
    """
    drafted = q > 0
    ratio = p[drafted] / q[drafted]
    order = np.argsort(ratio, kind="stable")
    ratio = ratio[order]
    below = np.concatenate([[0.0], np.cumsum(p[drafted][order])])
    above = np.append(np.cumsum(q[drafted][order][::-1])[::-1], 0.0)

    def excess(rho: float) -> float:
        place = int(np.searchsorted(ratio, rho, side="right"))
        reached = float(below[place] + rho * above[place])
        beta = min(reached / rho, 1.0)
        return float(1.0 - (1.0 - beta) ** num_drafts - reached)

    low, high = 1.0, float(num_drafts)
    if excess(low) <= 0:
        return low
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return high
        if excess(middle) > 0:
            low = middle
        else:
            high = middle


def _feasible_fraction(rho: Fraction, p: Any, q: Any, num_drafts: int) -> Fraction:
    """rho, raised by no more than its rounding until the rule is lossless in exact arithmetic."""
    for step in (0, 1, 4, 64, 4096):
        candidate = min(rho * (1 + Fraction(step, 1 << 52)), Fraction(num_drafts))
        beta = np.minimum(p / candidate, q).sum()
        if 1 - (1 - beta) ** num_drafts <= candidate * beta:
            return candidate
    return Fraction(num_drafts)


VERIFIER = KSeq()
