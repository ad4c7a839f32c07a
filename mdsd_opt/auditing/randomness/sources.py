"""Sources that answer draws one by one: base of those that drive, and one with a draw at an edge.

What can be answered is what a generator can return. PyTorch draws float32 and narrower uniforms
from 24 bits and rounds them to the type; what rounds up to 1 becomes 0, so that a bfloat16 uniform
is 0 once in 512 draws. Exponentials of every type come from 53 bits on a CPU; on a CUDA device they
are never 0.
"""

from __future__ import annotations

import math
import os
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Integers, Vector

Shape = tuple[int, ...]

#: NumPy's own function, kept here because a function under audit may run with another one.
default_rng = np.random.default_rng

#: Folders of code that is not the engine's own.
_PACKAGES = Path(np.__file__).parents[1]
_FOREIGN = (
    f"{Path(__file__).parents[2]}{os.sep}",
    *(f"{_PACKAGES / name}{os.sep}" for name in ("numpy", "scipy", "torch")),
    random.__file__,
)


@dataclass(frozen=True, slots=True)
class Grid:
    """Uniforms :math:`k 2^{-b}` for k below :math:`2^b`, rounded to a number of binary digits.

    The digits, and the name, are those of the type in which they are returned.
    """

    bits: int
    digits: int
    name: str

    @property
    def size(self) -> int:
        return 1 << self.bits

    def values(self, k: Integers) -> Vector:
        """Values that the generator returns for each k."""
        exact = np.ldexp(k.astype(np.float64), -self.bits)
        if self.digits >= self.bits:
            return exact
        mantissa, exponent = np.frexp(exact)
        rounded = np.ldexp(np.rint(np.ldexp(mantissa, self.digits)), exponent - self.digits)
        return np.where(rounded >= 1.0, 0.0, rounded)

    def value(self, k: int) -> float:
        if self.digits >= self.bits:
            return math.ldexp(k, -self.bits)
        return float(self.values(np.array([k], dtype=np.int64))[0])

    @property
    def highest(self) -> float:
        return 1.0 - 2.0 ** -min(self.bits, self.digits)

    @property
    def rarity(self) -> int:
        """Exponent n if 0 and the highest value each come about once in 2**n draws."""
        return self.bits if self.digits >= self.bits else self.digits + 1


DOUBLE = Grid(53, 53, "float64")
SINGLE = Grid(24, 24, "float32")
HALF = Grid(24, 11, "float16")
BFLOAT = Grid(24, 8, "bfloat16")

GRIDS = {grid.name: grid for grid in (DOUBLE, SINGLE, HALF, BFLOAT)}


@dataclass(frozen=True, slots=True)
class Clock:
    """Exponentials of rate one between two ends, each of which comes once in 2**rarity draws."""

    lowest: float
    highest: float
    rarity: int


CPU_CLOCK = Clock(0.0, 53 * math.log(2.0), 53)
CUDA_CLOCK = Clock(2.0**-24, 22.9, 24)


class Source(ABC):
    """Answers every kind of draw, and follows the states of the generators that ask.

    A generator goes through its states as it would without an audit, and is answered by the state
    that it is in: a new one is a new draw, and one that it was in before in the same call gives the
    same number again, whoever put it back. What cannot be answered so is `trouble`: another kind of
    draw from such a state, and any from a state that an earlier call drew from.
    """

    generator: np.random.Generator  # the engine's, set by `served`

    def __init__(self) -> None:
        self.trouble = ""
        self._now: dict[int, tuple[Hashable, Any]] = {}
        self._before: set[int] = set()

    def new_call(self) -> None:
        """Take all states met so far for those of earlier calls."""
        self._before.update(self._now)
        self._now.clear()

    def followed(self, states: Sequence[int], kind: Hashable, draw: Callable[[], Any]) -> Any:
        """Answer of a draw that begins in the first of these states and goes through the others.

        States are told by hash values.
        """
        first = states[0]
        if first in self._now and self._now[first][0] == kind:
            return self._now[first][1]
        if not self._before.isdisjoint(states):
            self.lost("it draws from a state that a generator was in at an earlier call")
        elif not self._now.keys().isdisjoint(states):
            self.lost("it draws other numbers from a state that it drew from before")
        answer = draw()
        self._now.update(dict.fromkeys(states, (None, None)))
        self._now[first] = kind, answer
        return answer

    def answer(self, state: int, kind: Hashable, draw: Callable[[Source], Any]) -> Any:
        """Answer of a draw that takes the generator out of this state only."""
        known = self._now.get(state)
        if known is not None and known[0] == kind:
            return known[1]
        if state in self._before:
            self.lost("it draws from a state that a generator was in at an earlier call")
        elif known is not None:
            self.lost("it draws other numbers from a state that it drew from before")
        answer = draw(self)
        self._now[state] = kind, answer
        return answer

    def lost(self, subject: str) -> None:
        self.trouble = self.trouble or f"{subject}, at {_line()}"

    def uniform(self, grid: Grid) -> float:
        """Uniform of a type."""
        return float(self.uniforms(grid, (1,))[0])

    @abstractmethod
    def uniforms(self, grid: Grid, shape: Shape) -> Vector:
        """Uniforms of a type, in any shape; each row, along the last axis, may be a race."""

    @abstractmethod
    def clocks(self, clock: Clock, shape: Shape) -> Vector:
        """Exponentials of rate one; each row, along the last axis, may be a race."""

    @abstractmethod
    def categories(self, weights: Vector, rounded: bool = False) -> Integers:
        """One category for each row of weights, shape (n, V) -> (n,).

        `rounded` says that they were computed in float32 or coarser.
        """

    @abstractmethod
    def below(self, count: int) -> int:
        """Random integer in 0..count-1, each equally likely."""

    @abstractmethod
    def bits(self, width: int) -> int:
        """Random integer of so many bits."""


#: Sources that are asked now, the innermost block last; None where generators run by themselves.
ASKED: list[Source | None] = [None]


def asked() -> Source | None:
    """Source that answers now, if any."""
    return ASKED[-1]


def _line() -> str:
    """Place in the code of the engine that is at work: file and line."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOREIGN):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


class EdgeSource(Source):
    """Source that answers from a generator, with one draw put to an end of its range.

    Uniforms and exponentials have ends and are counted in `drawn`; categories have none. `rarity`
    and `value` are those of the end, None while no draw was put to it; `kind` names the draw. Of
    random bits, `spared` ones from the lowest on do not count: a float32 that NumPy makes of 32
    bits is 0 for all values of the lowest eight.
    """

    spared = 0

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self.rng = rng
        self.restart(0, upper=False)

    def restart(self, place: int, upper: bool) -> None:
        """Begin anew, with the draw at this place in the sequence put to its lower or upper end."""
        self._place, self._upper = place, upper
        self.drawn = 0
        self.rarity: int | None = None
        self.value = math.nan
        self.kind = self.trouble = ""

    def uniforms(self, grid: Grid, shape: Shape) -> Vector:
        drawn = grid.values(self.rng.integers(grid.size, size=shape))
        return self._put(drawn, grid.highest if self._upper else 0.0, grid.rarity, "uniform")

    def clocks(self, clock: Clock, shape: Shape) -> Vector:
        drawn = np.clip(-np.log1p(-self.rng.random(shape)), clock.lowest, clock.highest)
        end = clock.highest if self._upper else clock.lowest
        return self._put(drawn, end, clock.rarity, "exponential")

    def categories(self, weights: Vector, rounded: bool = False) -> Integers:
        return categories_at(weights, self.rng.random(len(weights)))

    def below(self, count: int) -> int:
        # Python's integers have no end, NumPy's do.
        return int(self.rng.random() * count) if count >= 2**63 else int(self.rng.integers(count))

    def bits(self, width: int) -> int:
        drawn = int.from_bytes(self.rng.bytes(width // 8 + 1), "little") % (1 << width)
        inside = (1 << min(self.spared, width)) - 1
        end = (1 << width) - 1 - inside if self._upper else inside
        rarity = width - min(self.spared, width)
        return drawn if self._meets(1, end, rarity, "integer") is None else end

    def _put(self, drawn: Vector, end: float, rarity: int, kind: str) -> Vector:
        index = self._meets(drawn.size, end, rarity, kind)
        if index is not None:
            drawn.flat[index] = end
        return drawn

    def _meets(self, size: int, end: float, rarity: int, kind: str) -> int | None:
        """Index of the draw, among the next ones, that is put to its end."""
        index = self._place - self.drawn
        self.drawn += size
        if not 0 <= index < size:
            return None
        self.rarity, self.value, self.kind = rarity, float(end), kind
        return index


def categories_at(weights: Vector, uniforms: Vector) -> Integers:
    """Category in whose share of the weights each uniform falls; never one of weight zero."""
    reached = np.cumsum(weights, axis=1)
    place = (reached <= (uniforms * reached[:, -1])[:, None]).sum(axis=1)
    last = weights.shape[1] - 1 - np.argmax(weights[:, ::-1] > 0, axis=1)
    return np.minimum(place, last)  # the product may round up to the total
