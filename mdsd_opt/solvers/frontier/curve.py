r"""Frontier of one problem: for each acceptance rate the closest law, by one hull.

With c = 1 - a, a law x allows acceptance a iff :math:`x(H) \ge s(H)` for every H, where
:math:`s(H) = (Q(H) - c)_+` and s(V) = 1. That is the base polytope of a supermodular function, and
one of its points, :math:`p_a`, is closest to p in every f-divergence at once. It comes from one
chain of sets, those that minimise :math:`\lambda P(H) - Q(H)` for some :math:`\lambda`, and the
chain does not depend on a: prefixes where the tokens have a prefix order, the principal partition
of Q elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Flags, Integers, Matrix, Numbers
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.problem import TransportProblem, checked_problem
from mdsd_opt.solvers.subset_selection import best_prefix

#: Numbers, in the kernels, of the divergences that are budgets to be searched for.
DIVERGENCES = {"kl": 0, "chi2": 1}


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Straight pieces of the least concave majorant of a curve with n steps, steepest first.

    Block b holds the steps from ``ends[b - 1]`` (0 for the first) up to ``ends[b]``, with the sums
    of their widths and gains, shape (m,). At most the first width is zero, or all are.
    """

    ends: Integers
    widths: Numbers
    gains: Numbers

    def slopes(self) -> Numbers:
        """Gain over width of each step's block, shape (n,); 0 if it has no width."""
        flat = self.widths == 0
        slopes = self.gains * 0
        slopes[~flat] = self.gains[~flat] / self.widths[~flat]
        return np.repeat(slopes, np.diff(self.ends, prepend=0))


def falling_blocks(widths: Numbers, gains: Numbers) -> Blocks:
    """Blocks of steps, pooled until gain/width falls; a gain of no width is infinite.

    Widths and gains, shape (n,), are not negative; float64 or Fractions.
    """
    if widths.dtype == object:
        return _exactly(widths, gains)
    from mdsd_opt.prefix_search import pool_falling

    ends, (width, gain) = np.empty(widths.size, np.int64), np.empty((2, widths.size))
    count = pool_falling(widths, gains, ends, width, gain)
    return Blocks(ends[:count], width[:count], gain[:count])


def _exactly(widths: Numbers, gains: Numbers) -> Blocks:
    blocks: list[tuple[int, Any, Any]] = []
    for i, (width, gain) in enumerate(zip(widths, gains, strict=True)):
        end = i + 1
        while blocks and blocks[-1][2] * width <= gain * blocks[-1][1]:
            _, low_width, low_gain = blocks.pop()
            width, gain = width + low_width, gain + low_gain
        blocks.append((end, width, gain))
    ends, width, gain = (np.array(column, dtype=object) for column in zip(*blocks, strict=True))
    return Blocks(ends.astype(np.int64), width, gain)


@dataclass(frozen=True, slots=True, eq=False)
class Massless:
    """Tokens of p = 0 that a chain begins with, shape (m,): their slope is infinite.

    `contained` is Q of the first 0..m of them. A straight piece is shared in proportion to the
    weights; without any, each takes what it adds to s, which is possible in any order.
    """

    tokens: Integers
    contained: Numbers
    weights: Numbers | None

    def shares(self, lost: Any) -> Numbers:
        """Masses of the tokens under p_a, with c = `lost`."""
        gains = _gains(self.contained, lost)
        if self.weights is None:
            return gains
        return self.weights * falling_blocks(self.weights, gains).slopes()


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """Laws p_a of one problem, in float64 or Fractions.

    `groups`, shape (V,), says which step of the chain adds a token; the last step, n, adds all that
    are left. `masses`, shape (n + 1,), are those of the target p, in each step, and `contained`, of
    the same shape, Q of the sets, from the empty one to that of n steps. `massless` are the tokens
    of the first step, if it has no mass, and `least` is alpha*, the acceptance rate of the target
    itself.
    """

    p: Numbers
    groups: Integers
    masses: Numbers
    contained: Numbers
    massless: Massless
    least: Any

    @property
    def exact(self) -> bool:
        """Whether the frontier is computed in Fractions."""
        return self.p.dtype == object

    @property
    def most(self) -> Any:
        """Largest rate of any law, 1 - Pr(nothing is drafted)."""
        return 1 - self.contained[0]

    @property
    def most_finite(self) -> Any:
        """Largest rate at which p_a has mass only where p has: KL and chi-square are finite."""
        return 1 - self.massless.contained[-1]

    def law(self, acceptance_rate: Any) -> Numbers:
        """Law p_a, shape (V,), for an acceptance rate from `least` to `most`."""
        blocks = self._blocks(acceptance_rate)
        x: Numbers = self.p * blocks.slopes()[self.groups]
        if acceptance_rate > self.most_finite and blocks.widths[0] == 0:
            x[self.massless.tokens] = self.massless.shares(1 - acceptance_rate)
        return x

    def _blocks(self, acceptance_rate: Any) -> Blocks:
        gains = _gains(self.contained, 1 - acceptance_rate, acceptance_rate * 0 + 1)
        return falling_blocks(self.masses, gains)


def _gains(contained: Numbers, lost: Any, last: Any = None) -> Numbers:
    """Gains of (Q - c)_+ in each step, and in a last one up to `last`."""
    heights = contained - lost
    heights = np.where(heights > 0, heights, heights * 0)
    if last is not None:
        heights = np.append(heights, last)
    gains = np.diff(heights)
    return np.where(gains > 0, gains, gains * 0)  # Q of a quadrature may fall by 1e-16


@dataclass(frozen=True, slots=True, eq=False)
class CostCurve:
    """Divergence against acceptance rate, along the frontier of one problem.

    `hull` is the table of `cost_kernels`; `least` is alpha*; up to `most_finite` no mass is put
    where the target has none, so that KL and chi-square are finite; `most` is the largest rate of
    all.
    """

    hull: Matrix
    num_edges: int
    least: float
    most_finite: float
    most: float

    @classmethod
    def of(cls, frontier: Frontier) -> CostCurve:
        """Curve of a frontier in floating point."""
        return cls.of_chain(frontier.masses, frontier.contained, float(frontier.least))

    @classmethod
    def of_chain(
        cls, masses: Numbers, contained: Numbers, least: float, doubts: Numbers | None = None
    ) -> CostCurve:
        """Curve of the sets of a chain, whose masses and Q are as in `Frontier`.

        `doubts`, shape (n,), are the KL that a step may hide, for each unit that it adds to Q; by
        default none.
        """
        from mdsd_opt.solvers.frontier import cost_kernels

        steps = masses[:-1]
        positive = np.flatnonzero(steps > 0)
        first = int(positive[0]) if positive.size else steps.size
        gains = np.maximum(np.diff(contained[first:]), 0.0)
        widths = steps[first:]
        doubts = np.zeros(widths.size) if doubts is None else doubts[first:]
        hull = np.empty((cost_kernels.ROWS, widths.size + 1))
        start = float(contained[first])
        room = np.empty(widths.size, np.int64)
        count = cost_kernels.build_hull(widths, gains, doubts, start, float(masses[-1]), room, hull)
        most = max(1.0 - float(contained[0]), least)
        return cls(hull, count, least, max(1.0 - start, least), most)

    def cost(self, name: str, acceptance_rate: float) -> float:
        """Divergence of p_a."""
        return self._point(name, acceptance_rate)[0]

    def slope(self, name: str, acceptance_rate: float) -> float:
        """Increase of the divergence per unit of acceptance.

        One more unit adds one to every set of the chain but the last: the multipliers of these sets
        sum to f' of the largest x/p less that of the smallest.
        """
        return self._point(name, acceptance_rate)[1]

    def doubt(self, name: str, acceptance_rate: float) -> float:
        """Largest part of the divergence that the steps of the chain may hide."""
        if acceptance_rate > self.most_finite:
            return 0.0
        from mdsd_opt.solvers.frontier.cost_kernels import point

        return point(self.hull, self.num_edges, acceptance_rate, DIVERGENCES[name])[2]

    def rate_within(self, name: str, budget: float) -> float:
        """Largest acceptance rate that costs no more than a budget."""
        from mdsd_opt.solvers.frontier.cost_kernels import rate_within

        if budget == np.inf:
            return self.most
        ends = self.least, self.most_finite
        return rate_within(self.hull, self.num_edges, *ends, budget, DIVERGENCES[name])

    def rate_at_slope(self, name: str, slope: float) -> float:
        """Largest acceptance rate up to which the divergence rises no faster than `slope`."""
        from mdsd_opt.solvers.frontier.cost_kernels import rate_at_slope

        ends = self.least, self.most_finite
        return rate_at_slope(self.hull, self.num_edges, *ends, slope, DIVERGENCES[name])

    def _point(self, name: str, acceptance_rate: float) -> tuple[float, float]:
        if acceptance_rate <= self.least:  # the target itself, which is no matter of rounding
            return 0.0, 0.0
        if acceptance_rate > self.most_finite:
            return np.inf, np.inf
        from mdsd_opt.solvers.frontier.cost_kernels import point

        return point(self.hull, self.num_edges, acceptance_rate, DIVERGENCES[name])[:2]


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
