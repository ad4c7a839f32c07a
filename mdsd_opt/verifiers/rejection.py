"""Speculative sampling of one token, the basis of most rules, and sums for its rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Integers, Numbers, Vector
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import normalised, positive_part
from mdsd_opt.verifiers.verdicts import Decision


def draft_of(problem: TransportProblem, exact: bool) -> Numbers:
    """Law q of drafts from one model, or from several, (K, V); as float64 or as Fractions."""
    drafts: Any = problem.law(exact).drafts
    return np.asarray(drafts.q)


def nothing_accepted(drafts: Integers, p: Numbers) -> Numbers:
    """Array of zeros, one for each draft, of the kind of numbers that p holds."""
    return np.zeros(drafts.size, dtype=p.dtype) + p[0] * 0


def accepted(p: Any, q: Any) -> Any:
    """Ratio min(1, p/q) for one token; zero if p is zero, whatever q."""
    if p >= q:
        return p * 0 + (1 if p > 0 else 0)
    return p / q


def without(q: Numbers, drawn: int | Integers) -> Numbers:
    """Law of the next draft if these tokens are not drawn again; zero if none is left."""
    rest = q.copy()
    rest[drawn] = 0
    total = rest.sum()
    return rest / total if total > 0 else rest


def residual_law(p: Numbers, taken: Numbers) -> Numbers:
    """Positive part of p - taken, normalised.

    If nothing is left, a rejection takes rounding, and p itself is as good: in any case a token
    with p = 0 gets nothing.
    """
    residual = normalised(positive_part(p - taken))
    return p if residual is None else residual


def decision_by_law(law: Numbers, drafts: Integers) -> Decision:
    """The decision that draws the output from a law given these drafts, which may be padded."""
    accept = nothing_accepted(drafts, law)
    tokens, first = np.unique(drafts, return_index=True)
    drafted = tokens >= 0
    accept[first[drafted]] = law[tokens[drafted]]
    hit = law * 0
    hit[tokens[drafted]] = law[tokens[drafted]]
    return Decision(accept, residual_law(law, hit))


class RatioSums:
    r"""Sums :math:`\sum \min(p, c q)` and :math:`\sum (p - c q)_+` for any c >= 1, O(log V) each.

    p and q, shape (V,), are not negative. `order` holds the tokens with q > 0: first those with p
    < q, `num_below` of them, which no such c tells apart and nobody sorts, then the others by
    ascending p/q.
    """

    def __init__(self, p: Vector, q: Vector) -> None:
        drafted = np.flatnonzero(q > 0)
        p_drafted, q_drafted = p[drafted], q[drafted]
        is_above = p_drafted >= q_drafted
        above = np.flatnonzero(is_above)
        ratio = p_drafted[above] / q_drafted[above]
        by_ratio = np.argsort(ratio)
        above = above[by_ratio]
        self.num_below = drafted.size - above.size
        self.order = np.concatenate([drafted[~is_above], drafted[above]])
        self._ratio = ratio[by_ratio]
        p_sorted, q_sorted = p_drafted[above], q_drafted[above]
        p_below = p_drafted[~is_above].sum()
        self._p_below = np.concatenate([[p_below], p_below + np.cumsum(p_sorted)])
        self._p_above = np.append(np.cumsum(p_sorted[::-1])[::-1], 0.0)
        self._q_above = np.append(np.cumsum(q_sorted[::-1])[::-1], 0.0)
        self._never_drafted = float(p[q <= 0].sum())

    def overlap(self, scale: Any) -> Any:
        r"""Sum :math:`\sum \min(p, c q)` at a scale c or at each of an array of them."""
        place = np.searchsorted(self._ratio, scale, side="right")
        return self._p_below[place] + scale * self._q_above[place]

    def surplus(self, scale: Any) -> Any:
        r"""Sum :math:`\sum (p - c q)_+` at a scale c or at each of an array of them."""
        place = np.searchsorted(self._ratio, scale, side="right")
        drafted = np.maximum(self._p_above[place] - scale * self._q_above[place], 0.0)
        return drafted + self._never_drafted
