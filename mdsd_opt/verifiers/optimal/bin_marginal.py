r"""The selection marginal on bins of p/q, from their masses alone.

It has one ratio :math:`\rho_b` to q in every bin. The output follows the target whatever
:math:`\rho` is, as long as it rises and its prefix sums stay above those of Q. Inside the optimal
subset it is raised to the bin's largest p/q, outside it is lowered to the least one, as far as the
room that acceptance leaves allows: then nothing is lost, for all of p, or all of p_I, is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.prefix_search.bin_groups import BinGroups

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class BinMarginal:
    """p_I of groups of bins, for a target r p.

    Attributes
    ----------
    x, ratio : ndarray, shape (n,)
        p_I of each group, and :math:`\\rho`, what it is of q there.
    split : int
        Number of groups in the optimal prefix.
    most : float
        No rule passes more on average.
    """

    x: Vector
    ratio: Vector
    split: int
    most: float


def bin_marginal(groups: BinGroups, demand: float = 1.0) -> BinMarginal:
    """The marginal for a target of mass at most one.

    Parameters
    ----------
    groups : BinGroups
    demand : float
        r, positive.
    """
    from mdsd_opt.verifiers.optimal.bin_marginal_kernels import fill_bins

    size = groups.q.size
    x, room, starts = np.empty(size), np.empty((3, size + 1)), np.empty(size + 1, np.int64)
    split, least = fill_bins(
        demand * groups.p, groups.q, demand * groups.lowest, demand * groups.highest,
        groups.contained, room, starts, x,
    )  # fmt: skip
    return BinMarginal(x, x / groups.q, split, min(max(1.0 + least, 0.0), 1.0))
