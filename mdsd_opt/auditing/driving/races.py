r"""Weights of a race: a row of exponentials e decides by :math:`\arg\max_i w_i / e_i`.

With all others late, i beats j as long as :math:`e_i < e_j w_i / w_j`: bisection of :math:`e_i`
finds the ratio. Rows stay within what generators return, where clamped logarithms are logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Vector

Uniforms = tuple[float, ...]

#: Maps a row to its result, in a form that can be compared.
Signature = Callable[[Uniforms], Any]

#: Relative width to which ratios are found: that of neighbouring numbers of float32.
_RESOLUTION = 2e-8

#: Number of rows whose result the weights have to predict, random ones and near ties.
_TRIALS = 12


@dataclass(frozen=True, slots=True)
class Range:
    """Exponentials to try: very early, usual, very late.

    `comparisons` are those of a token compared with, and the earliest of the other: for tokens of
    similar weight, for a much heavier one, and for one beside which others are much heavier. What
    rounding leaves of a residual is a weight, too.
    """

    early: float
    usual: float
    late: float
    comparisons: tuple[tuple[float, float], ...]


EXPONENTIAL = Range(6e-8, 1.0, 16.0, ((1e-3, 6e-8), (1.0, 6e-8), (1e-7, 6e-12)))
#: Range for rows handed out as exp(-e) in float32, where e below 1e-5 has few digits.
UNIFORM = Range(1e-5, 6.0, 85.0, ((6.0, 1e-5),))


class NoRace(Exception):
    """The exponentials are not used as in a race."""


def race_weights(signature: Signature, width: int, within: Range, seed: int) -> Vector | None:
    """Shares of the tokens, shape (width,), which sum to one; None if the row decides nothing."""
    race = _Race(signature, width, within, np.random.default_rng(seed))
    return race.weights()


def winning_row(weights: Vector, token: int, within: Range) -> Uniforms:
    """A row that this token wins clearly."""
    row = _tied(weights, within)
    row[token] /= 50.0
    return tuple(row.tolist())


def _tied(weights: Vector, within: Range) -> Vector:
    """A row in which all possible tokens tie, none later than the usual time."""
    return np.where(weights > 0, weights / weights.max(), 1.0) * within.usual


class _Race:
    def __init__(
        self, signature: Signature, width: int, within: Range, rng: np.random.Generator
    ) -> None:
        self._signature, self._width, self._within, self._rng = signature, width, within, rng
        usual = np.full(width, within.usual)
        self._base = self._of(usual)
        self._alone = [self._of(_with(usual, i, within.early)) for i in range(width)]

    def weights(self) -> Vector | None:
        random_rows = self._rng.standard_exponential((_TRIALS, self._width))
        if all(seen == self._base for seen in self._alone):
            if any(self._of(row) != self._base for row in random_rows):
                raise NoRace("exponentials that are no race")
            return None
        w = self._measured()
        near_ties = _tied(w, self._within) * (1 + 1e-3 * self._rng.random(random_rows.shape))
        for row in (*random_rows, *near_ties):
            if self._of(row) != self._alone[int(np.argmax(w / row))]:
                raise NoRace("exponentials that are not used as argmax(w / e)")
        return w / w.sum()

    def _measured(self) -> Vector:
        """Weights relative to the heaviest token whose outcome is not the usual one."""
        first = np.array([seen == self._base for seen in self._alone])
        late = np.where(first, self._within.late, self._within.usual)
        rival = self._of(late)
        others = np.flatnonzero(~first)
        j = next((i for i in others.tolist() if self._alone[i] == rival), int(others[0]))
        w = np.zeros(self._width)
        w[j] = 1.0
        for i in np.flatnonzero(first).tolist():
            w[i] = self._ratio(i, j)
        heaviest = int(np.argmax(np.where(first, w, -1.0)))
        if w[heaviest] <= 0.0:
            raise NoRace("exponentials that are no race: no token wins where all are equal")
        for i in others.tolist():
            if i != j:
                w[i] = self._ratio(i, heaviest) * w[heaviest]
        return w

    def _ratio(self, i: int, j: int) -> float:
        within = self._within

        def wins(reference: float, e: float) -> bool:
            row = _with(np.full(self._width, within.late), j, reference)
            return self._of(_with(row, i, e)) != self._alone[j]

        is_comparable = False
        for reference, earliest in within.comparisons:
            if wins(reference, within.late * (1 - 1e-9)):  # or another token does
                continue
            is_comparable = True
            if not wins(reference, earliest):
                continue
            low, high = math.log(earliest), math.log(within.late)
            while high - low > _RESOLUTION:
                middle = (low + high) / 2
                low, high = (middle, high) if wins(reference, math.exp(middle)) else (low, middle)
            return math.exp((low + high) / 2) / reference
        if not is_comparable:
            raise NoRace("weights of a race that are too far apart")
        return 0.0

    def _of(self, row: Vector) -> Any:
        return self._signature(tuple(row.tolist()))


def _with(row: Vector, place: int, value: float) -> Vector:
    changed = row.copy()
    changed[place] = value
    return changed
