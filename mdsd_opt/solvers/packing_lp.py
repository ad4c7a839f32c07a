r"""LPs of the form max c.x, A x <= b, 0 <= x <= u with non-negative b, by HiGHS.

x = 0 is feasible, so there is always an answer, if only a bad one when time runs out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.solvers.highs_backend import LpResult, SparseMatrix, solve_lp

Vector = NDArray[np.float64]

#: Size that the largest bound is scaled to.
_LARGEST_BOUND = 1e6


class PackingLp(NamedTuple):
    """The arrays of one LP, as `maximise` takes them."""

    objective: Vector
    matrix: SparseMatrix
    row_upper: Vector
    column_upper: Vector


def maximise(
    objective: Vector,
    matrix: SparseMatrix,
    row_upper: Vector,
    column_upper: Vector,
    algorithm: str = "simplex",
    presolve: bool = False,
    time_limit: float | None = None,
) -> LpResult:
    """Solve the LP; the point is scaled back and clipped to [0, column_upper]."""
    finite = column_upper[np.isfinite(column_upper)]
    largest = max(float(row_upper.max(initial=0.0)), float(finite.max(initial=0.0)), 1e-290)
    scale = _LARGEST_BOUND / largest
    result = solve_lp(
        maximise=True,
        objective=objective,
        matrix=matrix,
        row_lower=np.full(row_upper.size, -np.inf),
        row_upper=row_upper * scale,
        column_upper=column_upper * scale,
        algorithm=algorithm,
        presolve=presolve,
        time_limit=time_limit,
    )
    return replace(result, point=np.clip(result.point / scale, 0.0, column_upper))
