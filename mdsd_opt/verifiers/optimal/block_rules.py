r"""Which draft of a block to return, so that token i comes out in proportion to its weight.

A rule is prepared for one draft tuple: the drafts and their places among the tokens, or groups of
tokens, in order of p/w. Asked about a block [start, stop) of places that holds the topmost of them,
it gives the probability of returning each draft.

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
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.distributions import mass_of_others
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.prefix_search.random_draws import RandomDraws

#: (start, stop) -> probability that each draft is returned, shape (K,), summing to one.
BlockRule = Callable[[int, int], NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """One draft tuple.

    Attributes
    ----------
    tokens : ndarray of int64, shape (K,)
        In draw order.
    places : ndarray of int64, shape (K,)
        Of each draft.
    q : ndarray, shape (V,)
        Weights; float64 or Fractions.
    above : ndarray, shape (n + 1,)
        Weight of all tokens from each place on.
    """

    tokens: NDArray[np.int64]
    places: NDArray[np.int64]
    q: NDArray[Any]
    above: NDArray[Any]


def block_rule(drafts: DraftScheme, drawn: Drawn) -> BlockRule:
    """The rule of a scheme, prepared for one draft tuple.

    Raises
    ------
    UnsupportedScheme
        The drafts are neither draws at random from one law nor a mixture of such.
    """
    draws = drafts.random_draws
    if draws is None:
        return mixed_rule(drafts, drawn, block_rule)
    return rule_of_draws(draws.is_replaced, drawn)


def rule_of_draws(is_replaced: bool, drawn: Drawn) -> BlockRule:
    """The rule for draws from one law, with replacement or without."""
    return _first_draft(drawn) if is_replaced else _pivotal_draft(drawn)


def _zeros(like: NDArray[Any], size: int) -> NDArray[Any]:
    return np.zeros(size, dtype=like.dtype) + (Fraction(0) if like.dtype == object else 0.0)


def _first_draft(drawn: Drawn) -> BlockRule:
    def shares(start: int, stop: int) -> NDArray[Any]:
        result = _zeros(drawn.q, drawn.tokens.size)
        result[(drawn.places >= start).argmax()] += 1
        return result

    return shares


def even_rule(places: NDArray[np.int64]) -> BlockRule:
    """All drafts of the block with the same probability."""

    def shares(start: int, stop: int) -> NDArray[Any]:
        inside = places >= start
        return inside / np.count_nonzero(inside)

    return shares


def _pivotal_draft(drawn: Drawn) -> BlockRule:
    # Single numbers: there are a few drafts, and calls on arrays would take most of the time.
    places, masses = drawn.places.tolist(), drawn.q[drawn.tokens].tolist()
    above, left = drawn.above.item, np.array(masses_left(drawn)).tolist()

    def shares(start: int, stop: int) -> NDArray[Any]:
        first, *others = [k for k, place in enumerate(places) if place >= start]
        mass, below = masses[first], above(stop)
        drafted = sum((masses[k] for k in others), mass)
        in_block = max(above(start) - below, drafted)  # rounding may lose them in the sums
        pivotal = below / (left[-1] + mass)
        for rest in left[first:-1]:
            pivotal = pivotal * rest / (rest + mass)
        result = [mass * 0] * len(places)
        for k in others:
            result[k] = pivotal * masses[k] / in_block
        result[first] = 1 - sum(result)
        return np.array(result, dtype=drawn.q.dtype)

    return shares


def mixed_rule(
    drafts: DraftScheme, drawn: Drawn, rule_of: Callable[[DraftScheme, Drawn], BlockRule]
) -> BlockRule:
    """The rules of the parts of a mixture, weighted by how likely each is given the drafts."""
    parts = drafts.mixture_parts(exact=drawn.q.dtype == object)
    if not parts:
        raise UnsupportedScheme(f"no within-block rule is known for {drafts.scheme} drafts")
    likely = []
    for weight, component in parts:
        if component.num_drafts == drawn.tokens.size:
            likelihood = weight * _probability(component.random_draws, drawn)
            if likelihood > 0:
                likely.append((likelihood, rule_of(component, drawn)))
    total = sum(likelihood for likelihood, _ in likely)

    def shares(start: int, stop: int) -> NDArray[Any]:
        result = _zeros(drawn.q, drawn.tokens.size)
        for likelihood, rule in likely:
            result = result + likelihood / total * rule(start, stop)
        return result

    return shares


def masses_left(drawn: Drawn, rest: Any = None) -> list[Any]:
    """1 - q(X_1..X_i) for i = 1..K, as sums of what is left: no difference loses a small rest.

    The last of them is the rest, which the order of the draws does not change.
    """
    left = [mass_of_others(drawn.q, drawn.tokens) if rest is None else rest]
    for token in drawn.tokens[:0:-1]:
        left.append(left[-1] + drawn.q[token])
    return left[::-1]


def _probability(draws: RandomDraws | None, drawn: Drawn) -> Any:
    """Probability of this draft tuple under one component."""
    assert draws is not None  # or the mixture would have no prefix order
    masses = drawn.q[drawn.tokens]
    if draws.is_replaced:
        return masses.prod()
    if np.unique(drawn.tokens).size < drawn.tokens.size:
        return masses[0] * 0
    probability = masses[0]
    for mass, left in zip(masses[1:], masses_left(drawn), strict=False):
        probability = probability * mass / left
    return probability
