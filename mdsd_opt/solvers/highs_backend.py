"""Linear programmes by HiGHS, with arrays passed directly and every return value checked.

HiGHS reports a refusal only in return values: a rejected model followed by `run` claims optimality
of the empty model. And it meets constraints to within an absolute tolerance, while masses of
draft sets are products of probabilities: callers scale their right-hand sides up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Flags, Vector
from mdsd_opt.errors import SolverError

#: Feasibility tolerance for HiGHS, primal and dual; the smallest it allows.
TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class SparseMatrix:
    """Entries `values` at (`rows`, `columns`) of a matrix of this shape."""

    shape: tuple[int, int]
    rows: NDArray[Any]
    columns: NDArray[Any]
    values: Vector


@dataclass(frozen=True, slots=True, eq=False)
class LpResult:
    """Result of HiGHS: a point, shape (num_columns,), and duals of the rows, shape (num_rows,).

    Both are zero where there are none; a dual is the change of the objective for one more unit of a
    right-hand side. The final basis is given if the algorithm ends in one; `optimal` is False if
    time ran out; the message is the model status in HiGHS' words.
    """

    point: Vector
    row_duals: Vector
    optimal: bool
    iterations: int
    message: str
    basic_columns: Flags | None = None
    basic_rows: Flags | None = None


def solve_lp(
    *,
    maximise: bool,
    objective: Vector,
    matrix: SparseMatrix,
    row_lower: Vector,
    row_upper: Vector,
    column_upper: Vector,
    algorithm: str = "simplex",
    presolve: bool = False,
    time_limit: float | None = None,
) -> LpResult:
    """Optimise over 0 <= x <= column_upper, row_lower <= A x <= row_upper.

    The algorithm is "simplex" or "ipm" (interior point, then crossover to a basis). HiGHS does not
    watch the time while it presolves. Raises `SolverError` where it refused the model, ended
    without an optimum for another reason than time, or its bindings do not load.
    """
    highspy = _bindings()
    num_rows, num_columns = matrix.shape
    if num_columns == 0:
        nothing, slack = np.zeros(0, dtype=np.bool_), np.ones(num_rows, dtype=np.bool_)
        return LpResult(np.zeros(0), np.zeros(num_rows), True, 0, "nothing to do", nothing, slack)
    lp = highspy.HighsLp()
    lp.sense_ = highspy.ObjSense.kMaximize if maximise else highspy.ObjSense.kMinimize
    lp.num_row_, lp.num_col_ = num_rows, num_columns
    lp.col_cost_ = objective
    lp.col_lower_ = np.zeros(num_columns)
    lp.col_upper_ = np.minimum(column_upper, highspy.kHighsInf)
    lp.row_lower_ = np.maximum(row_lower, -highspy.kHighsInf)
    lp.row_upper_ = np.minimum(row_upper, highspy.kHighsInf)
    by_column = np.argsort(matrix.columns, kind="stable")
    starts = np.searchsorted(matrix.columns[by_column], np.arange(num_columns + 1))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.num_row_, lp.a_matrix_.num_col_ = num_rows, num_columns
    lp.a_matrix_.start_ = starts.astype(np.int32)
    lp.a_matrix_.index_ = matrix.rows[by_column].astype(np.int32)
    lp.a_matrix_.value_ = matrix.values[by_column]

    # This leaves out callbacks of the Python class, which version 1.16 announces on stdout.
    highs = highspy.Highs.__base__()
    options: dict[str, Any] = {
        "output_flag": False,
        "threads": 1,
        "solver": algorithm,
        "presolve": "on" if presolve else "off",
        # The default of 1e-7 would hide the masses of unlikely tokens, and is no faster.
        "primal_feasibility_tolerance": TOLERANCE,
        "dual_feasibility_tolerance": TOLERANCE,
    }
    if time_limit is not None:
        options["time_limit"] = float(time_limit)
    for name, value in options.items():
        _accepted(highs.setOptionValue(name, value), f"the option {name}={value!r}")
    _accepted(highs.passModel(lp), "the model")
    if (highs.getNumRow(), highs.getNumCol()) != matrix.shape:
        raise SolverError(f"HiGHS took a model of another size than {matrix.shape}")
    if highs.run() == highspy.HighsStatus.kError:
        # Another user of HiGHS in this process may have started its threads, of another number.
        highs.resetGlobalScheduler(True)
        _accepted(highs.run(), "to run")

    status = highs.getModelStatus()
    if presolve and status == highspy.HighsModelStatus.kInfeasible:
        # Presolve may take the rounding of large numbers, beyond so small a tolerance, for that.
        _accepted(highs.clearSolver(), "to start again")
        _accepted(highs.setOptionValue("presolve", "off"), "the option presolve='off'")
        _accepted(highs.run(), "to run")
        status = highs.getModelStatus()
    optimal = status == highspy.HighsModelStatus.kOptimal
    if not optimal and status != highspy.HighsModelStatus.kTimeLimit:
        raise SolverError(f"HiGHS ended with {highs.modelStatusToString(status)!r}")
    solution = highs.getSolution()
    basis = highs.getBasis()
    info = highs.getInfo()
    return LpResult(
        point=np.array(solution.col_value) if solution.value_valid else np.zeros(num_columns),
        row_duals=np.array(solution.row_dual) if solution.dual_valid else np.zeros(num_rows),
        basic_columns=_basic(basis.col_status) if optimal and basis.valid else None,
        basic_rows=_basic(basis.row_status) if optimal and basis.valid else None,
        optimal=optimal,
        iterations=int(info.simplex_iteration_count + max(info.ipm_iteration_count, 0)),
        message=f"HiGHS: {highs.modelStatusToString(status)}",
    )


def _bindings() -> Any:
    """Module highspy, whose symbols clash with another HiGHS that was loaded before it."""
    try:
        import highspy
    except ImportError as error:
        raise SolverError(
            f"HiGHS does not load: {error}. A library with a HiGHS of its own, such as OR-tools, "
            "cannot be in the same process: solve in a process without it, or use "
            "method='max_flow', which needs no HiGHS."
        ) from error
    return highspy


def _basic(statuses: Any) -> Flags:
    import highspy

    basic = highspy.HighsBasisStatus.kBasic
    return np.array([status == basic for status in statuses], dtype=np.bool_)


def _accepted(status: Any, subject: str) -> None:
    import highspy

    if status == highspy.HighsStatus.kError:
        raise SolverError(f"HiGHS refused {subject}")


#: Value that the largest bound is scaled to.
_LARGEST_BOUND = 1e6


class PackingLp(NamedTuple):
    """Arrays of one LP, as `maximise` takes them."""

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
