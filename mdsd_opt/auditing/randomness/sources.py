"""Who answers: a generator (audits by sampling), with one draw put to an edge, or a script."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mdsd_opt.auditing.randomness.grids import Clock, Grid
from mdsd_opt.auditing.randomness.source import Integers, Shape, Vector
from mdsd_opt.auditing.randomness.source_bits import SourceBits


class SampledSource:
    """Answers from a NumPy generator.

    Parameters
    ----------
    rng : numpy.random.Generator
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    @property
    def bit_generator(self) -> Any:
        return self.rng.bit_generator

    def uniforms(self, grid: Grid, shape: Shape) -> Vector:
        return grid.values(self.rng.integers(grid.size, size=shape))

    def clocks(self, clock: Clock, shape: Shape) -> Vector:
        drawn = -np.log1p(-self.rng.random(shape))
        return np.clip(drawn, clock.lowest, clock.highest)

    def categories(self, weights: Vector, rounded: bool = False) -> Integers:
        return categories_at(weights, self.rng.random(len(weights)))

    def below(self, count: int) -> int:
        # Python's integers have no end, NumPy's do.
        return int(self.rng.random() * count) if count >= 2**63 else int(self.rng.integers(count))

    def bits(self, width: int) -> int:
        return int.from_bytes(self.rng.bytes(width // 8 + 1), "little") % (1 << width)


class EdgeSource(SampledSource):
    """Answers from a generator, but for one draw that is put to an end of its range.

    Uniforms and exponentials have ends; categories have none and are not counted.

    Attributes
    ----------
    drawn : int
        Draws with ends since `restart`.
    rarity : int or None
        Of the draw that was put to its end; None while none was.
    value : float
        The end.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self._bits = SourceBits(self)
        self.restart(0, upper=False)

    def restart(self, place: int, upper: bool) -> None:
        """Put the draw at this place in the sequence to its lower or upper end."""
        self._place, self._upper = place, upper
        self.drawn = 0
        self.rarity: int | None = None
        self.value = math.nan

    @property
    def bit_generator(self) -> Any:
        return self._bits

    def uniforms(self, grid: Grid, shape: Shape) -> Vector:
        end = grid.highest if self._upper else 0.0
        return self._put(super().uniforms(grid, shape), end, grid.rarity)

    def clocks(self, clock: Clock, shape: Shape) -> Vector:
        end = clock.highest if self._upper else clock.lowest
        return self._put(super().clocks(clock, shape), end, clock.rarity)

    def bits(self, width: int) -> int:
        drawn, end = super().bits(width), (1 << width) - 1 if self._upper else 0
        return drawn if self._meets(1, end, width) is None else end

    def _put(self, drawn: Vector, end: float, rarity: int) -> Vector:
        index = self._meets(drawn.size, end, rarity)
        if index is not None:
            drawn.flat[index] = end
        return drawn

    def _meets(self, size: int, end: float, rarity: int) -> int | None:
        """Which of the next draws is the one to be put to its end."""
        index = self._place - self.drawn
        self.drawn += size
        if not 0 <= index < size:
            return None
        self.rarity, self.value = rarity, float(end)
        return index


def categories_at(weights: Vector, uniforms: Vector) -> Integers:
    """The category in whose share of the weights each uniform falls; none of weight zero."""
    reached = np.cumsum(weights, axis=1)
    place = (reached <= (uniforms * reached[:, -1])[:, None]).sum(axis=1)
    last = weights.shape[1] - 1 - np.argmax(weights[:, ::-1] > 0, axis=1)
    return np.minimum(place, last)  # the product may round up to the total
