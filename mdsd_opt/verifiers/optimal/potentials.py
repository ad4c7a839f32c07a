r"""Optimal verification for any law of the drafts, by potentials.

Given an optimal subset H, select a draft outside H if there is one, and among several the one of
the largest :math:`\theta[X_k] + \varepsilon_k`, noise uniform (`choice_laws`). The law p_Z of the
selected draft is known exactly, so speculative sampling of p against p_Z is lossless at *any*
potentials, and accepts with :math:`\sum_i \min(p_i, p_Z(i))` at least. The best potentials minimise

.. math:: \Phi(\theta) - \sum_i p_i \theta_i, \qquad \theta \ge 0 \text{ on } H,
          \quad \theta \le 0 \text{ off } H,

which is convex and falls apart into the two sides. The conditions of its optimum are p_Z >= p on H
and p_Z <= p off H, which is what acceptance alpha* takes; as p_Z is the gradient of Phi, the sum of
the violations is the gap to alpha*, and the descent stops when it is small enough.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.arrays import frozen
from mdsd_opt.drafts.fixed_plus import peeled
from mdsd_opt.drafts.product_form import product_form
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.optimal.choice_laws import League, leagues_of, require_leagues
from mdsd_opt.verifiers.optimal.noisy_choice import win_probabilities
from mdsd_opt.verifiers.optimal.projected_descent import descend

Vector = NDArray[np.float64]

#: Evaluations of a side after which the potentials are taken as they are.
_MAX_EVALUATIONS = 1500


@dataclass(frozen=True, slots=True, eq=False)
class Potentials:
    """A selection rule with its exact law.

    Attributes
    ----------
    theta : ndarray, shape (V,)
    subset : ndarray of bool, shape (V,)
        H, whose tokens are selected only where no other token is drafted.
    fixed : ndarray of int64
        Tokens that are drafted for certain and take no part.
    repeats : bool
        Whether a token drafted twice takes part twice.
    selection : ndarray, shape (V,)
        p_Z.
    target : ndarray, shape (V,)
        The target without the fixed tokens.
    bound, gap : float
        Acceptance rate without residual hits; how far the optimum may lie above it.
    evaluations : int
        Of Phi and p_Z, both sides together.
    """

    theta: Vector
    subset: NDArray[np.bool_]
    fixed: NDArray[np.int64]
    repeats: bool
    selection: Vector
    target: Vector
    bound: float
    gap: float
    evaluations: int

    def shares(self, drafts: NDArray[np.int64], exact: bool = False) -> list[tuple[int, Any]]:
        """Places of the drafts that may be selected, with their probabilities."""
        places = [k for k in range(self.fixed.size, drafts.size) if drafts[k] >= 0]
        if not self.repeats:
            first = {int(drafts[k]): k for k in reversed(places)}
            places = sorted(first.values())
        outside = [k for k in places if not self.subset[drafts[k]]]
        rivals = outside or places
        if not rivals:
            return []
        theta: list[Any] = [float(self.theta[drafts[k]]) for k in rivals]
        if exact:
            theta = _as_fractions(theta)
        return list(zip(rivals, win_probabilities(theta), strict=True))


def _as_fractions(values: list[float]) -> list[Any]:
    return [Fraction(x) for x in values]


def fit(problem: TransportProblem, tolerance: float) -> Potentials:
    """Potentials whose acceptance rate lies within `tolerance` of the optimum.

    Costs O(K V log V) an evaluation for independent draws, or the size of the listed law; some tens
    of evaluations are usual. If the limit of evaluations is met, `gap` says how good they are.
    """
    fixed, drafts = peeled(problem.drafts)
    require_leagues(drafts)
    upper, found = _optimal_subset(problem)
    p = problem.target.copy()
    p[fixed] = 0.0
    subset = found.copy()
    theta, selection = np.zeros(p.size), np.zeros(p.size)
    evaluations = 0
    for league, sign in zip(leagues_of(drafts, subset), (1.0, -1.0), strict=True):
        if league.members.size:
            side = _fit_side(p[league.members], league, sign, tolerance / 2)
            theta[league.members], selection[league.members] = side[0], side[1]
            evaluations += side[2]
    bound = float(problem.target[fixed].sum() + np.minimum(p, selection).sum())
    return Potentials(
        theta=frozen(theta),
        subset=frozen(subset),
        fixed=fixed,
        repeats=product_form(drafts) is not None,
        selection=frozen(selection),
        target=frozen(p),
        bound=min(bound, 1.0),
        gap=max(upper - bound, 0.0),
        evaluations=evaluations,
    )


def _optimal_subset(problem: TransportProblem) -> tuple[float, NDArray[np.bool_]]:
    from mdsd_opt.solvers import solve

    try:
        solution = solve(problem, "submodular")
    except ProblemTooLarge:
        solution = solve(problem)
    assert solution.subset is not None
    return solution.upper_bound, solution.subset


class _GoodEnough(Exception):
    """Ends the descent from inside."""


def _fit_side(
    p: Vector, league: League, sign: float, tolerance: float
) -> tuple[Vector, Vector, int]:
    """Potentials of one side, the law they give, and the number of evaluations."""
    _, drafted = league.evaluate(np.zeros(p.size))
    descent = _Descent(p, league, sign, tolerance, 1.0 / np.sqrt(np.maximum(drafted, 1e-14)))
    with suppress(_GoodEnough):
        descend(descent.evaluate, p.size)
    return descent.theta, descent.law, descent.evaluations


class _Descent:
    """Remembers the best potentials; variables are scaled so that the Hessian is near identity."""

    def __init__(
        self, p: Vector, league: League, sign: float, tolerance: float, scale: Vector
    ) -> None:
        self._p, self._league, self._sign, self._tolerance = p, league, sign, tolerance
        self._scale = sign * scale
        self.violation = np.inf
        self.theta = np.zeros(p.size)
        self.law = np.zeros(p.size)
        self.evaluations = 0

    def evaluate(self, y: Vector) -> tuple[float, Vector]:
        theta = self._scale * y
        value, law = self._league.evaluate(theta)
        self.evaluations += 1
        violation = float(np.maximum(self._sign * (self._p - law), 0.0).sum())
        if violation < self.violation:
            self.violation, self.theta, self.law = violation, theta, law
        if violation <= self._tolerance or self.evaluations >= _MAX_EVALUATIONS:
            raise _GoodEnough
        return value - float(self._p @ theta), (law - self._p) * self._scale
