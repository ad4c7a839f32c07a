"""Solver for the full K-draft transport LP, primal, by HiGHS or CVXPY, and what numbers prove.

Numbers of a solver, of the primal or the dual, become a plan that is feasible, and the best subset
of their prices.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Vector, frozen, weighted_count
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
from mdsd_opt.solvers.highs_backend import LpResult
from mdsd_opt.solvers.linear_programmes import (
    TransportLP,
    TransportNetwork,
    pair_programme,
    support_network,
    tuple_network,
)
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
    """Backend that solves the LP: options of `solve`, and when its time is over."""

    backend: str
    algorithm: str
    solver: str
    deadline: float
    tolerance: float | None
    verbose: bool

    def solve(self, programme: TransportLP) -> LpResult:
        left = max(0.0, self.deadline - time.perf_counter())
        options: Any = (None if left == inf else left, self.tolerance, self.verbose)
        if self.backend == "cvxpy":
            return cvxpy_backend.solve(programme, self.solver, *options)
        inner = self.algorithm == "ipm"
        return highs_backend.solve(programme, "ipm" if inner else "simplex", *options)

    @property
    def version(self) -> str:
        from importlib.metadata import version

        return version("highspy" if self.backend == "highs" else "cvxpy")


def deadline_of(time_limit: float | None) -> float:
    """When a limit that begins now is over."""
    return inf if time_limit is None else time.perf_counter() + time_limit


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
    tolerance: float | None = None,
    verbose: bool = False,
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
    tolerance : float, optional
        Distance of the bounds that is enough; CVXPY's solvers have their own otherwise.
    verbose : bool
        Show the backend's log on stdout.
    time_limit : float, optional
        Seconds for building and solving.
    max_variables, max_bytes : int, optional
        Budget.

    Returns
    -------
    Found
        Status LIMIT if time ran out, with the better of the backend's bounds and those of one pass.

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
    chosen = Backend(backend, algorithm, solver, deadline_of(time_limit), tolerance, verbose)
    start = time.perf_counter()
    law = problem.drafts.support_law()
    build_seconds = time.perf_counter() - start
    if formulation == "supports":
        network = support_network(problem, law)
        build_seconds = time.perf_counter() - start
        solution = _solve_network(network, chosen)
    else:
        solution = (_on_pairs if formulation == "pair" else _on_tuples)(problem, law, chosen)
    optimal = solution.lp.optimal
    plan, upper, subset = evidence(
        problem, law, solution.mass, solution.price, solution.basis, optimal
    )
    return Found(
        acceptance_rate=plan.value,
        lower_bound=plan.value,
        upper_bound=upper,
        status=Status.OPTIMAL if optimal else Status.LIMIT,
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
    loads=("highspy", "scipy.sparse"),
)


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
    """Solve the LP of a network, or its dual, for masses and prices."""
    tokens = network.target.size
    dual = chosen.backend == "highs" and chosen.algorithm != "ipm"
    lp = chosen.solve(network.programme("dual" if dual else "primal"))
    mass, price = (lp.row_duals, lp.point) if dual else (lp.point, lp.row_duals)
    basis = None
    if lp.basic_rows is not None and lp.basic_columns is not None:
        # A tight row of the dual is a basic arc, a price at zero a basic slack.
        arcs, slack = lp.basic_columns, lp.basic_rows
        if dual:
            arcs, slack = ~lp.basic_rows, ~lp.basic_columns
        basis = PlanBasis(arcs, slack[:tokens], slack[tokens:])
    price = np.clip(price[:tokens], 0.0, 1.0)
    num_rows = tokens + network.mass.size
    return PrimalDual(mass, price, basis, lp, network.num_arcs, num_rows)


def pairs_of(
    problem: TransportProblem, law: SupportLaw
) -> tuple[TransportLP, NDArray[np.intp], NDArray[np.intp]]:
    """Programme on pairs, and the first arcs of the sets of one token and of two."""
    sizes = np.diff(law.offsets)
    single, pair = law.offsets[:-1][sizes == 1], law.offsets[:-1][sizes == 2]
    fixed = weighted_count(law.tokens[single], law.mass[sizes == 1], problem.vocab_size)
    ends = law.tokens[pair], law.tokens[pair + 1]
    programme = pair_programme(problem.target, fixed, *ends, law.mass[sizes == 2])
    return programme, single, pair


def _on_pairs(problem: TransportProblem, law: SupportLaw, chosen: Backend) -> PrimalDual:
    p = problem.target
    programme, single, pair = pairs_of(problem, law)
    lp = chosen.solve(programme)
    # Masses that each set hands to its tokens, then the part that is accepted.
    handed = np.zeros(law.num_arcs)
    handed[single] = law.mass[np.diff(law.offsets) == 1]
    handed[pair] = lp.point[p.size :]
    handed[pair + 1] = programme.bounds[p.size :, 1] - lp.point[p.size :]
    selected = weighted_count(law.tokens, handed, p.size)
    share = np.minimum(1.0, np.divide(p, selected, out=np.ones_like(p), where=selected > 0))
    # The price of the target's mass is what the price of selected mass leaves of one.
    price = np.clip(1.0 - lp.row_duals, 0.0, 1.0)
    return PrimalDual(handed * share[law.tokens], price, None, lp, programme.c.size, p.size)


def feasible_plan(
    problem: TransportProblem, law: SupportLaw, mass: Vector, basis: PlanBasis | None = None
) -> TransportPlan:
    """Plan with the masses of the arcs, clipped to the marginals."""
    plan = TransportPlan(law.tokens, law.offsets, mass, basis=basis)
    return replace(plan, mass=frozen(clip_to_marginals(plan, problem.target, law.mass)))


def even_plan(problem: TransportProblem, law: SupportLaw) -> TransportPlan:
    """Plan that hands the mass of each draft set to its tokens alike, as far as p goes."""
    sizes = np.diff(law.offsets)
    handed = np.repeat(law.mass / np.maximum(sizes, 1), sizes)
    selected = weighted_count(law.tokens, handed, problem.vocab_size)
    share = np.divide(problem.target, selected, out=np.ones_like(selected), where=selected > 0)
    return feasible_plan(problem, law, handed * np.minimum(share, 1.0)[law.tokens])


def ratio_subset(problem: TransportProblem, law: SupportLaw) -> tuple[float, Flags]:
    """Best prefix of the tokens by target over mass of the draft sets they are in, and its cut."""
    inside = weighted_count(law.tokens, np.repeat(law.mass, np.diff(law.offsets)), law.vocab_size)
    ratio = np.divide(problem.target, inside, out=np.full_like(inside, np.inf), where=inside > 0)
    return rounded_subset(problem, law, -ratio)


def on_supports(
    network: TransportNetwork, tuples: NDArray[np.int32], flow: Vector, law: SupportLaw
) -> Vector:
    """Sums of a flow on tuples over the tuples of each draft set, one for each arc of `law`."""
    places = {members: s for s, members in enumerate(law.sets())}
    support_of = np.array([places[tuple(sorted({*row} - {-1}))] for row in tuples.tolist()])
    # Within a set tokens ascend in both, so an arc is found by its set and token.
    vocab_size = network.target.size
    wanted = support_of[network.events] * vocab_size + network.tokens
    arcs = law.arc_support * vocab_size + law.tokens
    return weighted_count(np.searchsorted(arcs, wanted), flow, law.num_arcs)


def evidence(
    problem: TransportProblem,
    law: SupportLaw,
    mass: Vector,
    price: Vector,
    basis: PlanBasis | None,
    optimal: bool,
) -> tuple[TransportPlan, float, Flags]:
    """Plan, upper bound and its subset, from masses of the arcs and prices of the tokens.

    Of a solver that was stopped they are the better of its own and of what takes one pass.
    """
    plan = feasible_plan(problem, law, mass, basis)
    upper, subset = rounded_subset(problem, law, price)
    if not optimal:
        plan = max(plan, even_plan(problem, law), key=lambda x: x.value)
        upper, subset = min((upper, subset), ratio_subset(problem, law), key=lambda x: x[0])
    return plan, upper, subset


def rounded_subset(
    problem: TransportProblem, law: SupportLaw, price: Vector
) -> tuple[float, Flags]:
    """Best level set {price > level} of token prices, and its cut value 1 + P(H) - Q(H).

    A feasible dual point is an average of its level sets, so the best of them is no worse.
    """
    order = np.argsort(-price, kind="stable")
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    inside = np.concatenate([[0.0], np.cumsum(problem.target[order])])
    complete = np.zeros(law.num_supports, dtype=np.int64)  # prefix length that holds the set
    filled = np.flatnonzero(np.diff(law.offsets) > 0)
    if filled.size:
        complete[filled] = np.maximum.reduceat(rank[law.tokens], law.offsets[filled]) + 1
    contained = np.cumsum(weighted_count(complete, law.mass, order.size + 1))
    # A level set ends where the price changes.
    ranked = price[order]  # may be infinite
    ends = np.concatenate([[True], ranked[1:] != ranked[:-1], [True]])
    values = np.where(ends, 1.0 + inside - contained, np.inf)
    length = int(np.argmin(values))
    subset = np.zeros(order.size, dtype=np.bool_)
    subset[order[:length]] = True
    return float(values[length]), subset
