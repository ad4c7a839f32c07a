r"""Optimal verification of drafts from different models, by heights.

Given a subset H, select a draft outside H if there is one, and among several the one that wins by
its height: on H the highest, off H the lowest. The law p_Z of the selected draft is a sum over a
few levels, exact at *any* heights, so speculative sampling of p against p_Z is lossless, and
accepts with :math:`\sum_i \min(p_i, p_Z(i))` at least. At the right heights, p_Z >= p on H and
p_Z <= p off H, which is what acceptance alpha* takes. Nothing is sorted: a pass over the tokens
takes O(R^2 V), and some five to ten suffice.

**Who wins.** A draft of height h plays on level floor(h) + 1 with probability h - floor(h), else on
floor(h), and the draft on the highest level wins; several on one level have equal chances. With
L_j(c) the probability that draft j plays below level c, and M_j(c) that it plays on it, draft d
wins with probability

.. math:: \sum_c M_d(c) \int_0^1 \prod_{j \ne d} (L_j(c) + M_j(c)\, u) \, du,

as equal chances are those of independent uniforms, the largest of which wins. Computed on floats
and on Fractions.

**Heights** of the tokens on one side are the fixed point of a response, by Newton. The masses
m_r(c) of model r play on level c. A draft from model r on level c wins with probability

.. math:: W_r(c) = \int_0^1 \partial_r f\bigl(Y(c, u)\bigr) \, du, \qquad
          Y_r(c, u) = \mathrm{base}_r + \sum_{c' < c} m_r(c') + u\, m_r(c),

where f is the polynomial of the scheme (`ProductForm`), and token i is selected with probability
:math:`q_i \cdot W(h_i)`, W interpolated between the levels. Given W, token i responds with the
least height at which that reaches p_i; masses that respond to their own W make p_Z = p at all
heights but 0, where p_Z >= p. The residual is piecewise smooth in the T R masses, whatever V is,
so Newton's method finds them in a few passes over the tokens; a plain response in between helps
where it cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Flags, Matrix, Vector, frozen
from mdsd_opt.drafts import ProductForm, product_form, split_fixed
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers import ThresholdSubset, subset_of, threshold_subset
from mdsd_opt.verifiers.optimal.selection_rule import SelectionRule, gauss_rule

#: Number of levels; only few of them are ever used.
NUM_LEVELS = 16

_MAX_PASSES = 120

#: Number of passes that may fail to halve the violation, and the number if tokens on the top level
#: lack something: then H is not optimal, and no heights are.
_PATIENCE, _PATIENCE_ON_TOP = 60, 12

#: Passes from which every other one is a plain response, and from which Newton's steps are shorter.
_MIXED_FROM, _SHORTER_FROM = 8, 24

#: Most draws for which heights are fitted: a pass over the tokens takes R^2 V steps for R models.
MAX_DRAWS = 100

#: Shares of mass on the lowest levels of a typical ladder, on H and off H.
_GUESS_INSIDE, _GUESS_OUTSIDE = np.array([0.6, 0.33, 0.07]), np.array([0.9, 0.09, 0.01])


class Ladder(SelectionRule):
    """Rule whose scores are heights, negative off H: the highest draft of a side wins."""

    __slots__ = ()
    repeats: ClassVar[bool] = True

    def win_probabilities(self, scores: Sequence[float], exact: bool) -> list[Any]:
        heights: list[Any] = [Fraction(x) for x in scores] if exact else list(scores)
        return win_probabilities(heights)


def applies_to(problem: TransportProblem) -> bool:
    """Whether the drafts are independent draws, and few enough of them."""
    form = product_form(problem.drafts.beside_fixed)
    return form is not None and int(form.powers.sum(axis=1).max()) <= MAX_DRAWS


def fit(problem: TransportProblem, tolerance: float, subset: Flags | None = None) -> Ladder:
    """Heights whose acceptance rate should lie within `tolerance` of the optimum, see `gap`.

    The problem must be one that `applies_to` admits; the subset H, shape (V,), is searched for
    unless given.
    """
    from mdsd_opt.verifiers.optimal.ladder_kernels import selection_law

    fixed, drafts = split_fixed(problem.drafts)
    form = product_form(drafts)
    assert form is not None
    p = problem.target.copy()
    p[fixed] = 0.0
    threshold = threshold_subset(p, form) if subset is None else subset_of(p, form, subset)
    subset = threshold.subset
    heights = np.zeros(p.size)
    inside = _fitted(p, form, threshold, heights, True, tolerance / 2)
    outside = _fitted(p, form, threshold, heights, False, tolerance / 2)
    law = np.empty(p.size)
    accepted = selection_law(p, form.q, heights, subset, inside.wins, outside.wins, law)
    certain = float(problem.target[fixed].sum())
    return Ladder(
        scores=frozen(heights),
        subset=frozen(subset),
        fixed=fixed,
        selection=frozen(law),
        target=frozen(p),
        bound=min(certain + accepted, 1.0),
        upper=min(1.0 + certain + threshold.value, 1.0),
        evaluations=inside.passes + outside.passes,
    )


def _fitted(
    p: Vector, form: ProductForm, threshold: ThresholdSubset, heights: Vector, is_inside: bool,
    tolerance: float,
) -> Heights:  # fmt: skip
    """Fit one side and write its heights."""
    from mdsd_opt.solvers import below_threshold, take_columns

    subset, inside, everything = threshold.subset, threshold.point, form.q.sum(axis=1)
    if is_inside:
        climbing = np.flatnonzero(subset)
        total, base, sign, guess = inside, np.zeros(len(form.q)), 1.0, _GUESS_INSIDE
    else:  # no token wins more often than if all others lost
        low, sums = np.empty(p.size, dtype=np.bool_), np.empty(len(form.q) + 1)
        below_threshold(p, form.q, form.gradient(everything), low, sums)
        climbing = np.flatnonzero(low & ~subset)
        total, base, sign, guess = everything - inside, everything, -1.0, _GUESS_OUTSIDE
    q = np.empty((climbing.size, len(form.q)))
    take_columns(form.q, climbing, q)
    staying = np.maximum(total - q.sum(axis=0), 0.0)
    side = Side(form, sign * p[climbing], q, staying, base, sign)
    solution = fit_side(side, guess, tolerance)
    heights[climbing] = sign * solution.levels
    return solution


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Drafts of one side, seen by the n tokens that may climb.

    `wanted`, shape (n,), is p of these tokens times the sign, which is 1 on H, where the highest
    wins, and -1 off H, where it loses; q has shape (n, R). `staying`, shape (R,), is the mass of
    the tokens of this side that stay on level 0, and `base`, shape (R,), the mass that loses
    against level 0; off H, all mass, from which what wins is taken.
    """

    form: ProductForm
    wanted: Vector
    q: Matrix
    staying: Vector
    base: Vector
    sign: float

    def chances(self, masses: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """Signed W of every level, and its derivatives by the masses below and on it."""
        from mdsd_opt.verifiers.optimal.ladder_kernels import level_weights

        levels, rows = masses.shape
        wins = np.empty((levels, rows))
        below, here = np.empty((2, levels, rows, rows))
        nodes, shares = gauss_rule(int(self.form.powers.sum(axis=1).max()) - 1)
        level_weights(
            self.form.weights, self.form.powers, masses, self.base, self.sign, nodes, shares,
            wins, below, here,
        )  # fmt: skip
        return wins, below, here


@dataclass(frozen=True, slots=True, eq=False)
class Heights:
    """Result of a fit.

    Levels, shape (n,), lie in [0, NUM_LEVELS - 1], 0 being where a token starts. `wins`, shape
    (NUM_LEVELS + 1, R), is W of every level, the last of them twice, and `violation` bounds how
    much the tokens lack of what they want.
    """

    levels: Vector
    wins: Matrix
    violation: float
    passes: int


def fit_side(side: Side, guess: Vector, tolerance: float) -> Heights:
    """Climb until the tokens lack no more than `tolerance` together, or progress ends.

    `guess` holds the shares of all mass on the lowest levels to start with.
    """
    total = side.staying + side.q.sum(axis=0)
    masses = np.zeros((NUM_LEVELS, total.size))
    masses[: guess.size] = guess[:, None] * total
    best = None
    halved, halved_at = np.inf, 0
    for number in range(1, _MAX_PASSES + 1):
        answer = response_to(side, masses)
        if best is None or answer.violation < best.violation:
            best = answer
        if best.violation < halved / 2:
            halved, halved_at = best.violation, number
        patience = _PATIENCE_ON_TOP if best.lack > tolerance else _PATIENCE
        if best.violation <= tolerance or number >= halved_at + patience:
            break
        masses = _next(side, masses, answer, total, number)
    assert best is not None
    wins = side.sign * best.wins
    return Heights(best.levels, np.vstack([wins, wins[-1:]]), best.violation, number)


@dataclass(frozen=True, slots=True, eq=False)
class _Response:
    levels: Vector
    masses: Matrix
    wins: Matrix  # true ones, of these masses
    lack: float  # of tokens on the top level
    violation: float
    jacobian: Matrix


def response_to(side: Side, masses: Matrix) -> _Response:
    """Best answer of the other side to these masses."""
    from mdsd_opt.verifiers.optimal.ladder_kernels import respond

    wins, below, here = side.chances(masses)
    levels = np.empty(side.wanted.size)
    answer = np.zeros_like(masses)
    answer[0] = side.staying
    lower, upper = np.zeros((2, *below.shape))
    lack, top = respond(side.wanted, side.q, wins, levels, answer, lower, upper)
    true = side.chances(answer)[0]
    violation = lack + float((answer * np.maximum(wins - true, 0.0)).sum())
    used = min(top + 2, len(masses))
    jacobian = _jacobian(lower[:used], upper[:used], below[:used], here[:used])
    return _Response(levels, answer, true, lack, violation, jacobian)


def _jacobian(lower: Matrix, upper: Matrix, below: Matrix, here: Matrix) -> Matrix:
    """Derivatives of the masses in the response by those responded to, both flattened."""
    levels, rows = lower.shape[:2]
    for half in (lower, upper):  # only one triangle was summed
        half += np.tril(half, -1).transpose(0, 2, 1)
    by_wins = np.zeros((levels, rows, levels, rows))
    wins_by_masses = np.zeros((levels, rows, levels, rows))
    for c in range(levels):
        wins_by_masses[c, :, :c] = below[c][:, None]
        wins_by_masses[c, :, c] = here[c]
    for c in range(levels - 1):
        by_wins[c, :, c] += lower[c]
        by_wins[c, :, c + 1] += upper[c]
        by_wins[c + 1, :, c] -= lower[c]
        by_wins[c + 1, :, c + 1] -= upper[c]
    size = levels * rows
    return by_wins.reshape(size, size) @ wins_by_masses.reshape(size, size)


def _next(side: Side, masses: Matrix, answer: _Response, total: Vector, number: int) -> Matrix:
    """Masses to respond to next."""
    if number >= _MIXED_FROM and number % 2:
        return answer.masses
    used = len(answer.jacobian) // total.size
    residual = (answer.masses - masses)[:used].ravel()
    try:
        step = np.linalg.solve(np.eye(residual.size) - answer.jacobian, residual)
    except np.linalg.LinAlgError:
        return answer.masses
    if number >= _SHORTER_FROM:
        step *= 0.4 + 0.6 * (number * 0.6180339887 % 1.0)  # never the same cycle twice
    moved = masses.copy()
    moved[:used] += step.reshape(used, -1)
    moved = np.maximum(moved, 0.0)
    sums = moved.sum(axis=0)
    moved *= np.divide(total, sums, out=np.zeros_like(total), where=sums > 0)
    return moved


def win_probabilities(heights: Sequence[Any]) -> list[Any]:
    """Probability that each draft wins; they sum to one."""
    plays = [(floor(height), height - floor(height)) for height in heights]
    wins = []
    for d, (level, upper) in enumerate(plays):
        rivals = plays[:d] + plays[d + 1 :]
        lower = 1 - upper
        win = lower * _beats(rivals, level)
        if upper:
            win += upper * _beats(rivals, level + 1)
        wins.append(win)
    return wins


def _beats(rivals: list[tuple[int, Any]], level: int) -> Any:
    """Probability of winning from a level: the integral of prod (below + here u) over u."""
    coefficients: list[Any] = []
    for place, upper in rivals:
        if place > level:
            return 0
        if place == level:
            below, here = upper * 0, 1 - upper
        elif place == level - 1 and upper:
            below, here = 1 - upper, upper
        else:
            continue
        if not coefficients:
            coefficients = [below, here]
            continue
        raised = [here * x for x in coefficients]
        coefficients = [below * x for x in coefficients] + [below * 0]
        for power, x in enumerate(raised, start=1):
            coefficients[power] += x
    return sum(x / power for power, x in enumerate(coefficients, start=1)) if coefficients else 1
