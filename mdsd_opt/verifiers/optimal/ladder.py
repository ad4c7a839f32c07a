r"""Optimal verification of drafts from different models, by heights.

Given a subset H, select a draft outside H if there is one, and among several the one that wins by
its height (`level_choice`): on H the highest, off H the lowest. The law p_Z of the selected draft
is a sum over a few levels, exact at *any* heights, so speculative sampling of p against p_Z is
lossless, and accepts with :math:`\sum_i \min(p_i, p_Z(i))` at least. At the right heights
(`ladder_side`), p_Z >= p on H and p_Z <= p off H, which is what acceptance alpha* takes. Nothing
is sorted: a pass over the tokens takes O(R^2 V), and some five to ten suffice.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import frozen
from mdsd_opt.drafts.fixed_plus import split_fixed
from mdsd_opt.drafts.product_form import ProductForm, product_form
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers.threshold_subset import ThresholdSubset, subset_of, threshold_subset
from mdsd_opt.verifiers.optimal.choice_laws import MAX_DRAWS
from mdsd_opt.verifiers.optimal.ladder_side import Heights, Side, fit_side
from mdsd_opt.verifiers.optimal.level_choice import win_probabilities
from mdsd_opt.verifiers.optimal.selection_rule import SelectionRule

Vector = NDArray[np.float64]
Subset = NDArray[np.bool_]

#: Models up to which heights are fitted: Newton's method solves for some numbers of each.
MAX_MODELS = 16

#: Shares of mass on the lowest levels of a typical ladder, on H and off H.
_GUESS_INSIDE, _GUESS_OUTSIDE = np.array([0.6, 0.33, 0.07]), np.array([0.9, 0.09, 0.01])


class Ladder(SelectionRule):
    """The scores are heights, negative off H: the highest draft of a side wins."""

    __slots__ = ()

    def win_probabilities(self, scores: Sequence[float], exact: bool) -> list[Any]:
        heights: list[Any] = [Fraction(x) for x in scores] if exact else list(scores)
        return win_probabilities(heights)


def applies_to(problem: TransportProblem) -> bool:
    """Whether the drafts are independent draws, from few enough models and few enough of them."""
    form = product_form(problem.drafts.beside_fixed)
    if form is None or len(form.q) > MAX_MODELS:
        return False
    return int(form.powers.sum(axis=1).max()) <= MAX_DRAWS


def fit(problem: TransportProblem, tolerance: float, subset: Subset | None = None) -> Ladder:
    """Heights whose acceptance rate should lie within `tolerance` of the optimum; `gap` tells.

    Parameters
    ----------
    problem : TransportProblem
        For which this `applies_to`.
    tolerance : float
    subset : ndarray of bool, shape (V,), optional
        H; searched for unless given.
    """
    from mdsd_opt.verifiers.optimal.ladder_kernels import selection_law

    fixed, drafts = split_fixed(problem.drafts)
    form = product_form(drafts)
    assert form is not None
    p = problem.target.copy()
    p[fixed] = 0.0
    found = threshold_subset(p, form) if subset is None else subset_of(p, form, subset)
    subset = found.subset
    heights = np.zeros(p.size)
    inside = _fitted(p, form, found, heights, True, tolerance / 2)
    outside = _fitted(p, form, found, heights, False, tolerance / 2)
    law = np.empty(p.size)
    accepted = selection_law(p, form.q, heights, subset, inside.wins, outside.wins, law)
    certain = float(problem.target[fixed].sum())
    return Ladder(
        scores=frozen(heights),
        subset=frozen(subset),
        fixed=fixed,
        repeats=True,
        selection=frozen(law),
        target=frozen(p),
        bound=min(certain + accepted, 1.0),
        upper=min(1.0 + certain + found.value, 1.0),
        evaluations=inside.passes + outside.passes,
    )


def _fitted(
    p: Vector, form: ProductForm, given: ThresholdSubset, heights: Vector, is_inside: bool,
    tolerance: float,
) -> Heights:  # fmt: skip
    """Fit one side and write its heights."""
    from mdsd_opt.solvers.threshold_subset_kernels import below_threshold, take_columns

    subset, inside, everything = given.subset, given.point, form.q.sum(axis=1)
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
    found = fit_side(side, guess, tolerance)
    heights[climbing] = sign * found.levels
    return found
