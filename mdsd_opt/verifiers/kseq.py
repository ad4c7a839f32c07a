"""K-SEQ of SpecTr: K equal acceptance tests against a scaled draft law."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Flags, Integers, Numbers, Vector
from mdsd_opt.drafts import DraftScheme, WithReplacement, require_short_powers
from mdsd_opt.prefix_search import BatchRates
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Remembered, Verifier, target_of
from mdsd_opt.verifiers.rejection import RatioSums, draft_of, nothing_accepted, residual_law
from mdsd_opt.verifiers.verdicts import Decision


class KSeq(Verifier):
    r"""Accept the first X_j that passes a test of probability min(1, p / (rho q)) [SpecTr].

    A test passes with probability :math:`\beta(\rho) = \sum \min(p/\rho, q)`, so token i comes out
    of them with mass :math:`c \min(p_i/\rho, q_i)`, :math:`c = (1 - (1 - \beta)^K)/\beta`, and the
    residual is p minus that. The least rho for which c <= rho, the root of :math:`1 - (1 - \beta)^K
    = \rho \beta` in [1, K], accepts most. Lossless for drafts with replacement, not optimal, but
    reaches at least :math:`1 - (1 - 1/K)^K` of the optimum. Cost O(V log V), for the rate and for a
    decision.
    """

    name: ClassVar[str] = "kseq"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (WithReplacement,)

    def __init__(self) -> None:
        self._scale = Remembered(_scale_of)
        self._exact_scale = Remembered(self._lossless_scale)

    @property
    def batch_rates(self) -> dict[str, BatchRates]:
        rates = BatchRates(lambda p, q, counts, seed: kseq_rates(p, q, counts), device="kseq")
        return {"with_replacement": rates}

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
        p, q, k = target_of(problem, exact), draft_of(problem, exact), problem.num_drafts
        rho: Any = self._exact_scale(problem) if exact else self._scale(problem)
        passed = np.minimum(p / rho, q)
        beta = passed.sum()
        accept = nothing_accepted(drafts, p)
        if beta <= 0:  # no draft is ever possible under p
            return Decision(accept, p)
        undecided = accept[0] + 1
        for j, token in enumerate(drafts.tolist()):
            share = passed[token] / q[token]
            accept[j] = undecided * share
            undecided = undecided * (1 - share)
        per_test = _some_test_passes(beta, k) / beta
        return Decision(accept, residual_law(p, per_test * passed))

    def _lossless_scale(self, problem: TransportProblem) -> Fraction:
        p, q = target_of(problem, True), draft_of(problem, True)
        return _lossless_fraction(self._scale(problem), p, q, problem.num_drafts)

    def acceptance_rate(self, problem: TransportProblem) -> float:
        """Rate 1 - (1 - beta)^K at the best rho; the residual never hits a draft."""
        self.check(problem)
        return kseq_rates(problem.target, draft_of(problem, False), [problem.num_drafts])[0]


def _scale_of(problem: TransportProblem) -> float:
    return acceptance_scale(problem.target, draft_of(problem, False), problem.num_drafts)


def kseq_rates(p: Vector, q: Vector, num_drafts: Sequence[int]) -> list[float]:
    """Acceptance rates of K-SEQ at its best scale for several K, from one sort."""
    sums, counts = RatioSums(p, q), np.array(num_drafts)
    rho = _best_scales(sums, counts)
    rates: list[float] = _some_test_passes(sums.overlap(rho) / rho, counts).tolist()
    return rates


def acceptance_scale(p: Vector, q: Vector, num_drafts: int) -> float:
    """Best scale rho*, in O(V log V)."""
    return float(_best_scales(RatioSums(p, q), np.array([num_drafts]))[0])


def _best_scales(sums: RatioSums, num_drafts: Integers) -> Vector:
    """Best scale rho* of each K, by bisection to two neighbouring floats; the upper is lossless.

    rho beta(rho) = sum min(p, rho q) grows with rho and 1 - (1 - beta)^K falls, so there is one
    root.
    """

    def is_lossless(rho: Vector) -> Flags:
        reached = sums.overlap(rho)
        lossless: Flags = _some_test_passes(reached / rho, num_drafts) <= reached
        return lossless

    low = np.ones(num_drafts.size)
    high = np.where(is_lossless(low), low, num_drafts)
    while True:
        middle = (low + high) / 2
        between = (low < middle) & (middle < high)
        if not between.any():
            return high
        lossless = is_lossless(middle)
        high = np.where(between & lossless, middle, high)
        low = np.where(between & ~lossless, middle, low)


def _some_test_passes(beta: Any, num_drafts: Any) -> Any:
    """Probability 1 - (1 - beta)^K, without cancellation in floating point."""
    if isinstance(beta, Fraction):
        require_short_powers([beta], num_drafts)
        return 1 - (1 - beta) ** num_drafts
    with np.errstate(divide="ignore"):  # beta = 1: the logarithm is -inf, as it should be
        return -np.expm1(num_drafts * np.log1p(-np.minimum(beta, 1.0)))


def _lossless_fraction(scale: float, p: Numbers, q: Numbers, num_drafts: int) -> Fraction:
    """Scale rho, raised by little more than its rounding until the rule is exactly lossless."""
    for step in (0, 1, 4, 64, 4096):
        rho = min(Fraction(scale) * (1 + Fraction(step, 1 << 52)), Fraction(num_drafts))
        beta = np.minimum(p / rho, q).sum()
        if _some_test_passes(beta, num_drafts) <= rho * beta:
            return rho
    return Fraction(num_drafts)


VERIFIER = KSeq()
