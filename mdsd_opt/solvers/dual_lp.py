"""Dual of the transport LP: prices of tokens and of draft sets."""

from __future__ import annotations

import time

import numpy as np

from mdsd_opt.errors import UnknownName
from mdsd_opt.problem import Found, Status, TransportProblem
from mdsd_opt.solvers.full_lp import BACKENDS, Backend, deadline_of, evidence
from mdsd_opt.solvers.linear_programmes import support_network
from mdsd_opt.solvers.method import DEFAULT_MAX_BYTES, Method, Needs

#: Most arcs, which still solve in about a minute on one core.
_MAX_VARIABLES = 1_000_000
_BYTES = {"highs": 1000, "cvxpy": 3000}


def solve(
    problem: TransportProblem,
    *,
    backend: str = "highs",
    solver: str = "HIGHS",
    tolerance: float | None = None,
    verbose: bool = False,
    time_limit: float | None = None,
    max_variables: int = _MAX_VARIABLES,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Found:
    r"""Optimum of :math:`\min p \cdot u + W \cdot v`, :math:`u_i + v_S \ge 1`, :math:`u, v \ge 0`.

    The matrix is totally unimodular, so a vertex is 0/1 and H = {u = 1} is an optimal subset; of an
    interior point the best level set {u > level} is taken, which is no worse. The duals of its rows
    are a transport plan, which after clipping to the marginals proves the lower bound.

    Choose it to have the subset of a problem without a prefix order. About :math:`K V^K / K!` rows.

    Parameters
    ----------
    problem : TransportProblem
    backend : {"highs", "cvxpy"}
    solver : str
        Any installed solver, for backend "cvxpy".
    tolerance, verbose, time_limit
        As in `mdsd_opt.solvers.full_lp.solve`.
    max_variables, max_bytes : int
        Budget; variables are the arcs (rows).

    Returns
    -------
    Found

    Raises
    ------
    ProblemTooLarge
        The LP would not fit the budget; nothing is built.
    SolverError
        The backend refused or failed.
    """
    if backend not in BACKENDS:
        raise UnknownName.among("backend", backend, BACKENDS)
    _, arcs = problem.drafts.count_supports()
    Needs(
        method="dual_lp",
        problem=problem,
        variables=arcs,
        num_bytes=arcs * _BYTES[backend],
        max_variables=max_variables,
        max_bytes=max_bytes,
    ).require()
    chosen = Backend(backend, "simplex", solver, deadline_of(time_limit), tolerance, verbose)
    start = time.perf_counter()
    law = problem.drafts.support_law()
    programme = support_network(problem, law).programme("dual")
    build_seconds = time.perf_counter() - start
    lp = chosen.solve(programme)
    price = np.clip(lp.point[: problem.vocab_size], 0.0, 1.0)
    plan, upper, subset = evidence(problem, law, lp.row_duals, price, None, lp.optimal)
    lower = min(plan.value, upper)
    return Found(
        acceptance_rate=lower,
        lower_bound=lower,
        upper_bound=upper,
        status=Status.OPTIMAL if lp.optimal else Status.LIMIT,
        subset=subset,
        plan=plan,
        message=lp.message,
        stats={
            "num_variables": problem.vocab_size + law.num_supports,
            "num_constraints": law.num_arcs,
            "iterations": lp.iterations,
            "backend": backend,
            "backend_version": chosen.version,
            "build_seconds": build_seconds,
        },
    )


METHOD = Method(
    name="dual_lp",
    purpose="the dual of the transport LP; returns the subset",
    cost="about K V^K / K! rows",
    needs="any scheme; backend 'highs' or 'cvxpy'",
    exact=True,
    solve=solve,
    loads=("highspy", "scipy.sparse"),
)
