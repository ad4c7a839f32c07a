"""What is asked of whoever answers the draws of a rule."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.randomness.grids import Clock, Grid

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]
Shape = tuple[int, ...]


class Source(Protocol):
    """Answers every kind of draw."""

    @property
    def bit_generator(self) -> Any:
        """What NumPy generators draw from, to be answered by this source."""

    def uniforms(self, grid: Grid, shape: Shape) -> Vector:
        """Uniforms of a type, in any shape."""

    def clocks(self, clock: Clock, shape: Shape) -> Vector:
        """Exponentials of rate one; each row, along the last axis, may be a race."""

    def categories(self, weights: Vector, rounded: bool = False) -> Integers:
        """One category for each row of weights, shape (n, V) -> (n,).

        `rounded` says that they were computed in float32 or coarser.
        """

    def below(self, count: int) -> int:
        """An integer in 0..count-1, each as likely as the others."""

    def bits(self, width: int) -> int:
        """So many random bits."""
