r"""Which draft of a block to return, so that token i comes out in proportion to its weight.

A rule is prepared for one draft tuple: the places of the drafts in prefix order, in draw order.
Asked about a block [start, stop) that holds the topmost of them, it gives the probability of
returning each draft.

Independent draws: the first draft in the block. Draws without replacement need a correction: with
z the first draft in the block, at place j of the draw, every other draft y of the block B is
returned with probability :math:`\pi\, q_y / q(B)`, else z, where with
:math:`\sigma_i = q(X_1..X_i)` and b the prefix up to the end of the block

.. math:: \pi = \frac{1 - A_b}{1 - \sigma_K + q_z} \prod_{i=j}^{K-1}
          \frac{1 - \sigma_i}{1 - \sigma_i + q_z}.

It is the probability that z was pivotal: that the block would have been missed, in the exponential
race behind the draws, had any other token rung in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import PrefixDraftScheme, WithoutReplacement, WithReplacement
from mdsd_opt.drafts.mixture import SortedMixtureDrafts
from mdsd_opt.errors import UnsupportedScheme

#: (start, stop) -> probability that each draft is returned, shape (K,), summing to one.
BlockRule = Callable[[int, int], NDArray[Any]]


@singledispatch
def block_rule(
    drafts: PrefixDraftScheme, positions: NDArray[np.int64], q: NDArray[Any], above: NDArray[Any]
) -> BlockRule:
    """Prepare the rule of a scheme for one draft tuple.

    Parameters
    ----------
    drafts : PrefixDraftScheme
    positions : ndarray of int, shape (K,)
        Places of the drafts in prefix order, in draw order.
    q, above : ndarray, shapes (n,) and (n + 1,)
        Weights in prefix order, float64 or Fractions, and their suffix sums.
    """
    raise UnsupportedScheme(f"no within-block rule is known for {drafts.scheme} drafts")


def _zeros(like: NDArray[Any], size: int) -> NDArray[Any]:
    return np.zeros(size, dtype=like.dtype) + (Fraction(0) if like.dtype == object else 0.0)


@block_rule.register
def _first_draft(
    drafts: WithReplacement,
    positions: NDArray[np.int64],
    q: NDArray[Any],
    above: NDArray[Any],
) -> BlockRule:
    def shares(start: int, stop: int) -> NDArray[Any]:
        result = _zeros(q, positions.size)
        result[np.flatnonzero(positions >= start)[0]] += 1
        return result

    return shares


@block_rule.register
def _pivotal_draft(
    drafts: WithoutReplacement,
    positions: NDArray[np.int64],
    q: NDArray[Any],
    above: NDArray[Any],
) -> BlockRule:
    left = masses_left(positions, q, above)

    def shares(start: int, stop: int) -> NDArray[Any]:
        inside = np.flatnonzero(positions >= start)
        in_block = above[start] - above[stop]
        return pivotal_shares(q[positions], left, inside, in_block, above_block=above[stop])

    return shares


def pivotal_shares(
    q: NDArray[Any], left: list[Any], inside: NDArray[np.int64], in_block: Any, above_block: Any
) -> NDArray[Any]:
    """The rule of draws without replacement.

    Parameters
    ----------
    q : ndarray, shape (K,)
        Weights of the drafts, in draw order.
    left : list
        1 - q(X_1..X_i) for i = 1..K.
    inside : ndarray of int
        Indices of the drafts in the block, ascending.
    in_block, above_block : float or Fraction
        Weight of the block, and of all tokens above it.
    """
    result = _zeros(q, q.size)
    in_block = max(in_block, q[inside].sum())  # where rounding has lost them beside what is above
    j = int(inside[0])
    pivotal = above_block / (left[-1] + q[j])
    for i in range(j, q.size - 1):
        pivotal = pivotal * left[i] / (left[i] + q[j])
    for k in inside[1:]:
        result[k] += pivotal * q[k] / in_block
    result[j] += 1 - result.sum()
    return result


@block_rule.register
def _mixed(
    drafts: SortedMixtureDrafts, positions: NDArray[np.int64], q: NDArray[Any], above: NDArray[Any]
) -> BlockRule:
    """Each component's rule, weighted by how likely the component is given the drafts."""
    exact = q.dtype == object
    weights = drafts.exact_mixture_weights if exact else drafts.mixture_weights.tolist()
    likely = []
    for weight, component in zip(weights, drafts.components, strict=True):
        if component.num_drafts == positions.size:
            likelihood = weight * _probability(component, positions, q, above)
            if likelihood > 0:
                likely.append((likelihood, block_rule(component, positions, q, above)))
    total = sum(likelihood for likelihood, _ in likely)

    def shares(start: int, stop: int) -> NDArray[Any]:
        result = _zeros(q, positions.size)
        for likelihood, rule in likely:
            result = result + likelihood / total * rule(start, stop)
        return result

    return shares


def masses_left(positions: NDArray[np.int64], q: NDArray[Any], above: NDArray[Any]) -> list[Any]:
    """1 - q(X_1..X_i) for i = 1..K.

    Sums of the gaps between the drawn places, so that no difference from one loses a small rest.
    """
    left = []
    for i in range(1, positions.size + 1):
        drawn = sorted(set(positions[:i].tolist()))
        rest = above[drawn[-1] + 1]
        if q.dtype == object:
            rest = above[0] - sum((q[j] for j in drawn), Fraction(0))
        else:
            for start, stop in zip([-1, *drawn], drawn, strict=False):
                rest = rest + q[start + 1 : stop].sum()
        left.append(rest)
    return left


def _probability(
    drafts: WithReplacement | WithoutReplacement,
    positions: NDArray[np.int64],
    q: NDArray[Any],
    above: NDArray[Any],
) -> Any:
    """Probability of this draft tuple under one component."""
    if isinstance(drafts, WithReplacement):
        return q[positions].prod()
    if np.unique(positions).size < positions.size:
        return q[0] * 0
    probability = q[positions[0]]
    for place, left in zip(positions[1:], masses_left(positions, q, above), strict=False):
        probability = probability * q[place] / left
    return probability
