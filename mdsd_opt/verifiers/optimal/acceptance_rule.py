r"""Choice of the accepted draft: one rule, whatever the selection plan was made from.

1. At a mixing level s, uniform on [0, 1], take the block around the topmost draft: an edge of the
   lower convex hull of R - s Q, where R and Q are the sums of p_I and of containment over the
   groups of the plan.
2. Select a draft in the block, such that token i comes out in proportion to its weight. Over all
   levels, its law is exactly p_I.
3. Accept the selected z with probability min(1, p_z / p_I(z)); else the output is drawn from the
   positive part of p - p_I.

**Blocks.** Let the drafted tokens 1..n be in prefix order with weights w, selection masses x
(prefix sums R) and :math:`F_j = Q([j])`. For a level s in [0, 1], the vertices of the lower convex
hull of :math:`(A_j, R_j - s F_j)` cut the tokens into blocks (A = prefix sums of w). Take the
topmost block that holds a draft, and return one of its drafts such that token i of block (a, b]
comes out with probability :math:`w_i (F_b - F_a)/(A_b - A_a)`. With s uniform, the returned token
has law x: the derivative in s of the hull at A_i is minus the chord of F over the block of i; the
hull is R at 0 (R is convex in A) and zero at 1 (as R >= F, with equality at both ends). As F is
convex in A, vertices only disappear as s grows, so blocks only merge. Boundary j (after token j)
dies at level s_j; the blocks around one token form a path in a binary merge tree.

**Drafts of a block.** A rule is prepared for one draft tuple: the drafts and their places among the
tokens, or groups of tokens, in order of p/w. Asked about a block [start, stop) of places that holds
the topmost of them, it gives the probability of returning each draft. Independent draws: the first
draft in the block. Draws without replacement need a correction: with z the first draft in the
block, at place j of the draw, every other draft y of the block B is returned with probability
:math:`\pi\, q_y / q(B)`, else z, where with :math:`\sigma_i = q(X_1..X_i)` and b the prefix up to
the end of the block

.. math:: \pi = \frac{1 - A_b}{1 - \sigma_K + q_z} \prod_{i=j}^{K-1}
          \frac{1 - \sigma_i}{1 - \sigma_i + q_z}.

It is the probability that z was pivotal: that the block would have been missed, in the exponential
race behind the draws, had any other token rung in its place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Floats, Integers, Numbers, Tokens
from mdsd_opt.base.distributions import mass_of_others
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.prefix_search import RandomDraws
from mdsd_opt.verifiers.rejection import accepted
from mdsd_opt.verifiers.verdicts import Uniforms

#: Maps (start, stop) to the probability that each draft is returned, shape (K,), summing to one.
BlockRule = Callable[[int, int], Numbers]


def death_levels(x: Numbers, w: Numbers, gains: Numbers) -> Numbers:
    """Level at which each boundary between tokens disappears, in [0, 1], shape (n + 1,).

    The arguments are selection masses, weights, and what each token or group of tokens adds to Q,
    in prefix order, shape (n,) each; float64 or Fractions. The outer boundaries 0 and n live to
    level 1.
    """
    if x.dtype == object:
        return _exact_death_levels(x, w, gains)
    from mdsd_opt.verifiers.optimal import acceptance_rule_kernels as kernels

    n = x.size
    levels = np.ones(n + 1)
    links, entries = np.empty((3, n), np.int64), np.empty((2, 3 * n), np.int64)
    kernels.death_levels(np.stack([x, w, gains]), links, np.empty(3 * n), entries, levels)
    return levels


def _exact_death_levels(x: Numbers, w: Numbers, gains: Numbers) -> Numbers:
    """Merge the pair of neighbouring blocks that meets first, until level 1; O(n^2)."""
    n = x.size
    levels = np.array([Fraction(1)] * (n + 1), dtype=object)
    starts = list(range(n))
    blocks = [(x[j], w[j], gains[j]) for j in range(n)]
    while len(blocks) > 1:
        meets = [_meeting_level(a, b) for a, b in pairwise(blocks)]
        level = min(meets)
        if level >= 1:
            break
        k = meets.index(level)
        levels[starts[k + 1]] = level
        blocks[k : k + 2] = [tuple(a + b for a, b in zip(*blocks[k : k + 2], strict=True))]
        del starts[k + 1]
    return levels


def _meeting_level(low: tuple[Any, ...], high: tuple[Any, ...]) -> Fraction:
    """Level at which the slopes of two neighbouring blocks become equal, capped at 1."""
    (x_low, w_low, g_low), (x_high, w_high, g_high) = low, high
    rise = x_high / w_high - x_low / w_low
    fall = g_high / w_high - g_low / w_low
    if fall <= 0:  # F is straight here: equal ratios merge at once, others never
        return Fraction(0) if rise <= 0 else Fraction(1)
    return min(max(rise / fall, Fraction(0)), Fraction(1))


def blocks_around(top: int, levels: Numbers) -> Iterator[tuple[Any, int, int]]:
    """Blocks that hold token `top`, as (length of the level interval, start, stop).

    The interval lengths sum to one: they are the probabilities of the blocks under a uniform level.
    """
    start, stop = top, top + 1
    last = len(levels) - 1
    zero = levels[0] - levels[0]
    since = zero
    while True:
        # Everything that has died by `since` belongs to the block.
        while start > 0 and levels[start] <= since:
            start -= 1
        while stop < last and levels[stop] <= since:
            stop += 1
        left = levels[start] if start > 0 else levels[0]
        right = levels[stop] if stop < last else levels[last]
        until = min(left, right)
        if until > since:
            yield until - since, start, stop
            since = until
        if until >= levels[0]:
            return


def born_blocks(levels: Floats) -> tuple[Integers, Floats]:
    """Ends of the block born where each boundary dies, (2, n + 1), and the length of its life.

    Blocks that live for no time belong to boundaries that die at the same level.
    """
    from mdsd_opt.verifiers.optimal import acceptance_rule_kernels as kernels

    spans, life = np.empty((3, levels.size), np.int64), np.empty(levels.size)
    kernels.spans_of_blocks(levels, spans, life)
    return spans[:2], life


def mean_over_levels(rule: Callable[[int, int], Numbers], top: int, levels: Numbers) -> Numbers:
    """Mean of a rule over the blocks around token `top` at a uniform level.

    The rule takes start and stop of a block, and gives an array of numbers like the levels.
    """
    return sum(length * rule(start, stop) for length, start, stop in blocks_around(top, levels))


def mean_over_joins(
    rule: Callable[[int, int], Numbers], places: Integers, levels: Numbers
) -> Numbers:
    """Same as `mean_over_levels`, for a rule of the drafts in the block of the topmost one alone.

    A draft joins that block where the last boundary between them disappears.
    """
    top, one, stop = int(places.max()), levels[0], len(levels) - 1
    joins = {place: levels[place + 1 : top + 1].max(initial=one - one) for place in places.tolist()}

    def shares(since: Any, until: Any) -> Any:
        held = min(place for place, level in joins.items() if level <= since)
        return (until - since) * rule(held, stop)

    return sum(shares(*ends) for ends in pairwise(sorted({*joins.values(), one})))


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """One draft tuple: tokens in draw order and their places, shape (K,) both.

    q, shape (V,), are the weights, in float64 or Fractions, and `above`, shape (n + 1,), the weight
    of all tokens from each place on.
    """

    tokens: Integers
    places: Integers
    q: Numbers
    above: Numbers


#: Maps (is_replaced, drawn) to the rule for draws from one law.
RuleOfDraws = Callable[[bool, Drawn], BlockRule]


def block_rule(is_replaced: bool, drawn: Drawn) -> BlockRule:
    """Rule for draws from one law, with replacement or without, for one draft tuple."""
    return _first_draft(drawn) if is_replaced else _pivotal_draft(drawn)


def _zeros(like: Numbers, size: int) -> Numbers:
    return np.zeros(size, dtype=like.dtype) + (Fraction(0) if like.dtype == object else 0.0)


def _first_draft(drawn: Drawn) -> BlockRule:
    def shares(start: int, stop: int) -> Numbers:
        result = _zeros(drawn.q, drawn.tokens.size)
        result[(drawn.places >= start).argmax()] += 1
        return result

    return shares


def _pivotal_draft(drawn: Drawn) -> BlockRule:
    # Single numbers: there are a few drafts, and calls on arrays would take most of the time.
    places, masses = drawn.places.tolist(), drawn.q[drawn.tokens].tolist()
    above, rests = drawn.above.item, np.array(masses_left(drawn)).tolist()

    def shares(start: int, stop: int) -> Numbers:
        first, *others = [k for k, place in enumerate(places) if place >= start]
        mass, below = masses[first], above(stop)
        drafted = sum((masses[k] for k in others), mass)
        in_block = max(above(start) - below, drafted)  # rounding may lose them in the sums
        pivotal = below / (rests[-1] + mass)
        for rest in rests[first:-1]:
            pivotal = pivotal * rest / (rest + mass)
        result = [mass * 0] * len(places)
        for k in others:
            result[k] = pivotal * masses[k] / in_block
        result[first] = 1 - sum(result)
        return np.array(result, dtype=drawn.q.dtype)

    return shares


def mixed_rule(drafts: DraftScheme, drawn: Drawn, rule_of: RuleOfDraws) -> BlockRule:
    """Rules of the parts of a mixture, weighted by the probability of each given the drafts.

    Raises `UnsupportedScheme` where the drafts are no mixture of draws from one law.
    """
    likely = []
    parts = [(x, y.random_draws) for x, y in drafts.mixture_parts()]
    for weight, draws in parts:
        if draws is not None and draws.num_drafts == drawn.tokens.size:
            likelihood = weight * _probability(draws, drawn)
            if likelihood > 0:
                likely.append((likelihood, rule_of(draws.is_replaced, drawn)))
    if not parts or any(draws is None for _, draws in parts):
        raise UnsupportedScheme(f"no within-block rule is known for {drafts.scheme} drafts")
    total = sum(likelihood for likelihood, _ in likely)

    def shares(start: int, stop: int) -> Numbers:
        result = _zeros(drawn.q, drawn.tokens.size)
        for likelihood, rule in likely:
            result = result + likelihood / total * rule(start, stop)
        return result

    return shares


def masses_left(drawn: Drawn, rest: Any = None) -> list[Any]:
    """Mass 1 - q(X_1..X_i) for i = 1..K, summed from the rest: no difference loses small ones.

    The last of them is the rest, which the order of the draws does not change.
    """
    masses = [mass_of_others(drawn.q, drawn.tokens) if rest is None else rest]
    for token in drawn.tokens[:0:-1]:
        masses.append(masses[-1] + drawn.q[token])
    return masses[::-1]


def _probability(draws: RandomDraws, drawn: Drawn) -> Any:
    """Probability of this draft tuple."""
    masses = drawn.q[drawn.tokens]
    if draws.is_replaced:
        return masses.prod()
    if np.unique(drawn.tokens).size < drawn.tokens.size:
        return masses[0] * 0
    probability = masses[0]
    for mass, rest in zip(masses[1:], masses_left(drawn), strict=False):
        probability = probability * mass / rest
    return probability


class SelectionPlan(ABC):
    """Selection marginal p_I over groups of drafted tokens, in ascending order of p/w.

    A group is a single token, or all tokens of similar ratio. All numbers are float64 or Fractions.
    """

    is_replaced: bool  # whether the drafts that are random are independent draws from one law
    x: Numbers  # p_I of each group, shape (n,)
    w: Numbers  # its weight
    gains: Numbers  # what it adds to Q
    above: Numbers  # weight from each group on, shape (n + 1,)
    split: int  # number of groups in the optimal prefix H
    raised: int  # the groups below it stand on the water level c
    capped: int  # those from it on stand on c'

    @abstractmethod
    def places(self, tokens: Tokens) -> Tokens:
        """Group of each token; -1 for tokens that are never drafted."""

    @abstractmethod
    def drawn(self, tokens: Tokens) -> Drawn:
        """Draft tuple in the groups of the plan."""

    @abstractmethod
    def acceptance(self, token: int) -> Any:
        """Probability that a token is accepted once it is selected."""

    def block_rule(self, drawn: Drawn, rule_of: RuleOfDraws = block_rule) -> BlockRule:
        """Rule within blocks for one draft tuple, made by one for draws from one law."""
        return rule_of(self.is_replaced, drawn)

    def on_one_level(self, place: int, other: int) -> bool:
        """Whether two groups are on one water level: they share a block at every level."""
        return max(place, other) < self.raised or min(place, other) >= self.capped

    def block(self, tokens: Tokens, level: float) -> tuple[int, int]:
        """Block [start, stop) of groups around the topmost of these tokens at one level."""
        from mdsd_opt.verifiers.optimal import acceptance_rule_kernels as kernels

        top, size = int(self.places(tokens).max()), self.x.size
        starts, (mass, weight) = np.empty(size + 1, np.int64), np.empty((2, size))
        return kernels.block_around(
            self.x, self.w, self.gains, level, self.split, self.raised, self.capped, top, starts,
            mass, weight,
        )  # fmt: skip

    @cached_property
    def death_levels(self) -> Numbers:
        """Levels at which the boundaries between groups disappear, shape (n + 1,)."""
        return death_levels(self.x, self.w, self.gains)


class TokenPlan(SelectionPlan):
    """A plan that knows all tokens: each is accepted with min(1, p / p_I).

    It has the target of these drafts, without the tokens that are drafted anyway, and their weights
    q, shape (V,) both.
    """

    target: Numbers
    q: Numbers

    @abstractmethod
    def selected(self, token: int) -> Any:
        """Selection probability p_I of a token."""

    @abstractmethod
    def residual_token(self, uniform: float) -> int:
        """Draw the output after a rejection."""

    def drawn(self, tokens: Tokens) -> Drawn:
        return Drawn(tokens, self.places(tokens), self.q, self.above)

    def acceptance(self, token: int) -> Any:
        return accepted(self.target[token], self.selected(token))


def output_token(plan: TokenPlan, tokens: Tokens, uniforms: Uniforms) -> int:
    """Output token given the drafts that were drawn at random, in draw order."""
    token = int(tokens[selected_draft(plan, tokens, uniforms)])
    if uniforms.acceptance < plan.acceptance(token):
        return token
    return plan.residual_token(uniforms.residual)


def selected_draft(plan: SelectionPlan, tokens: Tokens, uniforms: Uniforms) -> int:
    """Index of the draft that is selected at one mixing level."""
    undisputed = undisputed_draft(plan, tokens)
    if undisputed is not None:
        return undisputed
    block = plan.block(tokens, uniforms.mixing)
    shares = plan.block_rule(plan.drawn(tokens))(*block).tolist()
    reached = list(accumulate(shares))
    chosen = bisect_right(reached, uniforms.draft * reached[-1])
    return min(chosen, max(k for k, share in enumerate(shares) if share > 0))


def undisputed_draft(plan: SelectionPlan, tokens: Tokens) -> int | None:
    """Index of the draft that is selected whatever the topmost draft's block is, or None."""
    # Lists: there are a few drafts, and calls on arrays would take most of the time.
    places, ids = plan.places(tokens).tolist(), tokens.tolist()
    top = max(places)
    # The cut is a boundary at every level: the block lies on one side of it.
    is_above = top >= plan.split
    candidates = [k for k, place in enumerate(places) if (place >= plan.split) == is_above]
    first = candidates[0]
    rivals = [places[k] for k in candidates if ids[k] != ids[first]]
    if not rivals:
        return first
    if plan.is_replaced and (places[first] > max(rivals) or plan.on_one_level(places[first], top)):
        return first
    return None


def acceptance_probabilities(
    plan: SelectionPlan, tokens: Tokens, rule_of: RuleOfDraws = block_rule
) -> Numbers:
    """Probability that each draft is accepted, over all levels; shape (K,).

    The tokens, shape (K,), are the drafts that were drawn at random, in draw order. `rule_of` may
    make, in place of `block_rule`, another rule with the same law over all drafts.
    """
    drawn = plan.drawn(tokens)
    in_block = plan.block_rule(drawn, rule_of)
    if plan.is_replaced:
        shares = mean_over_joins(in_block, drawn.places, plan.death_levels)
    else:
        shares = mean_over_levels(in_block, int(drawn.places.max()), plan.death_levels)
    for k, token in enumerate(tokens.tolist()):
        shares[k] *= plan.acceptance(token)
    return shares
