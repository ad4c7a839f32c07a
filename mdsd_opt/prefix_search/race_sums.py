"""What the race of drafts without replacement needs to know of the tokens in every bin.

Many light tokens are added to a race at once by the power sums of their weights, heavy ones one by
one (`race_kernels`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RaceSums:
    """The draft's weights at one position, by bins.

    Attributes
    ----------
    slowest, others : float
        Weight of all tokens but the K - 1 heaviest, and but the heaviest.
    unit : float
        Up to this weight tokens are light.
    moments : ndarray, shape (B, COLUMNS)
        From column MOMENT on: sums of (weight / unit)^r over light tokens, r = 1, 2, ...
    chains : tuple of ndarray
        The first heavy token of every bin and the one after every heavy token, -1 ending a chain,
        and their weights.
    """

    slowest: float
    others: float
    unit: float
    moments: Vector
    chains: tuple[Integers, Integers, Vector]


def race_sums_of_row(
    weights: Vector, bins: NDArray[Any], num_drafts: int, num_bins: int
) -> RaceSums:
    """A pass over a row for the heaviest tokens, and one for the sums.

    Parameters
    ----------
    weights, bins : ndarray, shape (V,)
    num_drafts : int
        K, below the number of tokens with a weight.
    num_bins : int
        B.
    """
    from mdsd_opt.prefix_search import containment_kernels as kernels
    from mdsd_opt.prefix_search.race_group_kernels import COLUMNS
    from mdsd_opt.prefix_search.race_kernels import most_heavy, race_terms

    slowest, others = kernels.race_rates(weights, num_drafts, np.empty(num_drafts, np.int64))
    unit = race_terms(slowest, num_drafts, False)[0]
    room = most_heavy(weights.size, num_drafts)
    run, moments = np.empty((2, num_bins, COLUMNS))
    chains = np.empty(num_bins, np.int64), np.empty(room, np.int64), np.zeros(room)
    kernels.race_sums(weights, weights, bins, unit, run, moments, *chains)
    return RaceSums(slowest, others, unit, moments, chains)
