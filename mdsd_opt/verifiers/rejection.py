"""Speculative sampling of one token, the step that most rules are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import Law, normalised, positive_part


def draft_of(problem: TransportProblem, exact: bool) -> Law:
    """q of drafts from one model, or from several, shape (K, V); as float64 or as Fractions."""
    drafts: Any = problem.drafts
    return np.array(drafts.exact_q, dtype=object) if exact else drafts.q


def nothing_accepted(drafts: NDArray[np.int64], p: Law) -> Law:
    """A zero for each draft, of the kind of numbers that p holds."""
    return np.zeros(drafts.size, dtype=p.dtype) + p[0] * 0


def accepted(p: Any, q: Any) -> Any:
    """min(1, p/q) for one token; zero where p is, whatever q."""
    if p >= q:
        return p * 0 + (1 if p > 0 else 0)
    return p / q


def residual_law(p: Law, taken: Law) -> Law:
    """Positive part of p - taken, normalised.

    If nothing is left, a rejection takes rounding, and p itself is as good: in any case a token
    with p = 0 gets nothing.
    """
    left = normalised(positive_part(p - taken))
    return p if left is None else left
