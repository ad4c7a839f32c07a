r"""Small LPs of the form max c.x, A x <= b, 0 <= x <= u with non-negative b, by HiGHS.

x = 0 is feasible, so there is always an answer, if only a bad one when time runs out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.errors import SolverError

Vector = NDArray[np.float64]

#: HiGHS meets constraints to within 1e-7, whatever their size: masses are blown up to this.
_LARGEST_BOUND = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class PackingResult:
    """What HiGHS found.

    Attributes
    ----------
    point : ndarray, shape (num_columns,)
    row_duals : ndarray, shape (num_rows,)
        Gain of the objective for one more unit of b; zero if HiGHS has no duals.
    optimal : bool
        False if time ran out.
    iterations : int
    message : str
        Model status in HiGHS' words.
    """

    point: Vector
    row_duals: Vector
    optimal: bool
    iterations: int
    message: str


def maximise(
    objective: Vector,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    values: Vector,
    row_upper: Vector,
    column_upper: Vector,
    time_limit: float | None = None,
) -> PackingResult:
    """Solve the LP whose matrix holds `values` at (`rows`, `columns`).

    Raises
    ------
    SolverError
        HiGHS refused the model or ended without an optimum for another reason than time.
    """
    import highspy

    scale = _LARGEST_BOUND / max(float(row_upper.max()), float(column_upper.max()), 1e-290)
    num_rows, num_columns = row_upper.size, column_upper.size
    lp = highspy.HighsLp()
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.num_row_, lp.num_col_ = num_rows, num_columns
    lp.col_cost_ = objective
    lp.col_lower_ = np.zeros(num_columns)
    lp.col_upper_ = column_upper * scale
    lp.row_lower_ = np.full(num_rows, -highspy.kHighsInf)
    lp.row_upper_ = row_upper * scale
    by_column = np.argsort(columns, kind="stable")
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.num_row_, lp.a_matrix_.num_col_ = num_rows, num_columns
    lp.a_matrix_.start_ = np.searchsorted(columns[by_column], np.arange(num_columns + 1))
    lp.a_matrix_.index_ = rows[by_column].astype(np.int32)
    lp.a_matrix_.value_ = values[by_column]

    highs = highspy.Highs()
    options: dict[str, Any] = {"output_flag": False, "threads": 1, "presolve": "off"}
    if time_limit is not None:
        options["time_limit"] = float(time_limit)
    for name, value in options.items():
        _accepted(highs.setOptionValue(name, value), f"the option {name}={value!r}")
    # A refused model leaves an empty one behind, which `run` would call optimal.
    _accepted(highs.passModel(lp), "the model")
    _accepted(highs.run(), "to run")

    status = highs.getModelStatus()
    optimal = status == highspy.HighsModelStatus.kOptimal
    if not optimal and status != highspy.HighsModelStatus.kTimeLimit:
        raise SolverError(f"HiGHS ended with {highs.modelStatusToString(status)!r}")
    solution = highs.getSolution()
    point = np.array(solution.col_value) if solution.value_valid else np.zeros(num_columns)
    duals = np.array(solution.row_dual) if solution.dual_valid else np.zeros(num_rows)
    return PackingResult(
        point=np.clip(point / scale, 0.0, column_upper),
        row_duals=duals,
        optimal=optimal,
        iterations=int(highs.getInfo().simplex_iteration_count),
        message=f"HiGHS: {highs.modelStatusToString(status)}",
    )


def _accepted(status: Any, what: str) -> None:
    import highspy

    if status == highspy.HighsStatus.kError:
        raise SolverError(f"HiGHS refused {what}")
