r"""Laws of races on one clock, in closed form: sums of exponentials in the time of the output.

The output Y arrives at time t. The clock shows :math:`p_j t` for it if it is token j of this clock,
and :math:`p_i t` plus a fresh exponential for every other token, which has arrived in the race of q
by time :math:`v t` with probability :math:`1 - e^{-t c_i(v)}`, :math:`c_i(v) = (q_i v - p_i)_+`.
Sums of these are piecewise linear in v, and integrals over t rational in p and q.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Any

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
