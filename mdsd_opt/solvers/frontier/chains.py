"""Chain of sets that determines a frontier, and the frontier of a problem.

Prefixes, by one sort, where the draft scheme has a prefix order; where no order of the tokens is
known, the principal partition of Q.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.array_types import Flags
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.problem import TransportProblem, checked_problem
from mdsd_opt.solvers.frontier.curve import Frontier, Massless
from mdsd_opt.solvers.subset_selection import best_prefix

#: Largest error of the height of the chain's hull, in floating point.
TOLERANCE = 1e-6

#: Error of alpha* itself, in floating point.
_LOSSLESS = 1e-10

#: Largest vocabulary for which all subsets are compared in exact arithmetic.
MAX_EXACT_VOCAB = 12


def frontier_of(problem: TransportProblem, exact: bool = False) -> Frontier:
    """Frontier of a problem, prepared for any number of laws."""
    if checked_problem(problem).drafts.prefix_form is not None:
        return by_prefixes(problem, exact)
    return by_decomposition(problem, exact)


def by_decomposition(problem: TransportProblem, exact: bool = False) -> Frontier:
    r"""Frontier by repeated minima of :math:`\lambda P(H) - Q(H)` (Fujishige's decomposition).

    Between two sets of the chain, :math:`\lambda` is the slope of their chord; a set above the
    chord joins the chain, and where there is none the chord is an edge of the hull. Each
    minimisation is one of `solvers.submodular`; in exact arithmetic all subsets are compared.

    Raises
    ------
    ProblemTooLarge
        Too many tokens for exact arithmetic, or for a draft law that is known by Q alone.
    """
    sets = SetsOfChain(problem, exact)
    massless, everything = sets.p == 0, sets.p >= 0
    empty = sets.point(~everything)
    lossless = sets.point(sets.highest(1, _LOSSLESS) | massless)  # the set of alpha* itself
    chain = _chain_between(sets, sets.point(massless), lossless, sets.point(everything))
    groups = np.full(sets.p.size, len(chain), dtype=np.int64)
    for step in range(len(chain) - 1, -1, -1):
        groups[chain[step].subset] = step
    tokens = np.flatnonzero(massless)
    masses = np.diff(np.array([empty.mass, *(x.mass for x in chain)], dtype=sets.p.dtype))
    # the last set of the chain, all tokens, is the last step of a frontier, without a Q of its own
    contained = [empty.contained, *(x.contained for x in chain[:-1])]
    return Frontier(
        p=sets.p,
        groups=groups,
        masses=masses,
        contained=np.array(contained, dtype=sets.p.dtype),
        massless=Massless(tokens, sets.drafts.prefix_containment(tokens), weights=None),
        least=1 + min(x.mass - x.contained for x in (empty, *chain)),
    )


def shortfall(relaxed: TransportProblem, acceptance_rate: float) -> float:
    """Difference of the rate a relaxed target is made for and its proven one, at least 0."""
    from mdsd_opt.solvers.solving import solve

    proven = solve(relaxed, "submodular", tolerance=TOLERANCE / 10).lower_bound
    return max(acceptance_rate - proven, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """A set H of the chain, P(H) and Q(H)."""

    subset: Flags
    mass: Any
    contained: Any


class SetsOfChain:
    """Source of the sets above a chord: minimisation, or in exact arithmetic all subsets."""

    tolerance: ClassVar[float] = TOLERANCE

    def __init__(self, problem: TransportProblem, exact: bool) -> None:
        size, drafts = problem.vocab_size, problem.drafts
        if exact and size > MAX_EXACT_VOCAB:
            raise ProblemTooLarge(
                f"exact=True compares all subsets of the {size} tokens, as {drafts!r} "
                f"has no prefix order; it takes at most {MAX_EXACT_VOCAB}: leave it out"
            )
        self.problem = problem
        law = problem.law(exact)
        self.p, self.drafts = law.target, law.drafts
        self.least_rise = Fraction(0) if exact else self.tolerance
        every = product((False, True), repeat=size) if exact else ()
        self._points = [self.point(np.array(bits)) for bits in every]

    def point(self, subset: Flags) -> _Point:
        return _Point(subset, self.p[subset].sum() + self.p[0] * 0, self.drafts.containment(subset))

    def highest(self, slope: Any, tolerance: float = TOLERANCE / 10) -> Flags:
        """Set that minimises slope P(H) - Q(H), among all but the empty one."""
        if self._points:
            return min(self._points, key=lambda x: slope * x.mass - x.contained).subset
        from mdsd_opt.solvers.submodular import SearchLimits, smallest_difference

        # A token that weighs more than Q in all is in no such set, however much more it weighs.
        masses = np.minimum(slope * self.p, 2.0)
        return smallest_difference(self.problem, masses, SearchLimits(tolerance))[0]


def _chain_between(sets: SetsOfChain, first: _Point, inner: _Point, last: _Point) -> list[_Point]:
    """Sets of the chain from `first` (left out if it is empty) to `last`, growing."""
    chain, ahead = [first] if first.subset.any() else [], [last]
    if first.mass < inner.mass < last.mass:
        ahead.append(inner)
    low = first
    while ahead:
        high = ahead[-1]
        between = _above(sets, low, high)
        if between is None:
            chain.append(ahead.pop())
            low = high
        else:
            ahead.append(between)
    return chain


def _above(sets: SetsOfChain, low: _Point, high: _Point) -> _Point | None:
    """Set between two of the chain that lies above their chord, or None."""
    width = high.mass - low.mass
    if width <= 0:
        return None
    slope = (high.contained - low.contained) / width
    between = sets.point((sets.highest(slope) | low.subset) & high.subset)
    rise = (between.contained - low.contained) - slope * (between.mass - low.mass)
    if rise > sets.least_rise and low.mass < between.mass < high.mass:
        return between
    return None


def by_prefixes(problem: TransportProblem, exact: bool = False) -> Frontier:
    r"""Frontier in closed form: p times the slopes of a least concave majorant.

    With the tokens in prefix order, P_j and F_j the target's mass and Q of the first j,
    :math:`p_a / p` is the slope of the least concave majorant of the points
    :math:`(P_j, (F_j - c)_+)`, :math:`j < V`, and (1, 1). Tokens of p = 0 that come first share
    what falls to them in proportion to the weights of the scheme, which is the limit of small equal
    ratios p/w.
    """
    drafts = problem.drafts.prefix_form
    assert drafts is not None
    p, weights = problem.law(exact).target, drafts.law(exact).weights
    order, contained, _, difference = best_prefix(p, drafts)
    masses = p[order]
    positive = np.flatnonzero(masses > 0)
    first = int(positive[0]) if positive.size else order.size
    first_weights = weights[order[:first]]
    massless = Massless(
        tokens=order[:first],
        contained=contained[: first + 1],
        weights=np.where(first_weights > 0, first_weights, first_weights * 0 + 1),
    )
    groups = np.full(p.size, order.size, dtype=np.int64)
    groups[order] = np.arange(order.size)
    rest = p[groups == order.size].sum() + p[0] * 0
    return Frontier(
        p=p,
        groups=groups,
        masses=np.append(masses, rest),
        contained=contained,
        massless=massless,
        least=1 + difference,
    )
