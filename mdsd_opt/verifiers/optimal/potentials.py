r"""Optimal verification for any law of the drafts, by potentials.

Given an optimal subset H, select a draft outside H if there is one, and among several the one of
the largest :math:`\theta[X_k] + \varepsilon_k`, the noise uniform on [0, 1]. The law p_Z of the
selected draft is known exactly, so speculative sampling of p against p_Z is lossless at *any*
potentials, and accepts with :math:`\sum_i \min(p_i, p_Z(i))` at least. The best potentials minimise

.. math:: \Phi(\theta) - \sum_i p_i \theta_i, \qquad \theta \ge 0 \text{ on } H,
          \quad \theta \le 0 \text{ off } H,

:math:`\Phi(\theta) = E \max`, which is convex and falls apart into two leagues: the tokens of each
side, which compete among themselves. The conditions of the optimum are p_Z >= p on H and p_Z <= p
off H, which is what acceptance alpha* takes; as p_Z is the gradient of Phi, the sum of the
violations is the gap to alpha*, and the descent stops when it is small enough.

Given its rivals, draft c wins with probability

.. math:: \int_{\theta_c}^{\theta_c + 1} \prod_{j \ne c} \min(\max(t - \theta_j, 0), 1) \, dt,

a piecewise polynomial, integrated exactly here, on floats and on Fractions. So one uniform decides
where the definition has K of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Flags, Integers, Vector, frozen
from mdsd_opt.drafts import DraftScheme, SupportLaw, readable, split_fixed
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.optimal.selection_rule import SelectionRule, gauss_rule

#: Most elements of all draft sets together that a listed law may have.
_MAX_ARCS = 20_000_000

_MEMORY = 12

_SUFFICIENT_DECREASE = 1e-4

_MAX_HALVINGS = 30

#: Most evaluations of a side, after which the potentials are taken as they are.
_MAX_EVALUATIONS = 1500


class Potentials(SelectionRule):
    """Rule whose scores are potentials theta: the draft of the largest theta + noise wins."""

    __slots__ = ()
    repeats: ClassVar[bool] = False

    def win_probabilities(self, scores: Sequence[float], exact: bool) -> list[Any]:
        theta: list[Any] = [Fraction(x) for x in scores] if exact else list(scores)
        return win_probabilities(theta)


def fit(problem: TransportProblem, tolerance: float, subset: Flags, upper: float) -> Potentials:
    """Potentials whose acceptance rate lies within `tolerance` of the optimum.

    Costs the size of the listed law an evaluation; some tens of evaluations are usual. If the limit
    of evaluations is met, `gap` says how good they are. The subset H, shape (V,), is optimal.
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
        selection=frozen(selection),
        target=frozen(p),
        bound=min(bound, 1.0),
        upper=upper,
        evaluations=evaluations,
    )


class _GoodEnough(Exception):
    """Raised inside the descent to end it."""


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
    """State with the best potentials; variables are scaled so that the Hessian is near identity."""

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


def descend(evaluate: Callable[[Vector], tuple[float, Vector]], size: int) -> None:
    """Start at zero and go downhill until `evaluate` raises, or no step leads down any more.

    Quasi-Newton steps on the coordinates that are positive or would become so, projected back onto
    the orthant, halved until the function falls. `evaluate` takes a point, shape (size,), to value
    and gradient, and keeps what it needs of the points it sees.
    """
    from mdsd_opt.verifiers.optimal.choice_kernels import dot, quasi_newton_direction

    x = np.zeros(size)
    value, gradient = evaluate(x)
    steps, changes = np.zeros((_MEMORY, size)), np.zeros((_MEMORY, size))
    count = 0
    while True:
        free = (x > 0) | (gradient < 0)
        direction = np.empty(size)
        quasi_newton_direction(gradient, free, steps, changes, count, np.empty(_MEMORY), direction)
        if not dot(direction, gradient) < 0:
            count = 0
            direction = np.where(free, -gradient, 0.0)
        length = 1.0
        for _ in range(_MAX_HALVINGS):
            new = np.maximum(x + length * direction, 0.0)
            new_value, new_gradient = evaluate(new)
            step = new - x
            if new_value <= value + _SUFFICIENT_DECREASE * dot(gradient, step):
                break
            length /= 2
        else:
            if count == 0:
                return
            count = 0  # once more, along the gradient
            continue
        change = new_gradient - gradient
        curvature = dot(step, change)
        if not step.any():
            return
        if curvature > 1e-16 * dot(change, change):
            steps[count % _MEMORY], changes[count % _MEMORY] = step, change
            count += 1
        x, value, gradient = new, new_value, new_gradient


def leagues_of(drafts: DraftScheme, subset: Flags) -> tuple[League, League]:
    """Leagues of the tokens inside H, and of the tokens outside."""
    law = drafts.support_law()
    return _league(law, subset, False), _league(law, subset, True)


def require_leagues(drafts: DraftScheme) -> None:
    """Raise `ProblemTooLarge` for too many draft sets to list."""
    supports, arcs = drafts.count_supports()
    if arcs > _MAX_ARCS:
        raise ProblemTooLarge(
            f"{drafts!r} has up to {readable(supports)} draft sets of {readable(arcs)} tokens "
            f"together; potentials need them listed, up to {_MAX_ARCS:,}. Restrict the vocabulary "
            "(top_k, top_p) or draft fewer tokens."
        )


@dataclass(frozen=True, slots=True, eq=False)
class League:
    """Listed draft sets, as seen by the tokens that compete with each other."""

    members: Integers  # the tokens, ascending
    tokens: Integers  # places in `members`
    offsets: Integers
    mass: Vector

    def evaluate(self, theta: Vector) -> tuple[float, Vector]:
        """Value E max, and the probability that each member wins; theta has shape (members,)."""
        from mdsd_opt.verifiers.optimal.choice_kernels import listed_law

        largest = int(np.diff(self.offsets).max(initial=0))
        nodes, weights = gauss_rule(largest)
        law, room = np.zeros(theta.size), np.empty((3, largest + 1))
        value = listed_law(theta, self.tokens, self.offsets, self.mass, nodes, weights, room, law)
        return float(value), law


def _league(law: SupportLaw, subset: Flags, outside: bool) -> League:
    """League of listed sets; those with a token outside H have only such tokens, outside."""
    is_out = ~subset[law.tokens]
    has_out = np.bincount(law.arc_support[is_out], minlength=law.num_supports) > 0
    arcs = is_out if outside else ~has_out[law.arc_support]
    sets = has_out if outside else ~has_out
    sizes = np.bincount(law.arc_support[arcs], minlength=law.num_supports)[sets]
    members, tokens = np.unique(law.tokens[arcs], return_inverse=True)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return League(members.astype(np.int64), tokens, offsets, law.mass[sets])


def win_probabilities(theta: Sequence[Any]) -> list[Any]:
    """Probability that each draft is chosen; they sum to one."""
    top = max(theta)
    zero, one = top * 0, top * 0 + 1
    kinks = sorted({top, top + 1, *(x + 1 for x in theta if x + 1 > top)})
    wins = [zero for _ in theta]
    for start, stop in pairwise(kinks):
        # Below `start` the noise of some drafts is exhausted: they lose, their factor is one.
        rivals = [j for j, x in enumerate(theta) if x + 1 >= stop]
        for c in rivals:
            factors = [start - theta[j] for j in rivals if j != c]
            wins[c] += _integral(factors, stop - start, one)
    total = sum(wins, zero)  # one, but for rounding
    return [x / total for x in wins]


def _integral(shifts: Sequence[Any], length: Any, one: Any) -> Any:
    """Integral of prod_j (u + shift_j) over u in [0, length]; all shifts are non-negative."""
    coefficients = [one]
    for shift in shifts:
        raised = [one * 0, *coefficients]
        for power, x in enumerate(coefficients):
            raised[power] = raised[power] + shift * x
        coefficients = raised
    result, power_of_length = one * 0, one
    for power, x in enumerate(coefficients, start=1):
        power_of_length = power_of_length * length
        result += x * power_of_length / power
    return result
