"""Linear programmes through CVXPY, with any solver it finds installed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.errors import MissingExtra, SolverError, UnknownName
from mdsd_opt.solvers.highs_backend import TOLERANCE, LpResult, Programme

#: Options of the solvers that stand for a tolerance, and for a limit in seconds.
_TOLERANCES = {
    "HIGHS": ("primal_feasibility_tolerance", "dual_feasibility_tolerance"),
    "CLARABEL": ("tol_gap_abs", "tol_gap_rel", "tol_feas"),
    "SCS": ("eps_abs", "eps_rel"),
    "OSQP": ("eps_abs", "eps_rel"),
}
_TIME_LIMITS = {"HIGHS": "time_limit", "CLARABEL": "time_limit", "SCS": "time_limit_secs",
                "OSQP": "time_limit"}  # fmt: skip


def model(programme: Programme) -> tuple[Any, Any, Any]:
    """Problem of CVXPY, its variable, and its constraint A_ub x <= b_ub.

    Raises `MissingExtra` where CVXPY is not installed.
    """
    try:
        import cvxpy as cp
    except ImportError as error:
        raise MissingExtra.of("CVXPY", "cvxpy", "backend 'cvxpy'") from error
    lower, upper = programme.bounds.T
    x = cp.Variable(programme.c.size, name="x", nonneg=not lower.any())
    rows = programme.A_ub @ x <= programme.b_ub
    bounded = np.flatnonzero(np.isfinite(upper))
    limits = [x[bounded] <= upper[bounded]] if bounded.size else []
    return cp.Problem(cp.Minimize(programme.c @ x), [rows, *limits]), x, rows


def solve(
    programme: Programme,
    solver: str = "HIGHS",
    time_limit: float | None = None,
    tolerance: float | None = None,
    verbose: bool = False,
) -> LpResult:
    """Solve a programme; HiGHS, whose tolerances are absolute, gets its masses scaled up.

    Raises `MissingExtra` where CVXPY is not installed, `UnknownName`, which lists those that are,
    where the solver is not, and `SolverError`, with its own words, where it failed.
    """
    solver = solver.upper()
    factor, scaled = 1.0, programme
    if solver == "HIGHS":
        scaled, factor = programme.scaled()
    shape = programme.A_ub.shape
    if 0 in shape:
        finite = np.where(np.isfinite(programme.bounds[:, 1]), programme.bounds[:, 1], 0.0)
        return LpResult(finite * (programme.c < 0), np.zeros(shape[0]), True, 0, "nothing to do")
    problem, x, rows = model(scaled)
    import cvxpy as cp

    installed = cp.installed_solvers()
    if solver not in installed:
        raise UnknownName.among("cvxpy solver", solver, installed)
    options = dict.fromkeys(_TOLERANCES.get(solver, ()), tolerance) if tolerance else {}
    if solver == "HIGHS":
        options = dict.fromkeys(_TOLERANCES[solver], max(tolerance or 0.0, TOLERANCE))
    if time_limit is not None and solver in _TIME_LIMITS:
        options[_TIME_LIMITS[solver]] = float(time_limit)
    silent = contextlib.nullcontext() if verbose else _silent_stdout()
    try:
        with warnings.catch_warnings(), silent:
            warnings.simplefilter("ignore")  # inaccurate solutions are told by their bounds
            problem.solve(solver=solver, verbose=verbose, **options)
    except cp.SolverError as error:
        if time_limit is not None:
            return _unsolved(shape, f"{solver}: {error}")
        raise SolverError(f"cvxpy with {solver}: {error}") from error
    except ValueError as error:  # e.g. a solver for another class of problems
        raise SolverError(f"cvxpy with {solver}: {error}") from error
    if x.value is None:
        if problem.status == "user_limit":
            return _unsolved(shape, f"{solver}: {problem.status}")
        raise SolverError(f"cvxpy with {solver} ended with {problem.status!r}")
    statistics = problem.solver_stats
    point, duals = (np.asarray(y, dtype=np.float64) for y in (x.value, rows.dual_value))
    point, duals = programme.unscaled(point, duals, factor)
    return LpResult(
        point=point,
        row_duals=duals,
        optimal=problem.status in ("optimal", "optimal_inaccurate"),
        iterations=int(getattr(statistics, "num_iters", None) or 0),
        message=f"cvxpy with {solver}: {problem.status}",
    )


def _unsolved(shape: tuple[int, int], message: str) -> LpResult:
    return LpResult(np.zeros(shape[1]), np.zeros(shape[0]), False, 0, message)


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
