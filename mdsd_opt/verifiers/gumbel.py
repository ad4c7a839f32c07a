r"""Gumbel-max list sampling [GLS]: drafts and output race on shared exponentials.

The joint law of drafts and output is known for few tokens. Let the output be Y = j, from row k, at
time t: its clock shows :math:`p_j t`, every other one :math:`p_i t` plus a fresh exponential. So t
is exponential of rate K, the rows are independent given t, and each other row has draft x with
probability

.. math:: G_x(t) = t \int_0^\infty e^{-t \varphi_x(u)}\,du, \qquad
          \varphi_x(u) = u + \sum_{i \ne x} \Bigl(\frac{q_i}{q_x} (p_x + u) - p_i\Bigr)_+ ,

row k with the same integral up to :math:`u = q_x p_j / q_j - p_x` if x is not j, and with
:math:`e^{-t \varphi_j(0)}` if it is. As :math:`\varphi_x` is piecewise linear, all of these are
finite sums of exponentials in t, and integrating over t leaves rational functions of p and q.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.array_types import Integers, Vector
from mdsd_opt.drafts import DraftScheme, WithReplacement, count_power
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.prefix_search import BatchRates
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Verifier, positive_part, target_of
from mdsd_opt.verifiers.rates import Estimate
from mdsd_opt.verifiers.rejection import decision_by_law, draft_of
from mdsd_opt.verifiers.verdicts import Decision

DEFAULT_SAMPLES = 2000

#: Most terms for which the rational law is computed.
_MAX_TERMS = 20_000

#: Probability of drafts below which the law is a small difference of large terms, so that
#: Fractions are used.
_RARE = 1e-4

_CHUNK = 1 << 22  # exponentials drawn at a time

#: Most exponentials of one sample, and for an estimate.
_MAX_CLOCKS, _MAX_SIMULATED = 1 << 26, 1 << 28

#: Sum of c exp(-r t) as {r: c}, in floats or Fractions.
ExponentialSum = dict[Any, Any]


class GumbelList(Verifier):
    r"""Verify by clocks: X^k arrives first at rates q on clock k, Y at rates p on the earliest.

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
    ) -> tuple[Integers, Integers]:
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
        """Lower bound of [GLS], which is the acceptance rate at K = 1; O(V log V)."""
        self.check(problem)
        return gumbel_bounds(problem.target, draft_of(problem, False), [problem.num_drafts])[0]

    def acceptance_rate(
        self, problem: TransportProblem, num_samples: int = DEFAULT_SAMPLES, seed: int = 0
    ) -> float:
        """Rate in closed form for few tokens, else an `Estimate` by a simulation of seconds."""
        self.check(problem)
        p, q, k = problem.target, draft_of(problem, exact=False), problem.num_drafts
        if k == 1:
            return gumbel_bounds(p, q, [1])[0]
        if p.size * count_power(p.size + 1, k - 1) <= _MAX_TERMS:
            return min(max(float(acceptance(p.tolist(), q.tolist(), k)), 0.0), 1.0)
        num_samples = min(num_samples, max(_MAX_SIMULATED // (k * p.size), 2))
        drafts, output = self.simulate(problem, np.random.default_rng(seed), num_samples)
        hits = (drafts == output[:, None]).any(axis=1)
        return Estimate(float(hits.mean()), float(hits.std(ddof=1) / np.sqrt(num_samples)))

    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
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
        return decision_by_law(law, drafts)


def gumbel_bounds(p: Vector, q: Vector, num_drafts: Iterable[int]) -> list[float]:
    """Lower bounds for several K, with all inner sums from one sort by p/q."""
    mass, sums = rival_sums(p, q)
    return [min(float(np.sum(mass * (k / (sums + (k - 1))))), 1.0) for k in num_drafts]


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


def joint_masses(p: Sequence[Any], q: Sequence[Any], drafts: Sequence[int]) -> list[Any]:
    """Joint probability Pr(X = drafts, Y = j) for every token j; about K V (V + 1)^K operations.

    p and q are floats or Fractions, and drafts have q > 0.
    """
    k, counts = len(drafts), Counter(drafts)
    one = p[0] * 0 + 1
    alone = {x: draft_probability(p, q, x) for x in counts}
    other_rows = {}  # of a row that has the draft
    for x in counts:
        product: ExponentialSum = {0 * one: one}
        for other in (counts - Counter([x])).elements():
            product = _product(product, alone[other])
        other_rows[x] = product
    masses = []
    for j in range(len(p)):
        mass = p[j] * 0
        if p[j] > 0:
            for x, count in counts.items():
                row = _winning_row(p, q, j, x)
                mass += count * _integral(_product(row, other_rows[x]), k)
        masses.append(p[j] * mass / k)
    return masses


def acceptance(p: Sequence[Any], q: Sequence[Any], num_drafts: int) -> Any:
    """Probability that Y is a draft: 1 minus that of no row having it; V (V + 1)^(K - 1) steps."""
    one = p[0] * 0 + 1
    total = one
    for j in range(len(p)):
        missed: ExponentialSum = {0 * one: one}
        if q[j] > 0:
            missed = _one_minus(_winning_row(p, q, j, j))
            other = _one_minus(draft_probability(p, q, j))
            for _ in range(num_drafts - 1):
                missed = _product(missed, other)
        if p[j] > 0:
            total -= p[j] * _integral(missed, num_drafts)
    return total


def draft_probability(
    p: Sequence[Any], q: Sequence[Any], x: int, until: Any = None
) -> ExponentialSum:
    """Sum G_x(t), or the same integral up to `until`; q_x is positive."""
    bends = sorted(
        (bend, q[i] / q[x])
        for i in range(len(p))
        if i != x and q[i] > 0 and (bend := p[i] * q[x] / q[i] - p[x]) > 0
    )
    slope = q[x] / q[x]
    rate = 0 * slope
    for i in range(len(p)):
        if i != x and q[i] > 0 and p[i] * q[x] / q[i] <= p[x]:
            slope += q[i] / q[x]
            rate += q[i] / q[x] * p[x] - p[i]
    result: ExponentialSum = {}
    start = 0 * slope
    for bend, steeper in bends:
        if until is not None and bend >= until:
            break
        _add(result, rate, 1 / slope)
        rate += slope * (bend - start)
        _add(result, rate, -1 / slope)
        start, slope = bend, slope + steeper
    _add(result, rate, 1 / slope)
    if until is not None:
        _add(result, rate + slope * (until - start), -1 / slope)
    return result


def _winning_row(p: Sequence[Any], q: Sequence[Any], j: int, x: int) -> ExponentialSum:
    """Probability Pr(draft x | the row holds the output j), as a function of t."""
    if x == j:
        excess = (q[i] / q[j] * p[j] - p[i] for i in range(len(p)) if i != j and q[i] > 0)
        return {sum((e for e in excess if e > 0), p[j] * 0): p[j] * 0 + 1}
    if q[j] == 0:
        return draft_probability(p, q, x)
    until = p[j] * q[x] / q[j] - p[x]
    return draft_probability(p, q, x, until) if until > 0 else {}


def _add(terms: ExponentialSum, rate: Any, coefficient: Any) -> None:
    terms[rate] = terms.get(rate, 0) + coefficient


def _product(a: ExponentialSum, b: ExponentialSum) -> ExponentialSum:
    result: ExponentialSum = {}
    for rate_a, coefficient_a in a.items():
        for rate_b, coefficient_b in b.items():
            _add(result, rate_a + rate_b, coefficient_a * coefficient_b)
    return result


def _one_minus(a: ExponentialSum) -> ExponentialSum:
    result = {rate: -coefficient for rate, coefficient in a.items()}
    _add(result, 0 * next(iter(a)), 1)
    return result


def _integral(terms: ExponentialSum, rate: int) -> Any:
    """Expectation at a time t that is exponential of this rate."""
    return sum(c * rate / (rate + r) for r, c in terms.items())


VERIFIER = GumbelList()
