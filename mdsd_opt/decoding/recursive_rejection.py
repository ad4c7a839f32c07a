r"""Recursive rejection: drafts are tried one after another, each against what the others left.

A draft x of law q is passed with :math:`\min(1, t_x / q_x)`; if it is not, the target becomes
:math:`(t - q)_+ / (1 - \sum \min(t, q))`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.verifiers.rejection import accepted

Law = NDArray[np.float64]


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
    rest = np.maximum(target - q, 0.0)
    mass = float(rest.sum())
    refused = mass + max(1.0 - demand, 0.0)
    if mass <= 0.0:
        return rest, 0.0, refused
    rest /= refused
    return rest, mass / refused, refused


def without(q: Law, token: int) -> Law:
    """Law of the next draft where one token is not drawn again; zero where none is left."""
    rest = q.copy()
    rest[token] = 0.0
    total = rest.sum()
    if total > 0.0:
        rest /= total
    return rest


def whole_support_masses(target: Law, q: Law, draws: NDArray[np.int64]) -> Law:
    """Probability that each draft is passed where every token of q is drawn, once; shape (K,).

    A refused token has no target left, and the last one is passed with all that is left: each is
    passed with its target on average over the draws, whatever their order, the first ones first.
    """
    masses = np.zeros(draws.size)
    drawn = draws[draws >= 0]
    target, q = target[drawn], q[drawn] / q[drawn].sum()
    left, demand = 1.0, min(float(target.sum()), 1.0)
    for k in range(drawn.size):
        chance = accepted(target[k], q[k])
        masses[k] = left * chance
        left *= 1.0 - chance
        target, demand, _ = after_refusal(target, demand, q)
        q = without(q, k)
    return masses
