r"""Recursive rejection: drafts are tried one after another, each against what the others left.

A draft x of law q is passed with :math:`\min(1, t_x / q_x)`; if it is not, the target becomes
:math:`(t - q)_+ / (1 - \sum \min(t, q))`.

All of it in float64 or in Fractions, as the target is given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.verifiers.rejection import accepted

Law = NDArray[Any]


def draft_law(drafts: Any, target: Law) -> Law:
    """q of drafts from one model, in the numbers of the target."""
    return np.array(drafts.exact_q, dtype=object) if target.dtype == object else drafts.q


def after_refusal(target: Law, demand: float, q: Law) -> tuple[Law, float, float]:
    r"""What is left of a target of mass at most one for the other drafts.

    Parameters
    ----------
    target : ndarray, shape (V,)
        t.
    demand : float
        Its mass.
    q : ndarray, shape (V,)
        Law of the draft that was refused.

    Returns
    -------
    target : ndarray, shape (V,)
    demand : float
        Its mass; 1 stays 1.
    refused : float
        Probability that a draft is refused, :math:`1 - \sum \min(t, q)`.
    """
    rest = np.maximum(target - q, 0)
    mass = rest.sum()
    refused = mass + max(1 - demand, 0)
    if mass <= 0:
        return rest, 0, refused
    rest /= refused
    return rest, mass / refused, refused


def without(q: Law, token: int) -> Law:
    """Law of the next draft where one token is not drawn again; zero where none is left."""
    rest = q.copy()
    rest[token] = 0
    total = rest.sum()
    if total > 0:
        rest /= total
    return rest


def whole_support_masses(target: Law, q: Law, draws: NDArray[np.int64]) -> Law:
    """Probability that each draft is passed where every token of q is drawn, once; shape (K,).

    A refused token has no target left, and the last one is passed with all that is left: each is
    passed with its target on average over the draws, whatever their order, the first ones first.
    """
    masses = np.zeros_like(target, shape=draws.size)
    drawn = draws[draws >= 0]
    target, q = target[drawn], q[drawn] / q[drawn].sum()
    left, demand = 1, min(target.sum(), 1)
    for k in range(drawn.size):
        chance = accepted(target[k], q[k])
        masses[k] = left * chance
        left *= 1 - chance
        target, demand, _ = after_refusal(target, demand, q)
        q = without(q, k)
    return masses
