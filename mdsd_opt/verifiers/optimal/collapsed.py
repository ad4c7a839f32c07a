r"""The optimal rule on buckets of p/q: one pass, an exact law, and a certified loss of acceptance.

Let the selection marginal have one ratio to q in every bucket, :math:`p_I = \rho_b q`. Cut, water
levels and hull then live on the buckets alone, and the output still follows the target exactly,
whatever :math:`\rho` is, as long as its prefix sums stay above those of Q. Inside the optimal
subset :math:`\rho_b` is raised to the bucket's largest ratio, outside it is lowered to the least
one, as far as the room that acceptance leaves allows: then nothing is lost at all, for a token is
accepted with min(1, p/p_I). The rest is what `acceptance_rate` reports as its `gap`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, WithoutReplacement, WithReplacement
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import (
    Decision,
    Uniforms,
    Verdict,
    Verifier,
    impossible_drafts,
    possible_token,
    verdict,
)
from mdsd_opt.verifiers.estimate import CertifiedRate
from mdsd_opt.verifiers.optimal import block_kernels, doubt_kernels
from mdsd_opt.verifiers.optimal import ratio_groups_kernels as kernels
from mdsd_opt.verifiers.optimal.block_rules import BlockRule, pivotal_shares
from mdsd_opt.verifiers.optimal.containment import containment_of
from mdsd_opt.verifiers.optimal.hull import blocks_around, death_levels
from mdsd_opt.verifiers.optimal.sort_free_step import applies_to, masses_left

Vector = NDArray[np.float64]
Tokens = NDArray[np.int64]


class CollapsedPlan:
    """Selection marginal of one position, constant relative to q in every bucket.

    Attributes
    ----------
    x, w, slopes : ndarray, shape (n,)
        Selection mass, mass of q and slope of Q of every bucket, in ascending order of p/q.
    split : int
        Buckets in the optimal subset.
    ratio : ndarray, shape (NUM_BUCKETS,)
        p_I / q in every bucket.
    most : float
        No lossless rule accepts with a higher probability.
    """

    def __init__(self, p: Vector, drafts: WithReplacement | WithoutReplacement) -> None:
        self.drafts, self.p, self.q = drafts, p, drafts.q
        self.buckets = kernels.token_buckets(p, self.q)
        containment = containment_of(p, drafts, self.buckets, coarse=True)
        groups = containment.closed()
        self.split = doubt_kernels.best_cut(groups)
        cut = float(groups.sums_p[self.split] - groups.contained[self.split])
        self.most = min(max(1.0 + cut, 0.0), 1.0)
        # Contiguous for any number of buckets, or a single one would be compiled for anew.
        masses, self.w = np.ascontiguousarray(containment.sums[groups.buckets, :2].T)
        edges = kernels.EDGES[groups.buckets], kernels.EDGES[containment.ends[groups.buckets]]
        selected = _selected(groups, masses, self.w, *edges, self.split)
        self.x = np.maximum(np.diff(np.maximum(selected, groups.contained)), 0.0)
        self.slopes = np.diff(groups.contained) / self.w
        self.above = np.append(np.cumsum(self.w[::-1])[::-1], 0.0)
        ends = np.concatenate(([0], groups.buckets, [kernels.NUM_BUCKETS]))
        self._place = np.repeat(np.arange(-1, groups.buckets.size), np.diff(ends))
        self.ratio = (self.x / self.w)[self._place]
        self.ratio[kernels.NEVER_DRAFTED] = 0.0

    @property
    def selected(self) -> Vector:
        """p_I of every token."""
        return self.ratio[self.buckets] * self.q

    def places(self, tokens: Tokens) -> Tokens:
        """Bucket of each draft, counted from the lowest."""
        return self._place[self.buckets[tokens]]

    def accepted_share(self, token: int) -> float:
        """min(1, p / p_I); a token of probability zero is never accepted."""
        p, x = float(self.p[token]), float(self.ratio[self.buckets[token]] * self.q[token])
        return p / x if p < x else float(p > 0.0)

    def residual(self) -> Vector:
        """Law of the output after a rejection; the target where only rounding can reject."""
        excess = np.maximum(self.p - self.selected, 0.0)
        total = excess.sum()
        return excess / total if total > 0.0 else self.p

    def rule(self, tokens: Tokens) -> BlockRule:
        """Probability of returning each draft, given the block."""
        places = self.places(tokens)

        def first_draft(start: int, stop: int) -> Vector:
            shares = np.zeros(tokens.size)
            shares[np.flatnonzero(places >= start)[0]] = 1.0
            return shares

        if isinstance(self.drafts, WithReplacement):
            return first_draft
        left = masses_left(self.q, tokens)

        def pivotal_draft(start: int, stop: int) -> Vector:
            inside = np.flatnonzero(places >= start)
            in_block = float(self.above[start] - self.above[stop])
            return pivotal_shares(self.q[tokens], left, inside, in_block, float(self.above[stop]))

        return pivotal_draft


def _selected(
    groups: kernels.Groups,
    p_inside: Vector,
    q_inside: Vector,
    lowest: Vector,
    highest: Vector,
    split: int,
) -> Vector:
    """R at the ends of the buckets, before it is kept above Q."""
    inside = float(groups.contained[split])
    x = np.empty(p_inside.size)

    rounded = np.where(highest < np.inf, highest * q_inside, p_inside)[:split]
    sums = np.append(0.0, np.cumsum(rounded))
    if sums[-1] <= inside:
        ratios = rounded / q_inside[:split]
        raised, level = block_kernels.raise_level(
            sums, groups.sums_q[: split + 1], ratios, split, inside
        )
        x[:split] = np.append(level * q_inside[:raised], rounded[raised:])
    else:  # as far from the mean ratio to the largest as there is room
        x[:split] = _between(p_inside[:split], rounded, inside)

    outside = 1.0 - inside
    rounded = lowest[split:] * q_inside[split:]
    sums = np.append(0.0, np.cumsum(rounded))
    if sums[-1] >= outside:
        capped, level = block_kernels.cap_level(
            sums, groups.sums_q[split:] - groups.sums_q[split], lowest[split:], 0, outside
        )
        x[split:] = np.append(rounded[:capped], level * q_inside[split:][capped:])
    else:
        x[split:] = _between(p_inside[split:], rounded, outside)

    selected = np.append(0.0, np.cumsum(x))
    selected[split] = inside
    selected[split + 1 :] = inside + np.cumsum(x[split:])
    selected[-1] = 1.0
    return selected


def _between(mean: Vector, rounded: Vector, total: float) -> Vector:
    """Mean masses moved towards the rounded ones until they sum to the total."""
    room = float(rounded.sum() - mean.sum())
    share = (total - float(mean.sum())) / room if room != 0.0 else 0.0
    return mean + min(max(share, 0.0), 1.0) * (rounded - mean)


class CollapsedOptimal(Verifier):
    """`optimal` on buckets of p/q: exactly lossless, next to optimal, one pass over the vocabulary.

    Lossless for drafts with and without replacement. Where these are certain, or the vocabulary is
    too large for the buckets (2**18 tokens), the exact rule decides. Cost: O(V) for a decision.
    Source: this package.

    Parameters
    ----------
    exact : Verifier
        The exact rule.
    """

    name: ClassVar[str] = "optimal"
    schemes: ClassVar[tuple[type[DraftScheme], ...]] = (WithReplacement, WithoutReplacement)
    rational: ClassVar[bool] = False

    def __init__(self, exact: Verifier) -> None:
        self._exact = exact

    def acceptance_rate(self, problem: TransportProblem) -> CertifiedRate:
        """Probability of accepting a draft; the optimum is at most its `gap` higher.

        The rare residual draws that hit a draft come on top, at most `gap` of them.
        """
        self.check(problem)
        if not applies_to(problem.drafts):
            return CertifiedRate(float(self._exact.acceptance_rate(problem)), 0.0)
        plan = self._plan(problem)
        rate = float(np.minimum(plan.p, plan.selected).sum())
        return CertifiedRate(min(rate, 1.0), max(plan.most - rate, 0.0))

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        if not applies_to(problem.drafts):
            return self._exact.decide(problem, drafts, exact)
        plan = self._plan(problem)
        rule, places = plan.rule(drafts), plan.places(drafts)
        levels = death_levels(plan.x, plan.w, plan.slopes)
        shares = np.zeros(drafts.size)
        for length, start, stop in blocks_around(int(places.max()), levels):
            shares += length * rule(start, stop)
        accept = np.array([s * plan.accepted_share(t) for s, t in zip(shares, drafts, strict=True)])
        return Decision(accept, plan.residual())

    def _verify(
        self, problem: TransportProblem, tokens: NDArray[np.int64], uniforms: Uniforms
    ) -> Verdict:
        if not applies_to(problem.drafts):
            return self._exact._verify(problem, tokens, uniforms)
        from mdsd_opt.verifiers.optimal.hull_kernels import block_at_level

        plan = self._plan(problem)
        top = int(plan.places(tokens).max())
        if top < 0:
            raise impossible_drafts(problem.drafts, tokens)
        first, last = (0, plan.split) if top < plan.split else (plan.split, plan.w.size)
        block = block_at_level(plan.x, plan.w, plan.slopes, uniforms.mixing, first, last, top)
        shares = plan.rule(tokens)(*block)
        reached = np.cumsum(shares)
        chosen = int(np.searchsorted(reached, uniforms.draft * reached[-1], side="right"))
        token = int(tokens[min(chosen, int(np.flatnonzero(shares > 0)[-1]))])
        if uniforms.acceptance < plan.accepted_share(token):
            return verdict(token, tokens)
        drawn = kernels.excess_token(plan.p, plan.q, plan.buckets, plan.ratio, uniforms.residual)
        return verdict(possible_token(plan.p, tokens) if drawn < 0 else int(drawn), tokens)

    def _plan(self, problem: TransportProblem) -> CollapsedPlan:
        drafts: Any = problem.drafts
        return CollapsedPlan(problem.target, drafts)
