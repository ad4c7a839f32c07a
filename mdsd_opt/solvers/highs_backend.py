"""Linear programmes by HiGHS, with arrays passed directly and every return value checked.

HiGHS reports a refusal only in return values: a rejected model followed by `run` claims optimality
of the empty model. And it meets constraints to within an absolute tolerance, while masses of
draft sets are products of probabilities: they are scaled up.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Vector
from mdsd_opt.base.files import atomic_write, check_writable
from mdsd_opt.errors import InvalidInput, SolverError

#: Feasibility tolerance for HiGHS, primal and dual; the smallest it allows.
TOLERANCE = 1e-10


#: Value that the largest mass is scaled to.
_LARGEST = 1e6


@dataclass(frozen=True, eq=False, kw_only=True)
class Programme:
    """Minimise c.x over A_ub x <= b_ub and bounds, shape (n, 2); A_ub is sparse, CSC or CSR.

    The masses of a problem, its small numbers, are bounds of a programme, or else its costs.
    """

    c: Vector
    A_ub: Any
    b_ub: Vector
    bounds: NDArray[np.float64]
    masses_are_costs: bool = False

    def scaled(self, largest: float = _LARGEST) -> tuple[Self, float]:
        """Programme with all masses times a factor, so that this is the largest, and the factor.

        Tolerances of solvers are absolute: divide the value by the factor, and the point too, or,
        where `masses_are_costs`, the duals.
        """
        bounds = self.bounds[np.isfinite(self.bounds)]
        masses = [self.c] if self.masses_are_costs else [self.b_ub, bounds]
        factor = largest / max(*(float(x.max(initial=0.0)) for x in masses), 1e-290)
        if self.masses_are_costs:
            return replace(self, c=self.c * factor), factor
        return replace(self, b_ub=self.b_ub * factor, bounds=self.bounds * factor), factor

    def unscaled(self, point: Vector, duals: Vector, factor: float) -> tuple[Vector, Vector]:
        """Point within the bounds, and duals, of what solves the scaled programme."""
        if self.masses_are_costs:
            duals = duals / factor
        else:
            point = point / factor
        return np.clip(point, self.bounds[:, 0], self.bounds[:, 1]), np.maximum(duals, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class LpResult:
    """Result of HiGHS: a point, shape (num_columns,), and duals of the rows, shape (num_rows,).

    Both are zero where there are none; a dual, never negative, is what one more unit of b_ub takes
    off the cost. The final basis is given if the algorithm ends in one; `optimal` is False if
    time ran out; the message is the model status in HiGHS' words.
    """

    point: Vector
    row_duals: Vector
    optimal: bool
    iterations: int
    message: str
    basic_columns: Flags | None = None
    basic_rows: Flags | None = None


def solve(
    programme: Programme,
    algorithm: str = "simplex",
    time_limit: float | None = None,
    tolerance: float | None = None,
    verbose: bool = False,
) -> LpResult:
    """Solve a programme, scaled, by "simplex" or "ipm" (interior point, then crossover to a basis).

    The simplex goes without presolve, which takes nothing off these programmes and does not watch
    the time. Raises `SolverError` where HiGHS refused the model, ended without an optimum for
    another reason than time, or its bindings do not load.
    """
    highspy = _bindings()
    num_rows, num_columns = programme.A_ub.shape
    if num_columns == 0:
        nothing, slack = np.zeros(0, dtype=np.bool_), np.ones(num_rows, dtype=np.bool_)
        return LpResult(np.zeros(0), np.zeros(num_rows), True, 0, "nothing to do", nothing, slack)
    scaled, factor = programme.scaled()
    presolve, close = algorithm == "ipm", max(tolerance or 0.0, TOLERANCE)
    options: dict[str, Any] = {
        "output_flag": verbose,
        "threads": 1,
        "solver": algorithm,
        "presolve": "on" if presolve else "off",
        # The default of 1e-7 would hide the masses of unlikely tokens, and is no faster.
        "primal_feasibility_tolerance": close,
        "dual_feasibility_tolerance": close,
    }
    if time_limit is not None:
        options["time_limit"] = float(time_limit)
    highs = _loaded(scaled, options)
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
    point = np.array(solution.col_value) if solution.value_valid else np.zeros(num_columns)
    duals = -np.array(solution.row_dual) if solution.dual_valid else np.zeros(num_rows)
    point, duals = programme.unscaled(point, duals, factor)
    return LpResult(
        point=point,
        row_duals=duals,
        basic_columns=_basic(basis.col_status) if optimal and basis.valid else None,
        basic_rows=_basic(basis.row_status) if optimal and basis.valid else None,
        optimal=optimal,
        iterations=int(info.simplex_iteration_count + max(info.ipm_iteration_count, 0)),
        message=f"HiGHS: {highs.modelStatusToString(status)}",
    )


def write(
    programme: Programme, path: str | os.PathLike[str], columns: list[str], rows: list[str]
) -> None:
    """Write a programme, as it is, to an .mps or .lp file with these names."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".mps", ".lp"):
        raise InvalidInput(f"{path} ends in {suffix or 'nothing'!r}: give a name in .mps or .lp")
    check_writable(path)
    highs = _loaded(programme, {"output_flag": False}, (columns, rows))
    with TemporaryDirectory() as folder:
        written = Path(folder) / f"programme{suffix}"
        _accepted(highs.writeModel(str(written)), f"to write {path}")
        with atomic_write(path) as file, written.open("rb") as content:
            shutil.copyfileobj(content, file)


def _loaded(
    programme: Programme, options: dict[str, Any], names: tuple[list[str], list[str]] | None = None
) -> Any:
    """HiGHS with a programme."""
    highspy = _bindings()
    matrix, (lower, upper) = programme.A_ub, programme.bounds.T
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = matrix.shape
    lp.col_cost_ = programme.c
    lp.col_lower_, lp.col_upper_ = lower, np.minimum(upper, highspy.kHighsInf)
    lp.row_lower_ = np.full(programme.b_ub.size, -highspy.kHighsInf)
    lp.row_upper_ = programme.b_ub
    by_row = matrix.format == "csr"
    lp.a_matrix_.format_ = getattr(highspy.MatrixFormat, "kRowwise" if by_row else "kColwise")
    lp.a_matrix_.num_row_, lp.a_matrix_.num_col_ = matrix.shape
    lp.a_matrix_.start_, lp.a_matrix_.index_ = matrix.indptr, matrix.indices
    lp.a_matrix_.value_ = matrix.data
    if names is not None:
        lp.col_names_, lp.row_names_ = names
    # This leaves out callbacks of the Python class, which version 1.16 announces on stdout.
    highs = highspy.Highs.__base__()
    for name, value in options.items():
        _accepted(highs.setOptionValue(name, value), f"the option {name}={value!r}")
    _accepted(highs.passModel(lp), "the model")
    if (highs.getNumRow(), highs.getNumCol()) != matrix.shape:
        raise SolverError(f"HiGHS took a model of another size than {matrix.shape}")
    return highs


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
