r"""The frontier of one problem: for each acceptance rate the closest law, by one hull.

With c = 1 - a, a law x allows acceptance a iff :math:`x(H) \ge s(H)` for every H, where
:math:`s(H) = (Q(H) - c)_+` and s(V) = 1. That is the base polytope of a supermodular function, and
one of its points, :math:`p_a`, is closest to p in every f-divergence at once. It comes from one
chain of sets, those that minimise :math:`\lambda P(H) - Q(H)` for some :math:`\lambda`, and the
chain does not depend on a: prefixes where the tokens have a prefix order, the principal partition
of Q elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.solvers.frontier.concave import Blocks, falling_blocks

Vector = NDArray[Any]  #: float64, or Fractions


@dataclass(frozen=True, slots=True, eq=False)
class Massless:
    """The tokens of p = 0 that a chain begins with: their slope is infinite.

    Attributes
    ----------
    tokens : ndarray of int64, shape (m,)
    contained : ndarray, shape (m + 1,)
        Q of the first 0..m of them.
    weights : ndarray, shape (m,), or None
        In proportion to which a straight piece is shared; None: each takes what it adds to s, which
        is possible in any order.
    """

    tokens: NDArray[np.int64]
    contained: Vector
    weights: Vector | None

    def shares(self, lost: Any) -> Vector:
        """Their masses under p_a, with c = `lost`."""
        gains = _gains(self.contained, lost)
        if self.weights is None:
            return gains
        return self.weights * falling_blocks(self.weights, gains).slopes()


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """The laws p_a of one problem.

    Attributes
    ----------
    p : ndarray, shape (V,)
        The target; float64, or Fractions.
    groups : ndarray of int64, shape (V,)
        Which step of the chain adds a token; the last step, n, adds all that are left.
    masses : ndarray, shape (n + 1,)
        Of the target, in each step.
    contained : ndarray, shape (n + 1,)
        Q of the sets of the chain, from the empty one to that of n steps.
    massless : Massless
        The tokens of the first step, if it has no mass.
    least : float or Fraction
        alpha*, the acceptance rate of the target itself.
    """

    p: Vector
    groups: NDArray[np.int64]
    masses: Vector
    contained: Vector
    massless: Massless
    least: Any

    @property
    def exact(self) -> bool:
        """Whether it computes in Fractions."""
        return self.p.dtype == object

    @property
    def most(self) -> Any:
        """1 - Pr(nothing is drafted): no law allows more."""
        return 1 - self.contained[0]

    @property
    def most_finite(self) -> Any:
        """Up to here p_a has mass only where the target has: KL and chi-square are finite."""
        return 1 - self.massless.contained[-1]

    def law(self, acceptance_rate: Any) -> Vector:
        """p_a, shape (V,), for an acceptance rate from `least` to `most`."""
        blocks = self._blocks(acceptance_rate)
        x: Vector = self.p * blocks.slopes()[self.groups]
        if acceptance_rate > self.most_finite and blocks.widths[0] == 0:
            x[self.massless.tokens] = self.massless.shares(1 - acceptance_rate)
        return x

    def _blocks(self, acceptance_rate: Any) -> Blocks:
        gains = _gains(self.contained, 1 - acceptance_rate, acceptance_rate * 0 + 1)
        return falling_blocks(self.masses, gains)


def _gains(contained: Vector, lost: Any, last: Any = None) -> Vector:
    """What each step adds to (Q - c)_+, and a last one up to `last`."""
    heights = contained - lost
    heights = np.where(heights > 0, heights, heights * 0)
    if last is not None:
        heights = np.append(heights, last)
    gains = np.diff(heights)
    return np.where(gains > 0, gains, gains * 0)  # Q of a quadrature may fall by 1e-16
