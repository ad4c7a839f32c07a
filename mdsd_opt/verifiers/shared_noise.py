r"""Verifiers whose drafts and output race on the same exponentials: drawn, and in closed form.

The output Y arrives at time t. The clock shows :math:`p_j t` for it if it is token j of this clock,
and :math:`p_i t` plus a fresh exponential for every other token, which has arrived in the race of q
by time :math:`v t` with probability :math:`1 - e^{-t c_i(v)}`, :math:`c_i(v) = (q_i v - p_i)_+`.
Sums of these are piecewise linear in v, and integrals over t rational in p and q.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Integers, Vector
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.prefix_search import BatchRates
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Verifier, positive_part, target_of
from mdsd_opt.verifiers.rejection import decision_by_law, draft_of
from mdsd_opt.verifiers.verdicts import Decision, Estimate

#: Sum of c exp(-r t) as {r: c}, in floats or Fractions.
ExponentialSum = dict[Any, Any]


def first_on_clock(
    p: Sequence[Any], q: Sequence[Any], drafts: Collection[int], output: int | None
) -> ExponentialSum:
    """Probability that these are the first of q on a clock, given Y there; None: on another."""
    one = p[0] * 0 + 1
    others = [i for i in drafts if i != output]
    rivals = [i for i, x in enumerate(q) if x > 0 and i != output and i not in drafts]
    own = None if output is None or q[output] == 0 else p[output] / q[output]
    is_last = output in drafts
    start, stop = (own, None) if is_last else (0 * one, own)
    if not rivals and stop is None:
        return {0 * one: one}
    total: ExponentialSum = {}
    for size in range(len(others) + 1):  # the last of the drafts arrives before the first rival
        for early in combinations(others, size):
            sign = (-1) ** size * one
            if is_last:  # the others have arrived before the output
                waits = (q[i] * start - p[i] for i in (*early, *rivals))
                add(total, sum((c for c in waits if c > 0), 0 * one), sign)
            for rate, c in _arrivals(p, q, early, rivals, start, stop).items():
                add(total, rate, -sign * c)
    return total


def _arrivals(
    p: Sequence[Any],
    q: Sequence[Any],
    early: Collection[int],
    rivals: Collection[int],
    start: Any,
    stop: Any,
) -> ExponentialSum:
    """Integral over v of C'(v) t exp(-t (C(v) + R(v))), C of `early`, R of `rivals`."""
    total: ExponentialSum = {}
    if not early:
        return total
    rate = slope = steep = 0 * start
    low = start
    for bend, i in sorted((p[i] / q[i], i) for i in (*early, *rivals)):
        if stop is not None and bend >= stop:
            break
        if bend > low:
            _add_piece(total, rate, rate := rate + steep * (bend - low), slope, steep)
            low = bend
        rate += max(q[i] * start - p[i], 0 * start)
        steep += q[i]
        slope += q[i] if i in early else 0
    _add_piece(total, rate, None if stop is None else rate + steep * (stop - low), slope, steep)
    return total


def _add_piece(total: ExponentialSum, left: Any, right: Any, slope: Any, steep: Any) -> None:
    if slope > 0:
        add(total, left, slope / steep)
        if right is not None:
            add(total, right, -slope / steep)


def add(terms: ExponentialSum, rate: Any, coefficient: Any) -> None:
    """Add one exponential."""
    terms[rate] = terms.get(rate, 0) + coefficient


def product(a: ExponentialSum, b: ExponentialSum) -> ExponentialSum:
    """Product of two sums."""
    result: ExponentialSum = {}
    for rate_a, coefficient_a in a.items():
        for rate_b, coefficient_b in b.items():
            add(result, rate_a + rate_b, coefficient_a * coefficient_b)
    return result


def one_minus(a: ExponentialSum) -> ExponentialSum:
    """One minus a sum."""
    result = {rate: -coefficient for rate, coefficient in a.items()}
    add(result, 0 * next(iter(a), 0), 1)
    return result


def integral(terms: ExponentialSum, rate: int) -> Any:
    """Expectation at a time t that is exponential of this rate."""
    return sum(c * rate / (rate + r) for r, c in terms.items())


DEFAULT_SAMPLES = 2000

#: Most terms of a closed form.
MAX_TERMS = 20_000

#: Probability of drafts below which their law is a small difference of large terms, so that
#: Fractions are used.
_RARE = 1e-4

_CHUNK = 1 << 22  # exponentials drawn at a time

#: Most exponentials of one sample, and for an estimate.
_MAX_CLOCKS, _MAX_SIMULATED = 1 << 26, 1 << 28


class SharedNoise(Verifier):
    """A verifier that draws its drafts itself, on the exponentials that decide its output.

    Tokens race on `one_clock` for all drafts, which are the K first of q on it, or on a clock for
    each draft.
    """

    one_clock: ClassVar[bool]

    @abstractmethod
    def chance(self, rivals: Vector, num_drafts: int) -> Vector:
        r"""Lower bound of the acceptance of an output j of which w_j is known, tight at K = 1."""

    @abstractmethod
    def closed_rate(self, p: Vector, q: Vector, num_drafts: int) -> float | None:
        """Rate for K > 1, or None where that takes too long."""

    @abstractmethod
    def masses(self, p: Sequence[Any], q: Sequence[Any], drafts: Sequence[int]) -> list[Any] | None:
        """Joint law of these drafts and the output; None if it has more than `MAX_TERMS` terms."""

    @property
    def batch_rates(self) -> dict[str, BatchRates]:
        bounds = BatchRates(lambda p, q, counts, seed: self.bounds(p, q, counts), is_bound=True)
        return {self.schemes[0].scheme: bounds}

    def bounds(self, p: Vector, q: Vector, num_drafts: Iterable[int]) -> list[float]:
        """Lower bounds of the rates for several K, from one sort by p/q."""
        mass, rivals = rival_sums(p, q)
        return [min(float(mass @ self.chance(rivals, k)), 1.0) for k in num_drafts]

    def simulate(
        self, problem: TransportProblem, rng: np.random.Generator, size: int
    ) -> tuple[Integers, Integers]:
        """Draw draft tuples and their outputs: tokens of shape (size, K) and (size,).

        Drafts are padded with -1 where fewer than K tokens can be drafted.
        """
        self.check(problem)
        p, q, k = problem.target, draft_of(problem, exact=False), problem.num_drafts
        clocks = 1 if self.one_clock else k
        if clocks * p.size > _MAX_CLOCKS:
            raise ProblemTooLarge(
                f"verifier {self.name!r} holds {clocks} exponentials of each token at a time; "
                f"K={k}, V={p.size} is over the limit of {_MAX_CLOCKS:,} in all: draft fewer "
                "tokens or restrict the vocabulary (top_k, top_p)"
            )
        possible, draftable = np.flatnonzero(p > 0), np.flatnonzero(q > 0)
        first = min(k // clocks, draftable.size)
        drafts = np.full((size, k), -1, dtype=np.int64)
        output = np.empty(size, dtype=np.int64)
        rows = max(1, _CHUNK // (clocks * p.size))
        for start in range(0, size, rows):
            stop = min(start + rows, size)
            times = rng.standard_exponential((stop - start, clocks, p.size))
            nearest = _first(times[:, :, draftable] / q[draftable], first)
            drafts[start:stop, : clocks * first] = draftable[nearest].reshape(stop - start, -1)
            arrivals = times.min(axis=1)[:, possible] / p[possible]
            output[start:stop] = possible[arrivals.argmin(axis=1)]
        return drafts, output

    def acceptance_bound(self, problem: TransportProblem) -> float:
        """Lower bound, which is the acceptance rate at K = 1; O(V log V)."""
        self.check(problem)
        return self.bounds(problem.target, draft_of(problem, False), [problem.num_drafts])[0]

    def acceptance_rate(
        self, problem: TransportProblem, num_samples: int = DEFAULT_SAMPLES, seed: int = 0
    ) -> float:
        """Rate without sampling for few tokens, else an `Estimate` by a simulation of seconds."""
        self.check(problem)
        p, q, k = problem.target, draft_of(problem, exact=False), problem.num_drafts
        rate = self.bounds(p, q, [1])[0] if k == 1 else self.closed_rate(p, q, k)
        if rate is not None:
            return min(max(rate, 0.0), 1.0)
        num_samples = min(
            num_samples, max(_MAX_SIMULATED // (p.size if self.one_clock else k * p.size), 2)
        )
        drafts, output = self.simulate(problem, np.random.default_rng(seed), num_samples)
        hits = (drafts == output[:, None]).any(axis=1)
        return Estimate(float(hits.mean()), float(hits.std(ddof=1) / np.sqrt(num_samples)))

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
        p, q = target_of(problem, exact), draft_of(problem, exact)
        drafted = drafts[drafts >= 0].tolist()
        masses = self.masses(p.tolist(), q.tolist(), drafted)
        if masses is None:
            raise ProblemTooLarge(
                f"verifier {self.name!r} draws its drafts and its output from the same random "
                f"numbers. The law of the output given other drafts has too many terms at "
                f"V={p.size}, K={len(drafted)}: use its simulate(problem, rng, size), which draws "
                "both"
            )
        if not exact and sum(masses) < _RARE:
            p_exact, q_exact = ([*map(Fraction, law.tolist())] for law in (p, q))
            masses = self.masses(p_exact, q_exact, drafted) or masses
        total = sum(masses)
        law = positive_part(np.array([mass / total for mass in masses], dtype=p.dtype))
        return decision_by_law(law, drafts)


def _first(arrivals: Any, number: int) -> Integers:
    """Places of the first arrivals along the last axis, in their order."""
    if number == 1:
        return np.asarray(arrivals.argmin(axis=-1)[..., None])
    nearest = np.argpartition(arrivals, number - 1, axis=-1)[..., :number]
    order = np.take_along_axis(arrivals, nearest, axis=-1).argsort(axis=-1)
    return np.take_along_axis(nearest, order, axis=-1)


def rival_sums(p: Vector, q: Vector) -> tuple[Vector, Vector]:
    r"""Masses p_j of the tokens with p, q > 0, and :math:`\sum_i \max(p_i, q_i p_j / q_j)`."""
    ratio = np.divide(p, q, out=np.full_like(p, np.inf), where=q > 0)
    order = np.argsort(ratio)
    p, q, ratio = p[order], q[order], ratio[order]
    p_above = np.append(np.cumsum(p[::-1])[::-1], 0.0)
    q_below = np.concatenate([[0.0], np.cumsum(q)])
    j = np.flatnonzero((p > 0) & (q > 0))
    # p_i is the larger of the two where p_i/q_i >= p_j/q_j
    is_first = np.append(True, ratio[1:] != ratio[:-1])
    place = np.maximum.accumulate(np.where(is_first, np.arange(ratio.size), 0))[j]
    return p[j], p_above[place] + q_below[place] * ratio[j]
