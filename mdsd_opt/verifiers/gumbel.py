"""Gumbel-max list sampling [GLS]: drafts and output race on shared exponentials."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, WithReplacement
from mdsd_opt.drafts.counting import count_power
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Decision, Verifier, positive_part, target_of
from mdsd_opt.verifiers.batch_rates import BatchRates
from mdsd_opt.verifiers.estimate import Estimate
from mdsd_opt.verifiers.gumbel_law import acceptance, joint_masses
from mdsd_opt.verifiers.rejection import draft_of, nothing_accepted, residual_law

Vector = NDArray[np.float64]

DEFAULT_SAMPLES = 2000

#: Terms up to which the rational law is computed.
_MAX_TERMS = 20_000

#: The law given rarer drafts is a small difference of large terms, so Fractions are used.
_RARE = 1e-4

_CHUNK = 1 << 22  # exponentials drawn at a time

#: Exponentials of one sample.
_MAX_CLOCKS = 1 << 26


class GumbelList(Verifier):
    r"""X^k is the first arrival at rates q on clocks k, Y the first at rates p on the earliest.

    With :math:`S_i^k` independent exponentials, :math:`X^k = \arg\min_i S_i^k / q_i` and :math:`Y =
    \arg\min_i \min_k S_i^k / p_i`: the drafts are i.i.d. from q and Y follows p. The method draws
    its drafts itself, so use `simulate`. Not optimal; the acceptance rate is at least
    :math:`\sum_j K / (\sum_i \max(p_i/p_j, q_i/q_j) + (K-1)/p_j)`. Cost O(K V) a sample. Source:
    [GLS].

    For few tokens, about :math:`K V (V+1)^K` up to 20,000, the joint law of drafts and output is
    computed in closed form. Given drafts from elsewhere the output is then drawn from its law given
    these drafts, which is lossless for drafts with replacement.
    """

    name: ClassVar[str] = "gumbel"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (WithReplacement,)

    @property
    def batch_rates(self) -> dict[str, BatchRates]:
        bounds = BatchRates(lambda p, q, counts, seed: gumbel_bounds(p, q, counts), is_bound=True)
        return {"with_replacement": bounds}

    def simulate(
        self, problem: TransportProblem, rng: np.random.Generator, size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw draft tuples and their outputs: tokens of shape (size, K) and (size,)."""
        self.check(problem)
        p, q, k = problem.target, draft_of(problem, exact=False), problem.num_drafts
        if k * p.size > _MAX_CLOCKS:
            raise ProblemTooLarge(
                f"verifier 'gumbel' holds K V exponentials at a time; K={k}, V={p.size} is over "
                f"the limit of {_MAX_CLOCKS:,}: draft fewer tokens or restrict the vocabulary "
                "(top_k, top_p)"
            )
        possible, draftable = np.flatnonzero(p > 0), np.flatnonzero(q > 0)
        drafts = np.empty((size, k), dtype=np.int64)
        output = np.empty(size, dtype=np.int64)
        rows = max(1, _CHUNK // (k * p.size))
        for start in range(0, size, rows):
            stop = min(start + rows, size)
            clocks = rng.standard_exponential((stop - start, k, p.size))
            arrivals = clocks[:, :, draftable] / q[draftable]
            drafts[start:stop] = draftable[arrivals.argmin(axis=2)]
            arrivals = clocks.min(axis=1)[:, possible] / p[possible]
            output[start:stop] = possible[arrivals.argmin(axis=1)]
        return drafts, output

    def acceptance_bound(self, problem: TransportProblem) -> float:
        """The lower bound of [GLS], which is the acceptance rate at K = 1; O(V log V)."""
        self.check(problem)
        return gumbel_bound(problem.target, draft_of(problem, exact=False), problem.num_drafts)

    def acceptance_rate(
        self, problem: TransportProblem, num_samples: int = DEFAULT_SAMPLES, seed: int = 0
    ) -> float:
        """In closed form for few tokens, else an `Estimate` by simulation."""
        self.check(problem)
        p, q, k = problem.target, draft_of(problem, exact=False), problem.num_drafts
        if k == 1:
            return gumbel_bound(p, q, 1)
        if p.size * count_power(p.size + 1, k - 1) <= _MAX_TERMS:
            return min(max(float(acceptance(p.tolist(), q.tolist(), k)), 0.0), 1.0)
        drafts, output = self.simulate(problem, np.random.default_rng(seed), num_samples)
        hits = (drafts == output[:, None]).any(axis=1)
        return Estimate(float(hits.mean()), float(hits.std(ddof=1) / np.sqrt(num_samples)))

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        p, q, k = target_of(problem, exact), draft_of(problem, exact), problem.num_drafts
        if k * p.size * count_power(p.size + 1, k) > _MAX_TERMS:
            raise ProblemTooLarge(
                "verifier 'gumbel' draws its drafts and its output from the same random numbers. "
                f"The law of the output given other drafts has too many terms at V={p.size}, "
                f"K={k}: use its simulate(problem, rng, size), which draws both"
            )
        if not exact and q[drafts].prod() < _RARE:
            rational = self.decide(problem, drafts, exact=True)
            residual = np.asarray(rational.residual, dtype=np.float64)
            return Decision(rational.accept.astype(np.float64), residual)
        masses = joint_masses(p.tolist(), q.tolist(), drafts.tolist())
        law = positive_part(np.array(masses, dtype=p.dtype))
        law = law / law.sum()
        accept = nothing_accepted(drafts, p)
        tokens, first = np.unique(drafts, return_index=True)
        accept[first] = law[tokens]
        hit = law * 0
        hit[tokens] = law[tokens]
        return Decision(accept, residual_law(law, hit))


def gumbel_bound(p: Vector, q: Vector, num_drafts: int) -> float:
    """The bound, with all inner sums from one sort by p/q."""
    return gumbel_bounds(p, q, [num_drafts])[0]


def gumbel_bounds(p: Vector, q: Vector, num_drafts: Iterable[int]) -> list[float]:
    """`gumbel_bound` for several K, from one sort."""
    ratio = np.divide(p, q, out=np.full_like(p, np.inf), where=q > 0)
    order = np.argsort(ratio)
    p, q, ratio = p[order], q[order], ratio[order]
    p_above = np.append(np.cumsum(p[::-1])[::-1], 0.0)
    q_below = np.concatenate([[0.0], np.cumsum(q)])
    j = np.flatnonzero((p > 0) & (q > 0))
    # p_i/p_j is the larger of the two where p_i/q_i >= p_j/q_j
    is_first = np.append(True, ratio[1:] != ratio[:-1])
    place = np.maximum.accumulate(np.where(is_first, np.arange(ratio.size), 0))[j]
    sums = p_above[place] / p[j] + q_below[place] / q[j]
    return [min(float(np.sum(k / (sums + (k - 1) / p[j]))), 1.0) for k in num_drafts]


VERIFIER = GumbelList()
