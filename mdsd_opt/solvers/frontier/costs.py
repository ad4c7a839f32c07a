"""What acceptance costs along one frontier: divergences of p_a without the laws themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mdsd_opt.solvers.frontier.curve import Frontier

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: Divergences that are a budget to be searched for, as the kernels number them.
DIVERGENCES = {"kl": 0, "chi2": 1}


@dataclass(frozen=True, slots=True, eq=False)
class CostCurve:
    """Divergence against acceptance rate, along the frontier of one problem.

    Attributes
    ----------
    hull : ndarray
        The table of `cost_kernels`.
    num_edges : int
    least, most_finite, most : float
        alpha*; the largest rate at which no mass is put where the target has none, so that KL and
        chi-square are finite; the largest rate of all.
    """

    hull: Matrix
    num_edges: int
    least: float
    most_finite: float
    most: float

    @classmethod
    def of(cls, frontier: Frontier) -> CostCurve:
        """Of a frontier in floating point."""
        return cls.of_chain(frontier.masses, frontier.contained, float(frontier.least))

    @classmethod
    def of_chain(
        cls, masses: Vector, contained: Vector, least: float, doubts: Vector | None = None
    ) -> CostCurve:
        """Of the sets of a chain.

        Parameters
        ----------
        masses : ndarray, shape (n + 1,)
            Of the target, in each step; the last step adds all that are left.
        contained : ndarray, shape (n + 1,)
            Q of the sets, from the empty one to that of n steps.
        least : float
            alpha*.
        doubts : ndarray, shape (n,), optional
            KL that a step may hide, for each unit that it adds to Q; by default none.
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
        """The divergence of p_a."""
        return self._point(name, acceptance_rate)[0]

    def slope(self, name: str, acceptance_rate: float) -> float:
        """What the divergence rises by for each unit of acceptance.

        One more unit adds one to every set of the chain but the last: the multipliers of these sets
        sum to f' of the largest x/p less that of the smallest.
        """
        return self._point(name, acceptance_rate)[1]

    def doubt(self, name: str, acceptance_rate: float) -> float:
        """By how much the divergence may be larger, for what the steps of the chain hide."""
        if acceptance_rate > self.most_finite:
            return 0.0
        from mdsd_opt.solvers.frontier.cost_kernels import point

        return point(self.hull, self.num_edges, acceptance_rate, DIVERGENCES[name])[2]

    def rate_within(self, name: str, budget: float) -> float:
        """The largest acceptance rate that costs no more than a budget."""
        from mdsd_opt.solvers.frontier.cost_kernels import rate_within

        if budget == np.inf:
            return self.most
        ends = self.least, self.most_finite
        return rate_within(self.hull, self.num_edges, *ends, budget, DIVERGENCES[name])

    def rate_at_slope(self, name: str, slope: float) -> float:
        """The largest acceptance rate up to which the divergence rises no faster than `slope`."""
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
