"""Drafts as uniforms, many tuples at once: the conditional distribution function of each draft.

With the tokens in order of falling probability, the law of a draft, given the drafts before it,
puts some mass on the tokens before it, and some on itself: an interval of [0, 1). A number drawn
evenly from it is uniform, and independent of those of the drafts before, iff the law is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mdsd_opt.base.arrays import Flags, Tokens, Vector

#: Most tokens for which sums over the tokens before each one are quicker than a sort.
_FEW = 16


class UniformIntervals(NamedTuple):
    """N draft tuples of J random choices each; rows of impossible tuples mean nothing.

    `below` and `mass`, shape (N, J), are, given the choices before it, the probability of what
    comes before each choice, and of it; `possible`, shape (N,), says what the scheme can draft.
    """

    below: Vector
    mass: Vector
    possible: Flags

    @classmethod
    def of_choices(cls, below: Vector, mass: Vector) -> UniformIntervals:
        """Intervals of tuples that are possible if all their choices are."""
        return cls(below, mass, all_hold(mass > 0))

    def where(self, condition: Flags) -> UniformIntervals:
        """Intervals that are impossible where the condition does not hold."""
        return self._replace(possible=self.possible & condition)


def all_hold(condition: Flags) -> Flags:
    """Whether the condition holds at every place of the tuple."""
    return np.asarray(condition.all(axis=1))


def masses_in(q: Vector, tokens: Tokens) -> tuple[Vector, Vector]:
    """Mass before each token in the order of falling q, and its own; 0 outside the vocabulary."""
    known = (tokens >= 0) & (tokens < q.size)
    safe = np.where(known, tokens, 0)
    mass = np.where(known, q[safe], 0.0)
    below = np.where(known, _mass_before(q, safe), 0.0)
    return below, mass


def _mass_before(q: Vector, tokens: Tokens) -> Vector:
    if tokens.size <= _FEW:
        ids = np.arange(q.size)
        sums = [q[(q > q[i]) | ((q == q[i]) & (ids < i))].sum() for i in tokens.ravel().tolist()]
        return np.array(sums, dtype=np.float64).reshape(tokens.shape)
    order = np.argsort(-q, kind="stable")
    before = np.empty(q.size)
    before[order] = np.cumsum(q[order]) - q[order]
    return np.asarray(before[tokens])


def successive_masses_in(q: Vector, tuples: Tokens) -> tuple[Vector, Vector]:
    """Masses by `masses_in` of q without the tokens drawn before, renormalised."""
    below, mass = masses_in(q, tuples)
    result_below, result_mass = np.zeros_like(below), np.zeros_like(mass)
    for k in range(tuples.shape[1]):
        drawn = np.zeros(len(tuples))
        drawn_before = np.zeros(len(tuples))
        fresh = np.ones(len(tuples), dtype=np.bool_)
        for earlier in range(k):
            fresh &= tuples[:, earlier] != tuples[:, k]
            drawn += mass[:, earlier]
            ahead = (mass[:, earlier] > mass[:, k]) | (
                (mass[:, earlier] == mass[:, k]) & (tuples[:, earlier] < tuples[:, k])
            )
            drawn_before += np.where(ahead, mass[:, earlier], 0.0)
        rest = np.maximum(1.0 - drawn, mass[:, k])  # rounding must not leave less than the draw
        with np.errstate(invalid="ignore", divide="ignore"):
            result_mass[:, k] = np.where(fresh & (mass[:, k] > 0), mass[:, k] / rest, 0.0)
            result_below[:, k] = np.where(
                rest > 0, np.clip((below[:, k] - drawn_before) / rest, 0.0, 1.0), 0.0
            )
    return result_below, result_mass


def masses_in_list(law: Vector, chosen: Sequence[int]) -> UniformIntervals:
    """Intervals of one choice for each tuple, from a list; -1 for a tuple that is not in it."""
    return UniformIntervals.of_choices(*masses_in(law, np.array(chosen, dtype=np.int64)[:, None]))
