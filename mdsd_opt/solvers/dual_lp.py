"""The dual of the transport LP: prices of tokens and of draft sets."""

from __future__ import annotations

import numpy as np

from mdsd_opt.base.arrays import frozen
from mdsd_opt.errors import UnknownName
from mdsd_opt.problem import TransportProblem
from mdsd_opt.problem.solution import Found, Status, TransportPlan
from mdsd_opt.problem.transport_plans import clip_to_marginals
from mdsd_opt.solvers import cvxpy_backend, highs_backend
from mdsd_opt.solvers.formulations import TransportNetwork, rounded_subset, support_network
from mdsd_opt.solvers.full_lp import BACKENDS, cover
from mdsd_opt.solvers.highs_backend import LpResult
from mdsd_opt.solvers.method import DEFAULT_MAX_BYTES, Method, Needs

#: Arcs that still solve in about a minute on one core.
_MAX_VARIABLES = 1_000_000
_BYTES = {"highs": 1000, "cvxpy": 3000}


def solve(
    problem: TransportProblem,
    *,
    backend: str = "highs",
    solver: str = "HIGHS",
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
        For backend "cvxpy": any installed solver.
    time_limit : float, optional
        Seconds.
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
    law = problem.drafts.support_law()
    network = support_network(problem, law)
    if backend == "highs":
        lp = cover(network, time_limit)
        mass = np.maximum(lp.row_duals, 0.0)
        price = lp.point[: problem.vocab_size]
        version = highs_backend.version()
    else:
        lp = _cover_by_cvxpy(network, solver, time_limit)
        mass, price = lp.row_duals, lp.point[: problem.vocab_size]
        version = cvxpy_backend.version()
    upper, subset = rounded_subset(problem, law, np.clip(price, 0.0, 1.0))
    plan = TransportPlan(law.tokens, law.offsets, mass)
    clipped = frozen(clip_to_marginals(plan, problem.target, law.mass))
    plan = TransportPlan(law.tokens, law.offsets, clipped)
    return Found(
        acceptance_rate=upper,
        lower_bound=min(plan.value, upper),
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
            "backend_version": version,
        },
    )


METHOD = Method(
    purpose="the dual of the transport LP; returns the subset",
    cost="about K V^K / K! rows",
    needs="any scheme; backend 'highs' or 'cvxpy'",
    exact=True,
    solve=solve,
)


def _cover_by_cvxpy(network: TransportNetwork, solver: str, time_limit: float | None) -> LpResult:
    """The covering LP as the packing LP of its complement, y = 1 - (u, v) in [0, 1].

    u_i + v_S >= 1 becomes y_i + y_S <= 1, and min b.(u, v) becomes max b.y.
    """
    bounds = np.concatenate([network.target, network.mass])
    result = cvxpy_backend.maximise(
        bounds,
        network.covering_matrix(),
        np.ones(network.num_arcs),
        np.ones(bounds.size),
        solver,
        time_limit,
        scale=1.0,
    )
    return LpResult(
        point=1.0 - result.point,
        row_duals=result.row_duals,
        basic_columns=None,
        basic_rows=None,
        optimal=result.optimal,
        iterations=result.iterations,
        message=result.message,
    )
