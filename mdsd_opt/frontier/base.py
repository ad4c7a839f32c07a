r"""The frontier of one problem: for each acceptance rate the closest law.

With c = 1 - a, a law x allows acceptance a iff :math:`x(H) \ge s(H)` for every H, where
:math:`s(H) = (Q(H) - c)_+` and s(V) = 1. That is the base polytope of a supermodular function, and
one of its points is closest to p in every f-divergence at once: :math:`p_a`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.problem import TransportProblem

Vector = NDArray[Any]  #: float64, or Fractions


class Frontier(ABC):
    """The laws p_a of one problem.

    Attributes
    ----------
    least : float or Fraction
        alpha*, the acceptance rate of the target itself.
    most : float or Fraction
        1 - Pr(nothing is drafted): no law allows more.
    most_finite : float or Fraction
        Up to here p_a has no mass where the target has none, so that its KL and chi-square are
        finite.
    """

    least: Any
    most: Any
    most_finite: Any

    def __init__(self, problem: TransportProblem, exact: bool) -> None:
        self.problem = problem
        self.exact = exact
        self.p: Vector = np.array(problem.exact_target, dtype=object) if exact else problem.target

    @abstractmethod
    def law(self, acceptance_rate: Any) -> Vector:
        """p_a, shape (V,), for an acceptance rate from `least` to `most`."""
