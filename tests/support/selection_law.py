"""The law that a hull rule realises, from its death levels alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.verifiers.optimal.acceptance_rule import born_blocks

Vector = NDArray[np.float64]


def selection_law(w: Vector, gains: Vector, levels: Vector) -> Vector:
    """w_i times the chord of Q over the block of i, integrated over the level, shape (n,).

    Whatever rounding made the levels: right for the rule that is applied.
    """
    weight, contained = (np.append(0.0, np.cumsum(x)) for x in (w, gains))
    (left, right), life = born_blocks(levels)
    born = life > 0.0
    left, right = left[born], right[born]
    chord = life[born] * (contained[right] - contained[left]) / (weight[right] - weight[left])
    change = np.zeros(levels.size)
    np.add.at(change, left, chord)
    np.subtract.at(change, right, chord)
    ends = levels.copy()
    ends[[0, -1]] = 1.0
    alone = np.minimum(ends[:-1], ends[1:])
    law: Vector = w * np.cumsum(change[:-1]) + alone * gains
    return law
