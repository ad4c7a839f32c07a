"""Solver for the full K-draft transport LP, primal, by HiGHS or CVXPY."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from mdsd_opt.base.array_types import Vector
from mdsd_opt.base.arrays import frozen, weighted_count
from mdsd_opt.drafts import SupportLaw
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.problem import (
    Found,
    PlanBasis,
    Status,
    TransportPlan,
    TransportProblem,
    clip_to_marginals,
)
from mdsd_opt.solvers import cvxpy_backend, highs_backend
from mdsd_opt.solvers.formulations import (
    TransportNetwork,
    on_supports,
    pair_lp,
    rounded_subset,
    support_network,
    tuple_network,
)
from mdsd_opt.solvers.highs_backend import LpResult, PackingLp
from mdsd_opt.solvers.method import DEFAULT_MAX_BYTES, Method, Needs

FORMULATIONS = ("auto", "supports", "pair", "tuples")
ALGORITHMS = ("auto", "simplex", "ipm")
BACKENDS = ("highs", "cvxpy")

#: Most variables, by formulation, which still solve in about a minute on one core.
_MAX_VARIABLES = {"supports": 1_000_000, "pair": 2_500_000, "tuples": 300_000}
#: Memory for each variable, in bytes: measured peaks, rounded up.
_BYTES = {"highs": 1000, "cvxpy": 3000}


@dataclass(frozen=True, slots=True)
class Backend:
    """Backend that solves the LP: options of `solve`."""

    backend: str = "highs"
    algorithm: str = "auto"
    solver: str = "HIGHS"
    time_limit: float | None = None

    def maximise(self, lp: PackingLp) -> LpResult:
        """Solve a packing LP; the simplex goes without presolve, which here only costs time."""
        if self.backend == "cvxpy":
            return cvxpy_backend.maximise(*lp, self.solver, self.time_limit)
        inner = self.algorithm == "ipm"
        algorithm = "ipm" if inner else "simplex"
        return highs_backend.maximise(*lp, algorithm, presolve=inner, time_limit=self.time_limit)

    def cover(self, network: TransportNetwork) -> LpResult:
        """Solve the dual form, min p.u + W.v, u_i + v_S >= 1 on every arc; row duals are masses."""
        if self.backend == "cvxpy":
            return _covered_by_cvxpy(network, self.solver, self.time_limit)
        return _covered_by_highs(network, self.time_limit)

    @property
    def version(self) -> str:
        from importlib.metadata import version

        return version("highspy" if self.backend == "highs" else "cvxpy")


@dataclass(frozen=True, slots=True, eq=False)
class PrimalDual:
    """Masses on the arcs of the support law, and prices u of the tokens."""

    mass: Vector
    price: Vector
    basis: PlanBasis | None
    lp: LpResult
    num_variables: int
    num_constraints: int


def solve(
    problem: TransportProblem,
    *,
    backend: str = "highs",
    formulation: str = "auto",
    algorithm: str = "auto",
    solver: str = "HIGHS",
    time_limit: float | None = None,
    max_variables: int | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Found:
    r"""Optimum of :math:`\max \sum C(i,S)`, :math:`\sum_S C \le p_i`, :math:`\sum_i C \le W_S`.

    Choose it where no prefix order exists, or where the plan is wanted. It has about
    :math:`K V^K / K!` variables: on one core a minute is enough for V = 2000 at K = 2, V = 100
    at K = 3. The plan is clipped to the marginals, so `lower_bound` is reached whatever the
    solver's tolerance; the duals, rounded to their best level set, give `subset` and
    `upper_bound`.

    Parameters
    ----------
    problem : TransportProblem
    backend : {"highs", "cvxpy"}
    formulation : {"auto", "supports", "pair", "tuples"}
        One variable for each element of each draft set; for K = 2 one for each pair of tokens; or
        the textbook LP over the V^K ordered tuples. "auto" takes pairs for two independent drafts,
        else supports.
    algorithm : {"auto", "simplex", "ipm"}
        Algorithm of backend "highs". "auto" runs the simplex, on pairs directly and else on the
        dual form (at V = 40, K = 4: 14 s against 19 s of the interior point); "ipm" takes the
        primal form.
    solver : str
        Any installed solver, for backend "cvxpy".
    time_limit : float, optional
        Seconds.
    max_variables, max_bytes : int, optional
        Budget.

    Returns
    -------
    Found
        Status LIMIT with the bounds at hand if time ran out.

    Raises
    ------
    ProblemTooLarge
        The LP would not fit the budget; nothing is built.
    SolverError
        The backend refused or failed.
    """
    _check_choices(backend, formulation, algorithm)
    formulation = _formulation(problem, formulation)
    needs(problem, formulation, backend, max_variables, max_bytes).require()
    start = time.perf_counter()
    law = problem.drafts.support_law()
    chosen = Backend(backend, algorithm, solver, time_limit)
    build_seconds = time.perf_counter() - start
    if formulation == "supports":
        network = support_network(problem, law)
        build_seconds = time.perf_counter() - start
        solution = _solve_network(network, chosen)
    else:
        solution = (_on_pairs if formulation == "pair" else _on_tuples)(problem, law, chosen)
    plan = feasible_plan(problem, law, solution.mass, solution.basis)
    upper, subset = rounded_subset(problem, law, solution.price)
    return Found(
        acceptance_rate=plan.value,
        lower_bound=plan.value,
        upper_bound=upper,
        status=Status.OPTIMAL if solution.lp.optimal else Status.LIMIT,
        subset=subset,
        plan=plan,
        message=f"{formulation} formulation. {solution.lp.message}",
        stats={
            "num_variables": solution.num_variables,
            "num_constraints": solution.num_constraints,
            "iterations": solution.lp.iterations,
            "backend": backend,
            "backend_version": chosen.version,
            "formulation": formulation,
            "algorithm": algorithm,
            "build_seconds": build_seconds,
        },
    )


METHOD = Method(
    name="full_lp",
    purpose="the full K-draft transport LP; returns plan and subset",
    cost="about K V^K / K! variables",
    needs="any scheme; backend 'highs' or 'cvxpy'",
    exact=True,
    solve=solve,
    loads=("highspy",),
)


def feasible_plan(
    problem: TransportProblem, law: SupportLaw, mass: Vector, basis: PlanBasis | None = None
) -> TransportPlan:
    """Plan with the masses of the arcs, clipped to the marginals."""
    plan = TransportPlan(law.tokens, law.offsets, mass, basis=basis)
    return replace(plan, mass=frozen(clip_to_marginals(plan, problem.target, law.mass)))


def needs(
    problem: TransportProblem,
    formulation: str = "auto",
    backend: str = "highs",
    max_variables: int | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Needs:
    """Size of the LP, from counts alone, and its budget."""
    formulation = _formulation(problem, formulation)
    supports, variables = problem.drafts.count_supports()
    if formulation == "pair":
        variables = problem.vocab_size + supports
    if formulation == "tuples":
        variables = problem.drafts.count_tuples() * problem.num_drafts
    return Needs(
        method="full_lp",
        problem=problem,
        variables=variables,
        num_bytes=variables * _BYTES[backend],
        max_variables=_MAX_VARIABLES[formulation] if max_variables is None else max_variables,
        max_bytes=max_bytes,
    )


def _formulation(problem: TransportProblem, name: str) -> str:
    if name == "auto":
        independent = problem.drafts.independent_models is not None
        return "pair" if independent and problem.num_drafts == 2 else "supports"
    if name == "pair" and problem.num_drafts != 2:
        raise InvalidInput(f"formulation 'pair' needs K = 2, not {problem.num_drafts}")
    return name


def _check_choices(backend: str, formulation: str, algorithm: str) -> None:
    for kind, name, known in (
        ("backend", backend, BACKENDS),
        ("formulation", formulation, FORMULATIONS),
        ("algorithm", algorithm, ALGORITHMS),
    ):
        if name not in known:
            raise UnknownName.among(kind, name, known)


def _on_tuples(problem: TransportProblem, law: SupportLaw, chosen: Backend) -> PrimalDual:
    network, tuples = tuple_network(problem)
    solution = _solve_network(network, chosen)
    return replace(solution, mass=on_supports(network, tuples, solution.mass, law), basis=None)


def _solve_network(network: TransportNetwork, chosen: Backend) -> PrimalDual:
    """Solve the packing LP of a network, or its dual form, for masses and prices."""
    num_tokens = network.target.size
    bounds = np.concatenate([network.target, network.mass])
    basis = None
    if chosen.backend == "highs" and chosen.algorithm != "ipm":
        lp = chosen.cover(network)
        mass, price = np.maximum(lp.row_duals, 0.0), lp.point[:num_tokens]
        if lp.basic_rows is not None and lp.basic_columns is not None:
            # A tight row of the dual form is a basic arc, a price at zero a basic slack.
            slack = ~lp.basic_columns
            basis = PlanBasis(~lp.basic_rows, slack[:num_tokens], slack[num_tokens:])
    else:
        free = np.full(network.num_arcs, np.inf)
        ones = np.ones(network.num_arcs)
        lp = chosen.maximise(PackingLp(ones, network.packing_matrix(), bounds, free))
        mass, price = lp.point, lp.row_duals[:num_tokens]
        if lp.basic_columns is not None and lp.basic_rows is not None:
            slack = lp.basic_rows
            basis = PlanBasis(lp.basic_columns, slack[:num_tokens], slack[num_tokens:])
    return PrimalDual(mass, np.clip(price, 0.0, 1.0), basis, lp, network.num_arcs, bounds.size)


def _covered_by_highs(network: TransportNetwork, time_limit: float | None) -> LpResult:
    """Solve the dual form by the simplex; costs are scaled up, as tolerances are absolute."""
    bounds = np.concatenate([network.target, network.mass])
    scale = 1e6 / bounds.max()
    result = highs_backend.solve_lp(
        maximise=False,
        objective=bounds * scale,
        matrix=network.covering_matrix(),
        row_lower=np.ones(network.num_arcs),
        row_upper=np.full(network.num_arcs, np.inf),
        column_upper=np.full(bounds.size, np.inf),
        presolve=True,
        time_limit=time_limit,
    )
    return replace(result, row_duals=result.row_duals / scale)


def _covered_by_cvxpy(network: TransportNetwork, solver: str, time_limit: float | None) -> LpResult:
    """Solve the dual form as the packing LP of its complement, y = 1 - (u, v) in [0, 1].

    u_i + v_S >= 1 becomes y_i + y_S <= 1, and min b.(u, v) becomes max b.y.
    """
    bounds, ones = np.concatenate([network.target, network.mass]), np.ones(network.num_arcs)
    result = cvxpy_backend.maximise(
        bounds, network.covering_matrix(), ones, np.ones(bounds.size), solver, time_limit, scale=1.0
    )
    return replace(result, point=1.0 - result.point)


def _on_pairs(problem: TransportProblem, law: SupportLaw, chosen: Backend) -> PrimalDual:
    p = problem.target
    sizes = np.diff(law.offsets)
    single = law.offsets[:-1][sizes == 1]
    pair = law.offsets[:-1][sizes == 2]
    fixed = weighted_count(law.tokens[single], law.mass[sizes == 1], p.size)
    first, second, pair_mass = law.tokens[pair], law.tokens[pair + 1], law.mass[sizes == 2]
    lp = chosen.maximise(pair_lp(p, fixed, first, second, pair_mass))
    # Masses that each set hands to its tokens, then the part that is accepted.
    handed = np.zeros(law.num_arcs)
    handed[single] = law.mass[sizes == 1]
    handed[pair] = lp.point[p.size :]
    handed[pair + 1] = pair_mass - lp.point[p.size :]
    selected = weighted_count(law.tokens, handed, p.size)
    share = np.minimum(1.0, np.divide(p, selected, out=np.ones_like(p), where=selected > 0))
    # The price of the target's mass is what the price of selected mass leaves of one.
    price = np.clip(1.0 - lp.row_duals, 0.0, 1.0)
    return PrimalDual(handed * share[law.tokens], price, None, lp, p.size + first.size, p.size)
