"""Sources that answer draws: a generator (audits by sampling), or one with a draw at an edge.

What can be answered is what a generator can return. PyTorch draws float32 and narrower uniforms
from 24 bits and rounds them to the type; what rounds up to 1 becomes 0, so that a bfloat16 uniform
is 0 once in 512 draws. Exponentials of every type come from 53 bits on a CPU; on a CUDA device they
are never 0.
"""

from __future__ import annotations

import ctypes
import math
import threading
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mdsd_opt.base.array_types import Integers, Vector

Shape = tuple[int, ...]

_UINT64 = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
_UINT32 = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
_DOUBLE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)


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
        """Number of values k."""
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
        """Value that the generator returns for one k."""
        if self.digits >= self.bits:
            return math.ldexp(k, -self.bits)
        return float(self.values(np.array([k], dtype=np.int64))[0])

    @property
    def highest(self) -> float:
        """Largest value that the generator can return."""
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


class Source(Protocol):
    """Interface that answers every kind of draw."""

    @property
    def bit_generator(self) -> Any:
        """Bit generator whose NumPy generators draw this source's answers."""

    def uniforms(self, grid: Grid, shape: Shape) -> Vector:
        """Uniforms of a type, in any shape."""

    def clocks(self, clock: Clock, shape: Shape) -> Vector:
        """Exponentials of rate one; each row, along the last axis, may be a race."""

    def categories(self, weights: Vector, rounded: bool = False) -> Integers:
        """One category for each row of weights, shape (n, V) -> (n,).

        `rounded` says that they were computed in float32 or coarser.
        """

    def below(self, count: int) -> int:
        """Random integer in 0..count-1, each equally likely."""

    def bits(self, width: int) -> int:
        """Random integer of so many bits."""


class _BitFunctions(ctypes.Structure):
    """The C structure bitgen_t of NumPy."""

    _fields_ = (
        ("state", ctypes.c_void_p),
        ("next_uint64", _UINT64),
        ("next_uint32", _UINT32),
        ("next_double", _DOUBLE),
        ("next_raw", _UINT64),
    )


class SourceBits:
    """Bit generator that asks a source; `generator` is a genuine NumPy one with its answers.

    NumPy takes its randomness from a C structure of function pointers that a bit generator hands
    over in a capsule. Here these functions are Python callbacks, so that any code written for
    `numpy.random.Generator`, or for `numpy.random` itself, can be driven through chosen uniforms,
    exactly 0.0 included.
    """

    def __init__(self, source: Source) -> None:
        self.lock = threading.RLock()
        self._functions = _BitFunctions(
            None,
            _UINT64(lambda _: source.bits(64)),
            _UINT32(lambda _: source.bits(32)),
            _DOUBLE(lambda _: source.uniforms(DOUBLE, (1,))[0]),
            _UINT64(lambda _: source.bits(64)),
        )
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype = ctypes.py_object
        new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self._name = b"BitGenerator"  # the capsule keeps a pointer to it
        self.capsule = new_capsule(ctypes.addressof(self._functions), self._name, None)
        self.generator = np.random.Generator(self)  # type: ignore[arg-type]  # duck-typed in numpy


class SampledSource:
    """Source that answers from a NumPy generator."""

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
    """Source that answers from a generator, with one draw put to an end of its range.

    Uniforms and exponentials have ends and are counted in `drawn`; categories have none. `rarity`
    and `value` are those of the end, None while no draw was put to it; `kind` names the draw. Of
    random bits, `spared` ones from the lowest on do not count: a float32 that NumPy makes of 32
    bits is 0 for all values of the lowest eight.
    """

    spared = 0

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self._bits = SourceBits(self)
        self.restart(0, upper=False)

    def restart(self, place: int, upper: bool) -> None:
        """Begin anew, with the draw at this place in the sequence put to its lower or upper end."""
        self._place, self._upper = place, upper
        self.drawn = 0
        self.rarity: int | None = None
        self.value = math.nan
        self.kind = ""

    @property
    def bit_generator(self) -> Any:
        return self._bits

    def uniforms(self, grid: Grid, shape: Shape) -> Vector:
        end = grid.highest if self._upper else 0.0
        return self._put(super().uniforms(grid, shape), end, grid.rarity, "uniform")

    def clocks(self, clock: Clock, shape: Shape) -> Vector:
        end = clock.highest if self._upper else clock.lowest
        return self._put(super().clocks(clock, shape), end, clock.rarity, "exponential")

    def bits(self, width: int) -> int:
        drawn, inside = super().bits(width), (1 << min(self.spared, width)) - 1
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
