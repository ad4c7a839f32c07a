"""Gumbel-max list sampling [GLS]: drafts and output race on shared exponentials."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, WithReplacement
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Decision, Law, Uniforms, Verdict, Verifier, target_of
from mdsd_opt.verifiers.estimate import Estimate

Vector = NDArray[np.float64]

_SAMPLES = 2000
_CHUNK = 1 << 22  # exponentials drawn at a time


class GumbelList(Verifier):
    r"""X^k is the first arrival at rates q on clocks k, Y the first at rates p on the earliest.

    With :math:`S_i^k` independent exponentials, :math:`X^k = \arg\min_i S_i^k / q_i` and :math:`Y =
    \arg\min_i \min_k S_i^k / p_i`. The drafts are i.i.d. from q, and Y follows p, but only
    together with its own drafts: there is no verdict for drafts that were sampled otherwise. Not
    optimal; the acceptance rate is at least
    :math:`\sum_j K / (\sum_i \max(p_i/p_j, q_i/q_j) + (K-1)/p_j)`.
    Source: [GLS]. Cost O(K V) a sample.
    """

    name: ClassVar[str] = "gumbel"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (WithReplacement,)

    def simulate(
        self, problem: TransportProblem, rng: np.random.Generator, size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw draft tuples and their outputs: tokens of shape (size, K) and (size,)."""
        self.check(problem)
        p, q, k = problem.target, problem.drafts.q, problem.num_drafts  # type: ignore[attr-defined]  # checked
        drafts = np.empty((size, k), dtype=np.int64)
        output = np.empty(size, dtype=np.int64)
        with np.errstate(divide="ignore"):
            p_period, q_period = 1.0 / p, 1.0 / q  # infinite for impossible tokens
        rows = max(1, _CHUNK // (k * p.size))
        for start in range(0, size, rows):
            stop = min(start + rows, size)
            clocks = rng.standard_exponential((stop - start, k, p.size))
            drafts[start:stop] = (clocks * q_period).argmin(axis=2)
            output[start:stop] = (clocks.min(axis=1) * p_period).argmin(axis=1)
        return drafts, output

    def acceptance_bound(self, problem: TransportProblem) -> float:
        """The lower bound of [GLS]."""
        self.check(problem)
        return gumbel_bound(problem.target, problem.drafts.q, problem.num_drafts)  # type: ignore[attr-defined]  # checked

    def acceptance_rate(
        self, problem: TransportProblem, num_samples: int = _SAMPLES, seed: int = 0
    ) -> Estimate:
        """Estimated by simulation."""
        drafts, output = self.simulate(problem, np.random.default_rng(seed), num_samples)
        hits = (drafts == output[:, None]).any(axis=1)
        return Estimate(float(hits.mean()), float(hits.std(ddof=1) / np.sqrt(num_samples)))

    def output_law(self, problem: TransportProblem, exact: bool = False) -> Law:
        """The target: min over k of S_i^k is an exponential of rate K, whatever i."""
        self.check(problem)
        return target_of(problem, exact)

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        raise self._no_verdict()

    def _verify(
        self, problem: TransportProblem, tokens: NDArray[np.int64], uniforms: Uniforms
    ) -> Verdict:
        raise self._no_verdict()

    def enumerated_acceptance_rate(self, problem: TransportProblem, exact: bool = False) -> Any:
        raise self._no_verdict()

    def _no_verdict(self) -> InvalidInput:
        return InvalidInput(
            "verifier 'gumbel' draws its drafts and its output from the same random numbers, so it "
            "has no verdict on drafts from elsewhere: use its simulate(problem, rng, size)"
        )


def gumbel_bound(p: Vector, q: Vector, num_drafts: int) -> float:
    """The bound, with all inner sums from one sort by p/q."""
    q_ratio = np.divide(p, q, out=np.full_like(p, np.inf), where=q > 0)
    order = np.argsort(q_ratio, kind="stable")
    p, q, ratio = p[order], q[order], q_ratio[order]
    p_above = np.append(np.cumsum(p[::-1])[::-1], 0.0)
    q_below = np.concatenate([[0.0], np.cumsum(q)])
    j = np.flatnonzero((p > 0) & (q > 0))
    # p_i/p_j is the larger where p_i/q_i >= p_j/q_j
    place = np.searchsorted(ratio, ratio[j], side="left")
    sums = p_above[place] / p[j] + q_below[place] / q[j]
    return min(float(np.sum(num_drafts / (sums + (num_drafts - 1) / p[j]))), 1.0)


VERIFIER = GumbelList()
