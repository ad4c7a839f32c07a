"""Source whose first answers are given, while a continuation gives the others."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from mdsd_opt.auditing.randomness.sources import (
    DOUBLE,
    Clock,
    Grid,
    Shape,
    Source,
    categories_at,
    default_rng,
)
from mdsd_opt.base.arrays import Integers, Vector

#: Most draws in one call that can be explored; a race counts as one.
MAX_DRAWS = 12

#: Integers drawn one by one are explored up to this number.
_MAX_INTEGERS = 1024


@dataclass(frozen=True, slots=True)
class UniformDraw:
    """Draw of a uniform; its values are the integers below `grid.size`."""

    grid: Grid


@dataclass(frozen=True, slots=True)
class CategoryDraw:
    """Draw of a category with known weights; `rounded` ones were computed in float32."""

    weights: tuple[float, ...]
    rounded: bool = False


@dataclass(frozen=True, slots=True)
class RaceDraw:
    """Draw of a row of exponentials; its values are rows. `uniform`: handed out as exp(-e)."""

    width: int
    uniform: bool = False


Draw = UniformDraw | CategoryDraw | RaceDraw
Value = int | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Tail:
    """Fallback answers by place: a script's, else a constant, else random numbers.

    The script holds numbers in [0, 1], as the constant is, or rows of exponentials.
    """

    seed: int
    constant: float | None = None
    script: Mapping[int, float | tuple[float, ...]] = field(default_factory=dict)

    def fraction(self, place: int) -> float:
        written = self.script.get(place)
        if isinstance(written, float):
            return written
        # A loop that waits for a lucky number would never end at a constant.
        if self.constant is not None and place < MAX_DRAWS:
            return self.constant
        return _fraction(self.seed, place)

    def row(self, place: int, width: int) -> tuple[float, ...]:
        written = self.script.get(place)
        if isinstance(written, tuple) and len(written) == width:
            return written
        return _row(self.seed, place, width)


@lru_cache(maxsize=1 << 12)
def _fraction(seed: int, place: int) -> float:
    digest = hashlib.blake2b(b"%d %d" % (seed, place), digest_size=8).digest()
    return math.ldexp(int.from_bytes(digest) >> 11, -53)


@lru_cache(maxsize=1 << 12)
def _row(seed: int, place: int, width: int) -> tuple[float, ...]:
    return tuple(default_rng([seed, place]).standard_exponential(width).tolist())


class Tape(Source):
    r"""A source that follows a script.

    Uniforms in rows of `race_width` are answered as a race, whose winner is :math:`\arg\max_i w_i /
    e_i` with :math:`e_i = -\log u_i`; 0 for none. So are exponentials that are drawn one by one,
    as many in turn; without a race, each is a uniform's logarithm.
    """

    max_draws = MAX_DRAWS

    def __init__(self, race_width: int = 0) -> None:
        super().__init__()
        self._race_width = race_width if race_width > 1 else 0
        self.handed_out_rows = False  # whether it did more than answer rows of exponentials as such
        self._uniform_draw = UniformDraw(DOUBLE)
        self.restart((), Tail(0))

    def restart(self, values: Sequence[Value], tail: Tail) -> None:
        self._values, self._tail = values, tail
        self.seen: list[Draw] = []
        self.answered: list[float | tuple[float, ...]] = []  # in the form of `Tail.script`
        self.trouble = ""
        self._rest: list[float] = []  # of a row that is handed out one by one

    def uniforms(self, grid: Grid, shape: Shape) -> Vector:
        size = math.prod(shape)
        if self._race_width and shape and shape[-1] == self._race_width:
            self.handed_out_rows = True
            rows = [self._row(self._race_width, uniform=True) for _ in range(size // shape[-1])]
            # Values may lie between the points of the grid: the weights shall be found to more
            # digits than it has near 0.
            return np.exp(-np.array(rows)).clip(1e-38, grid.highest).reshape(shape)
        return np.array([self.uniform(grid) for _ in range(size)]).reshape(shape)

    def clocks(self, clock: Clock, shape: Shape) -> Vector:
        width = shape[-1] if shape else 1
        if width == 1:
            return np.array([self._single(clock) for _ in range(math.prod(shape))]).reshape(shape)
        rows = [self._row(width) for _ in range(math.prod(shape) // max(width, 1))]
        return np.array(rows).clip(clock.lowest, clock.highest).reshape(shape)

    def categories(self, weights: Vector, rounded: bool = False) -> Integers:
        return np.array([self._category(row, rounded) for row in weights], dtype=np.int64)

    def below(self, count: int) -> int:
        if count <= _MAX_INTEGERS:
            return self._category(np.ones(count))
        self.trouble = self.trouble or f"it draws an integer below {count:,}"
        return int(self._tail.fraction(len(self.seen)) * count)

    def bits(self, width: int) -> int:
        self.trouble = self.trouble or "it draws raw bits (integers, normals), not only uniforms"
        return int(self.uniform(DOUBLE) * 2.0**53) << 11 >> (64 - width)

    def _single(self, clock: Clock) -> float:
        """An exponential that is drawn alone."""
        if self._race_width:
            self.handed_out_rows = True
            drawn, *self._rest = self._rest or self._row(self._race_width)
        else:
            drawn = -math.log1p(-self.uniform(DOUBLE))
        return min(max(drawn, clock.lowest), clock.highest)

    def _next(self, draw: Draw) -> Value | None:
        self._rest = []  # another draw ends a race
        place = len(self.seen)
        self.seen.append(draw)
        if len(self.seen) > self.max_draws:
            self.trouble = self.trouble or f"one call draws more than {self.max_draws} uniforms"
        return self._values[place] if place < len(self._values) else None

    def uniform(self, grid: Grid) -> float:
        if self._uniform_draw.grid is not grid:
            self._uniform_draw = UniformDraw(grid)
        k, size = self._next(self._uniform_draw), 1 << grid.bits  # the same object: soon compared
        if not isinstance(k, int):
            fraction = self._tail.fraction(len(self.seen) - 1)
            k = min(int(fraction * size), size - 1)
        self.answered.append(k / size)
        return k / size if grid.digits >= grid.bits else grid.value(k)

    def _row(self, width: int, uniform: bool = False) -> tuple[float, ...]:
        row = self._next(RaceDraw(width, uniform))
        if not isinstance(row, tuple):
            row = self._tail.row(len(self.seen) - 1, width)
        self.answered.append(row)
        return row

    def _category(self, weights: Vector, rounded: bool = False) -> int:
        total = float(weights.sum())
        chances = weights / total
        k = self._next(CategoryDraw(tuple(chances.tolist()), rounded))
        if not isinstance(k, int):
            fraction = self._tail.fraction(len(self.seen) - 1)
            k = int(categories_at(chances[None], np.array([fraction]))[0])
        below = float(chances[:k].sum())
        self.answered.append(below + float(chances[k]) / 2)
        return k
