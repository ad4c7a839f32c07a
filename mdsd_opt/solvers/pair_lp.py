r"""The transport LP of two drafts with one variable for each pair of tokens.

Draft set {i, j} hands the share :math:`x_{ij}` of its mass to i and the rest to j (i < j), so token
i is selected with mass :math:`W_i + \sum_{j>i} x_{ij} + \sum_{j<i} (W_{ji} - x_{ji})`, and t_i of
it is accepted:

.. math:: \max \sum_i t_i \quad\text{s.t.}\quad 0 \le t_i \le p_i, \; 0 \le x_{ij} \le W_{ij}, \quad
          t_i - \sum_{j>i} x_{ij} + \sum_{j<i} x_{ji} \le W_i + \sum_{j<i} W_{ji} .
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.problem.solution import weighted_count
from mdsd_opt.solvers.highs_backend import SparseMatrix
from mdsd_opt.solvers.packing_lp import PackingLp

Vector = NDArray[np.float64]


def pair_lp(
    p: Vector,
    fixed: Vector,
    first: NDArray[np.integer],
    second: NDArray[np.integer],
    pair_mass: Vector,
) -> PackingLp:
    """Build the LP: columns t_1..t_V, then x of every pair.

    Parameters
    ----------
    p : ndarray, shape (V,)
    fixed : ndarray, shape (V,)
        Mass that each token is selected with anyway.
    first, second : ndarray of int, shape (num_pairs,)
        The pairs, first < second.
    pair_mass : ndarray, shape (num_pairs,)
    """
    size, num_pairs = p.size, first.size
    t = np.arange(size)
    x = size + np.arange(num_pairs)
    return PackingLp(
        matrix=SparseMatrix(
            shape=(size, size + num_pairs),
            rows=np.concatenate([t, first, second]),
            columns=np.concatenate([t, x, x]),
            values=np.concatenate([np.ones(size), -np.ones(num_pairs), np.ones(num_pairs)]),
        ),
        objective=np.concatenate([np.ones(size), np.zeros(num_pairs)]),
        row_upper=fixed + weighted_count(second, pair_mass, size),
        column_upper=np.concatenate([p, pair_mass]),
    )
