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
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, WithoutReplacement, WithReplacement
from mdsd_opt.prefix_search import ratio_groups_kernels as kernels
from mdsd_opt.prefix_search.cut_search import CutSearch
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.base import (
    Decision,
    Uniforms,
    Verdict,
    Verifier,
    verdict,
)
from mdsd_opt.verifiers.estimate import CertifiedRate
from mdsd_opt.verifiers.optimal.acceptance_rule import acceptance_probabilities, output_token
from mdsd_opt.verifiers.optimal.grouped_plan import applies_to, token_above
from mdsd_opt.verifiers.optimal.plan import SelectionPlan
from mdsd_opt.verifiers.rejection import residual_law
from mdsd_opt.water_filling import fill

Vector = NDArray[np.float64]
Tokens = NDArray[np.int64]


class CollapsedPlan(SelectionPlan):
    """Every bucket is a group, with a marginal that is constant relative to q.

    Attributes
    ----------
    ratio : ndarray, shape (NUM_BUCKETS,)
        p_I / q in every bucket.
    most : float
        No lossless rule accepts with a higher probability.
    """

    def __init__(self, p: Vector, drafts: WithReplacement | WithoutReplacement) -> None:
        self.drafts, self.target, self.q = drafts, p, drafts.q
        search = CutSearch(p, drafts, coarse=True)
        containment, groups, self.split = search.containment, search.groups, search.split
        self.buckets = containment.buckets
        cut = float(groups.sums_p[self.split] - groups.contained[self.split])
        self.most = min(max(1.0 + cut, 0.0), 1.0)
        masses, self.w = containment.sums[groups.buckets, :2].T.copy()
        lowest = kernels.EDGES[groups.buckets]
        highest = kernels.EDGES[containment.run_ends[groups.buckets]]
        selected = selected_sums(masses, self.w, lowest, highest, self.split, groups.contained)
        # Rounding masses may have brought R below Q, and with it groups off their water level.
        self.x = np.maximum(np.diff(np.maximum(selected, groups.contained)), 0.0)
        self.raised, self.capped = 0, self.x.size
        self.gains = np.diff(groups.contained)
        self.above = np.append(np.cumsum(self.w[::-1])[::-1], 0.0)
        ends = np.concatenate(([0], groups.buckets, [kernels.NUM_BUCKETS]))
        self._place = np.repeat(np.arange(-1, groups.buckets.size), np.diff(ends))
        self.ratio = (self.x / self.w)[self._place]
        self.ratio[kernels.NEVER_DRAFTED] = 0.0

    @property
    def selection(self) -> Vector:
        """p_I of every token."""
        return self.ratio[self.buckets] * self.q

    @property
    def residual(self) -> Vector:
        """Law of the output after a rejection; the target where only rounding can reject."""
        return residual_law(self.target, self.selection)

    def places(self, tokens: Tokens) -> Tokens:
        return self._place[self.buckets[tokens]]

    def selected(self, token: int) -> float:
        return float(self.ratio[self.buckets[token]] * self.q[token])

    def residual_token(self, uniform: float) -> int:
        return token_above(self.target, self.q, self.buckets, self.ratio, uniform)


def selected_sums(
    p: Vector, q: Vector, lowest: Vector, highest: Vector, split: int, contained: Vector
) -> Vector:
    """R at the ends of the buckets, before it is kept above Q."""
    inside = float(contained[split])
    rounded = np.concatenate(
        [np.where(highest < np.inf, highest * q, p)[:split], (lowest * q)[split:]]
    )
    low, high = slice(split), slice(split, None)
    if rounded[low].sum() > inside:
        rounded[low] = _between(p[low], rounded[low], inside)
    if rounded[high].sum() < 1.0 - inside:
        rounded[high] = _between(p[high], rounded[high], 1.0 - inside)
    x = fill(rounded, q, split, inside, 1.0 - inside)[0]
    selected = np.append(0.0, np.cumsum(x))
    selected[split] = inside
    selected[split + 1 :] = inside + np.cumsum(x[split:])
    selected[-1] = 1.0
    return selected


def _between(mean: Vector, rounded: Vector, total: float) -> Vector:
    """As far from the mean masses to the rounded ones as there is room for in the total."""
    room = float(rounded.sum() - mean.sum())
    share = (total - float(mean.sum())) / room if room != 0.0 else 0.0
    return mean + min(max(share, 0.0), 1.0) * (rounded - mean)


class CollapsedOptimal(Verifier):
    """`optimal` on buckets of p/q: exactly lossless, next to optimal, one pass over the vocabulary.

    Lossless for drafts with and without replacement. Where these are certain, or the vocabulary is
    too large for the buckets (2**18 tokens), the exact rule decides. Cost: O(V) once for each
    problem and for each rejection; else O(number of buckets).
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
        self._known: WeakKeyDictionary[TransportProblem, CollapsedPlan] = WeakKeyDictionary()

    def acceptance_rate(self, problem: TransportProblem) -> CertifiedRate:
        """Probability of accepting a draft; the optimum is at most its `gap` higher.

        The rare residual draws that hit a draft come on top, at most `gap` of them.
        """
        self.check(problem)
        if not applies_to(problem.drafts):
            return CertifiedRate(float(self._exact.acceptance_rate(problem)), 0.0)
        plan = self._plan(problem)
        rate = float(np.minimum(plan.target, plan.selection).sum())
        return CertifiedRate(min(rate, 1.0), max(plan.most - rate, 0.0))

    def decide(
        self, problem: TransportProblem, drafts: NDArray[np.int64], exact: bool = False
    ) -> Decision:
        if not applies_to(problem.drafts):
            return self._exact.decide(problem, drafts, exact)
        plan = self._plan(problem)
        return Decision(acceptance_probabilities(plan, drafts), plan.residual)

    def _verify(
        self, problem: TransportProblem, tokens: NDArray[np.int64], uniforms: Uniforms
    ) -> Verdict:
        if not applies_to(problem.drafts):
            return self._exact._verify(problem, tokens, uniforms)
        return verdict(output_token(self._plan(problem), tokens, uniforms), tokens)

    def _plan(self, problem: TransportProblem) -> CollapsedPlan:
        if problem not in self._known:
            drafts: Any = problem.drafts
            self._known[problem] = CollapsedPlan(problem.target, drafts)
        return self._known[problem]
