"""Which numbers a generator can return, how far they reach, and how often it returns the ends.

PyTorch draws float32 and narrower uniforms from 24 bits and rounds them to the type; what rounds up
to 1 becomes 0, so that a bfloat16 uniform is 0 once in 512 draws. Exponentials of every type come
from 53 bits on a CPU; on a CUDA device they are never 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Grid:
    """Uniforms :math:`k 2^{-b}` for k below :math:`2^b`, rounded to a number of digits.

    Attributes
    ----------
    bits : int
        b.
    digits : int
        Binary digits of the type they are returned in.
    name : str
        Of that type.
    """

    bits: int
    digits: int
    name: str

    @property
    def size(self) -> int:
        """Number of k."""
        return 1 << self.bits

    def values(self, k: NDArray[np.int64]) -> Vector:
        """What the generator returns for each k."""
        exact = np.ldexp(k.astype(np.float64), -self.bits)
        if self.digits >= self.bits:
            return exact
        mantissa, exponent = np.frexp(exact)
        rounded = np.ldexp(np.rint(np.ldexp(mantissa, self.digits)), exponent - self.digits)
        return np.where(rounded >= 1.0, 0.0, rounded)

    def value(self, k: int) -> float:
        """What the generator returns for one k."""
        return float(self.values(np.array([k], dtype=np.int64))[0])

    @property
    def highest(self) -> float:
        """The largest value it can return."""
        return 1.0 - 2.0 ** -min(self.bits, self.digits)

    @property
    def rarity(self) -> int:
        """Of 0 and of the highest value: each comes about once in 2 to this many draws."""
        return self.bits if self.digits >= self.bits else self.digits + 1


DOUBLE = Grid(53, 53, "float64")
SINGLE = Grid(24, 24, "float32")
HALF = Grid(24, 11, "float16")
BFLOAT = Grid(24, 8, "bfloat16")

GRIDS = {grid.name: grid for grid in (DOUBLE, SINGLE, HALF, BFLOAT)}


@dataclass(frozen=True, slots=True)
class Clock:
    """Exponentials of rate one.

    Attributes
    ----------
    lowest, highest : float
        The ends of what the generator returns.
    rarity : int
        Each end comes about once in 2 to this many draws.
    """

    lowest: float
    highest: float
    rarity: int


CPU_CLOCK = Clock(0.0, 53 * math.log(2.0), 53)
CUDA_CLOCK = Clock(2.0**-24, 22.9, 24)
