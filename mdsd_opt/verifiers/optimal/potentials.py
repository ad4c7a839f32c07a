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

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import frozen
from mdsd_opt.drafts.fixed_plus import split_fixed
from mdsd_opt.drafts.product_form import product_form
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.optimal.choice_laws import League, leagues_of, require_leagues
from mdsd_opt.verifiers.optimal.noisy_choice import win_probabilities
from mdsd_opt.verifiers.optimal.projected_descent import descend
from mdsd_opt.verifiers.optimal.selection_rule import SelectionRule

Vector = NDArray[np.float64]
Subset = NDArray[np.bool_]

#: Evaluations of a side after which the potentials are taken as they are.
_MAX_EVALUATIONS = 1500


class Potentials(SelectionRule):
    """The scores are potentials theta: the draft of the largest theta + noise wins."""

    __slots__ = ()

    def win_probabilities(self, scores: Sequence[float], exact: bool) -> list[Any]:
        theta: list[Any] = [Fraction(x) for x in scores] if exact else list(scores)
        return win_probabilities(theta)


def fit(problem: TransportProblem, tolerance: float, subset: Subset, upper: float) -> Potentials:
    """Potentials whose acceptance rate lies within `tolerance` of the optimum.

    Costs O(K V log V) an evaluation for independent draws, or the size of the listed law; some tens
    of evaluations are usual. If the limit of evaluations is met, `gap` says how good they are.

    Parameters
    ----------
    problem : TransportProblem
    tolerance : float
    subset : ndarray of bool, shape (V,)
        H, optimal.
    upper : float
        An upper bound on the acceptance rate.
    """
    fixed, drafts = split_fixed(problem.drafts)
    require_leagues(drafts)
    p = problem.target.copy()
    p[fixed] = 0.0
    theta, selection = np.zeros(p.size), np.zeros(p.size)
    evaluations = 0
    for league, sign in zip(leagues_of(drafts, subset), (1.0, -1.0), strict=True):
        if league.members.size:
            side = _fit_side(p[league.members], league, sign, tolerance / 2)
            theta[league.members], selection[league.members] = side[0], side[1]
            evaluations += side[2]
    bound = float(problem.target[fixed].sum() + np.minimum(p, selection).sum())
    return Potentials(
        scores=frozen(theta),
        subset=frozen(subset),
        fixed=fixed,
        repeats=product_form(drafts) is not None,
        selection=frozen(selection),
        target=frozen(p),
        bound=min(bound, 1.0),
        upper=upper,
        evaluations=evaluations,
    )


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
