"""Packing LPs through CVXPY, with any solver it finds installed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mdsd_opt.base.array_types import Vector
from mdsd_opt.errors import MissingExtra, SolverError, UnknownName
from mdsd_opt.solvers.highs_backend import TOLERANCE, LpResult, SparseMatrix

#: Factors of the numbers: HiGHS has absolute tolerances, so it gets large ones; others scale.
_SCALES = {"HIGHS": 1e6}
_TOLERANCES = {
    "HIGHS": {"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE}
}
_TIME_LIMITS = {"HIGHS": "time_limit", "CLARABEL": "time_limit", "SCS": "time_limit_secs"}


def maximise(
    objective: Vector,
    matrix: SparseMatrix,
    row_upper: Vector,
    column_upper: Vector,
    solver: str = "HIGHS",
    time_limit: float | None = None,
    scale: float | None = None,
) -> LpResult:
    """Solve max c.x, A x <= b, 0 <= x <= u; the duals are those of A x <= b.

    Bounds are multiplied by `scale`, by default what suits the solver, and the point divided by it.
    Raises `MissingExtra` where CVXPY is not installed, `UnknownName`, which lists those that are,
    where the solver is not, and `SolverError`, with its own words, where it failed.
    """
    try:
        import cvxpy as cp
    except ImportError as error:
        raise MissingExtra.of("CVXPY", "cvxpy", "backend 'cvxpy'") from error
    from scipy.sparse import csr_array

    installed = cp.installed_solvers()
    if solver.upper() not in installed:
        raise UnknownName.among("cvxpy solver", solver, installed)
    if 0 in matrix.shape:  # nothing to bound, or nothing to choose
        finite = np.where(np.isfinite(column_upper), column_upper, 0.0)
        return LpResult(finite, np.zeros(matrix.shape[0]), True, 0, "nothing to do")
    solver = solver.upper()
    scale = _SCALES.get(solver, 1.0) if scale is None else scale
    a = csr_array((matrix.values, (matrix.rows, matrix.columns)), shape=matrix.shape)
    x = cp.Variable(matrix.shape[1], nonneg=True)
    rows = a @ x <= row_upper * scale
    bounded = np.flatnonzero(np.isfinite(column_upper))
    constraints = [rows]
    if bounded.size:
        constraints.append(x[bounded] <= column_upper[bounded] * scale)
    problem = cp.Problem(cp.Maximize(objective @ x), constraints)
    options = dict(_TOLERANCES.get(solver, {}))
    if time_limit is not None and solver in _TIME_LIMITS:
        options[_TIME_LIMITS[solver]] = float(time_limit)
    try:
        with warnings.catch_warnings(), _silent_stdout():
            warnings.simplefilter("ignore")  # inaccurate solutions are told by the certificate
            problem.solve(solver=solver, **options)
    except cp.SolverError as error:
        if time_limit is not None:
            return _unsolved(matrix, f"{solver}: {error}")
        raise SolverError(f"cvxpy with {solver}: {error}") from error
    except ValueError as error:  # e.g. a solver for another class of problems
        raise SolverError(f"cvxpy with {solver}: {error}") from error
    if x.value is None:
        if problem.status == "user_limit":
            return _unsolved(matrix, f"{solver}: {problem.status}")
        raise SolverError(f"cvxpy with {solver} ended with {problem.status!r}")
    statistics = problem.solver_stats
    return LpResult(
        point=np.clip(np.asarray(x.value, dtype=np.float64) / scale, 0.0, column_upper),
        row_duals=np.asarray(rows.dual_value, dtype=np.float64),
        optimal=problem.status in ("optimal", "optimal_inaccurate"),
        iterations=int(getattr(statistics, "num_iters", None) or 0),
        message=f"cvxpy with {solver}: {problem.status}",
    )


def _unsolved(matrix: SparseMatrix, message: str) -> LpResult:
    return LpResult(np.zeros(matrix.shape[1]), np.zeros(matrix.shape[0]), False, 0, message)


@contextlib.contextmanager
def _silent_stdout() -> Iterator[None]:
    """Keep output of C solvers out of results: HiGHS 1.16 announces itself, verbose or not."""
    _flush()
    try:
        stdout = os.dup(1)
    except OSError:  # there is no stdout
        yield
        return
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        _flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def _flush() -> None:
    """Write the buffers of Python and C."""
    sys.stdout.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
