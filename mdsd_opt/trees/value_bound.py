r"""Largest mean value that drafts of two values can bring at one node, over all lossless rules.

K independent drafts from q; m1 of them are worth :math:`v_1`, the other m2 are worth
:math:`v_2 < v_1`. With :math:`d = v_1 - v_2`, :math:`n = \lceil v_1 / d \rceil` and
:math:`f = v_1 - (n - 1) d`,

.. math:: \mathrm{OPT} = f\, C_n + (d - f)\, C_{n-1}, \qquad
          C_n = \min_{1 = a_0 \ge a_1 \ge \dots \ge a_n} \sum_{j=1}^n
                \bigl[ P(a_j) + 1 - a_j^{m_1} a_{j-1}^{m_2} \bigr],

P(a) the target mass of the tokens of lowest p/q with draft mass a: nested prefixes instead of one.
The proof is in the documentation, "Several steps".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mdsd_opt.base.array_types import Integers, Vector
from mdsd_opt.base.arrays import SUM_TOLERANCE
from mdsd_opt.base.checked import floats
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.errors import InvalidDistribution, InvalidInput, ProblemTooLarge
from mdsd_opt.trees.recursive_rejection import ratio_order

#: Most nested prefixes: they are many where the values are nearly the same.
MAX_PREFIXES = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class ValueBound:
    r"""The optimum, and a proof that nothing brings more.

    Attributes
    ----------
    optimum : float
        Largest mean value of the draft that is passed.
    prices : ndarray, shape (V,)
        y >= 0: the optimum is :math:`\sum_i p_i y_i + E \max_k (v_k - y_{X_k})_+`, which is an
        upper bound for any y.
    """

    optimum: float
    prices: Vector


def value_bound(target: Vector, draft: Vector, values: Sequence[float]) -> ValueBound:
    """Largest mean value of the draft that a lossless rule passes at one node.

    Parameters
    ----------
    target : array_like, shape (V,)
        p, or r p for a node that is passed with probability r.
    draft : array_like, shape (V,)
        q, from which K drafts are drawn independently.
    values : sequence of float
        Values of the drafts, one or two different ones; see `place_values`.

    Raises
    ------
    InvalidDistribution
        The draft is no distribution, or the target none of a mass up to one.
    InvalidInput
        No values, negative ones, or more than two different ones.
    ProblemTooLarge
        Two values so near to one another that it takes more than 10,000 prefixes.

    Notes
    -----
    O(V log V), and O(V) for each of 2 v_1 / (v_1 - v_2) prefixes.
    """
    p, q = floats(target, "target"), Distribution.of(draft, "draft").values
    if p.shape != q.shape or not p.min() >= 0.0 or p.sum() > 1.0 + SUM_TOLERANCE:
        raise InvalidDistribution(
            f"target has shape {p.shape} and sum {p.sum():.6g}: give r p of the draft's {q.size} "
            "tokens, r from 0 to 1"
        )
    worths, counts = np.unique(floats(values, "values"), return_counts=True)
    if not 1 <= worths.size <= 2 or not (worths[0] >= 0.0 and worths[-1] < np.inf):
        raise InvalidInput(
            f"the drafts have {worths.size} different values, from {worths.min(initial=0)} on: "
            "give one or two, at least 0"
        )
    best, many = float(worths[-1]), int(counts[-1])
    other, few = (float(worths[0]), int(counts[0])) if worths.size == 2 else (0.0, 0)
    step = best - other
    prices = np.zeros_like(p)
    if best == 0.0:
        return ValueBound(0.0, prices)
    order = ratio_order(p, q)
    a = np.minimum(np.concatenate([[0.0], np.cumsum(q[order])]), 1.0)
    masses = np.concatenate([[0.0], np.cumsum(p[order])])
    if best > MAX_PREFIXES * step:
        raise ProblemTooLarge(
            f"values {other} and {best} are so near that they take over {MAX_PREFIXES:,} prefixes: "
            "give the same value to all"
        )
    length = int(np.ceil(best / step - 1e-12))
    first = best - (length - 1) * step
    total = 0.0
    for width, count in ((first, length), (step - first, length - 1)):
        if width > 0.0 and count > 0:
            value, ends = _shortest_chain(a, masses, many, few, count)
            total += width * value
            for end in ends:
                prices[order[:end]] += width
    return ValueBound(total, prices)


def _shortest_chain(
    a: Vector, masses: Vector, many: int, few: int, count: int
) -> tuple[float, list[int]]:
    """Minimum over chains of prefixes, and the lengths of the prefixes.

    That the prefixes are nested need not be asked for: by the rearrangement inequality no order
    of the same numbers is better.
    """
    x, y = a**many, a**few
    total = masses + 1.0 - x
    backwards: list[Integers] = []
    for _ in range(count - 1):
        before = _lowest(y, total, x)
        backwards.append(before)
        total = masses + 1.0 + total[before] - x * y[before]
    at = int(total.argmin())
    value, ends = float(total[at]), [at]
    for before in reversed(backwards):
        at = int(before[at])
        ends.append(at)
    return value, ends


def _lowest(y: Vector, f: Vector, slopes: Vector) -> Integers:
    """Places where f - slope y is least, for ascending slopes: tangents of the lower hull."""
    hull: list[int] = []
    for i in range(y.size):
        if hull and y[i] <= y[hull[-1]]:  # no wider than the one before: the lower one stays
            if f[i] >= f[hull[-1]]:
                continue
            hull.pop()
        while len(hull) > 1:
            left, middle = hull[-2:]
            rise, run = f[middle] - f[left], y[middle] - y[left]
            if rise * (y[i] - y[middle]) < (f[i] - f[middle]) * run:  # below the line to i
                break
            hull.pop()
        hull.append(i)
    corners = np.array(hull)
    edges = np.diff(f[corners]) / np.diff(y[corners])
    return corners[np.searchsorted(edges, slopes)]
