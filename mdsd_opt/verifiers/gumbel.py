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
from collections.abc import Sequence
from typing import Any, ClassVar

from mdsd_opt.base.array_types import Vector
from mdsd_opt.drafts import DraftScheme, WithReplacement, count_power
from mdsd_opt.verifiers.shared_noise import MAX_TERMS, SharedNoise

#: Sum of c exp(-r t) as {r: c}, in floats or Fractions.
ExponentialSum = dict[Any, Any]


class GumbelList(SharedNoise):
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
    one_clock: ClassVar[bool] = False

    def chance(self, rivals: Vector, num_drafts: int) -> Vector:
        return num_drafts / (rivals + (num_drafts - 1))

    def closed_rate(self, p: Vector, q: Vector, num_drafts: int) -> float | None:
        is_short = p.size * count_power(p.size + 1, num_drafts - 1) <= MAX_TERMS
        return float(acceptance(p.tolist(), q.tolist(), num_drafts)) if is_short else None

    def masses(self, p: Sequence[Any], q: Sequence[Any], drafts: Sequence[int]) -> list[Any] | None:
        is_short = len(drafts) * len(p) * count_power(len(p) + 1, len(drafts)) <= MAX_TERMS
        return joint_masses(p, q, drafts) if is_short else None


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
