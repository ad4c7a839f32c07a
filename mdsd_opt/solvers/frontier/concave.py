"""Blocks of a least concave majorant, on floats and Fractions alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[Any]  #: float64, or Fractions


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The straight pieces of the least concave majorant of a curve with n steps, steepest first.

    Attributes
    ----------
    ends : ndarray of int64, shape (m,)
        Block b holds the steps from ``ends[b - 1]`` (0 for the first) up to ``ends[b]``.
    widths, gains : ndarray, shape (m,)
        Sums over the steps of each block. At most the first width is zero, or all are.
    """

    ends: NDArray[np.int64]
    widths: Vector
    gains: Vector

    def slopes(self) -> Vector:
        """Gain over width of each step's block, shape (n,); 0 where there is no width."""
        flat = self.widths == 0
        slopes = self.gains * 0
        slopes[~flat] = self.gains[~flat] / self.widths[~flat]
        return np.repeat(slopes, np.diff(self.ends, prepend=0))


def falling_blocks(widths: Vector, gains: Vector) -> Blocks:
    """Pool steps until gain/width falls from block to block; a gain of no width is infinite.

    Parameters
    ----------
    widths, gains : ndarray, shape (n,)
        Not negative; float64 or Fractions.
    """
    if widths.dtype == object:
        return _exactly(widths, gains)
    from mdsd_opt.prefix_search.concave_kernels import pool_falling

    ends, (width, gain) = np.empty(widths.size, np.int64), np.empty((2, widths.size))
    count = pool_falling(widths, gains, ends, width, gain)
    return Blocks(ends[:count], width[:count], gain[:count])


def _exactly(widths: Vector, gains: Vector) -> Blocks:
    blocks: list[tuple[int, Any, Any]] = []
    for i, (width, gain) in enumerate(zip(widths, gains, strict=True)):
        end = i + 1
        while blocks and blocks[-1][2] * width <= gain * blocks[-1][1]:
            _, low_width, low_gain = blocks.pop()
            width, gain = width + low_width, gain + low_gain
        blocks.append((end, width, gain))
    ends, width, gain = (np.array(column, dtype=object) for column in zip(*blocks, strict=True))
    return Blocks(ends.astype(np.int64), width, gain)
