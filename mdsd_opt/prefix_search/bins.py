r"""Sums of both laws over bins of p/q, which are never opened.

Bins are even in :math:`t = n / (n + 2 m)`, n and m the masses of target and draft: where p/q is
near 1 they are narrow on both sides. One more holds the tokens that are never drafted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.prefix_search.race_sums import RaceSums

Vector = NDArray[np.float64]

#: Of one position, the bin of what is never drafted among them.
NUM_BINS = 2048

#: n/m in the middle of the bins.
HALF = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """Both laws of a position by bins.

    Attributes
    ----------
    p, q : ndarray, shape (B,)
        Masses of target and draft; the last is of what is never drafted.
    lowest, highest : ndarray, shape (B,)
        Bounds of p/q in each bin.
    weights : ndarray, shape (B,)
        Weights of the draft, in units of their own.
    race : callable or None
        Makes the `RaceSums` of these weights; of drafts without replacement that leave something.
    """

    p: Vector
    q: Vector
    lowest: Vector
    highest: Vector
    weights: Vector
    race: Callable[[], RaceSums] | None


def steps_of(num_bins: int, dtype: Any) -> NDArray[Any]:
    """What `bucket_kernels.even_keys` takes to put tokens in all of these bins but the last."""
    return np.array([HALF, num_bins - 1, num_bins - 2, 0], dtype)


def ratios_at(t: Vector) -> Vector:
    """n/m where t is 0 to 1."""
    with np.errstate(divide="ignore"):
        return HALF * t / (1.0 - t)
