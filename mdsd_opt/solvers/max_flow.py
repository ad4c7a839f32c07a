"""The transport problem as an integer maximum flow: exact, with plan and minimum cut."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import frozen
from mdsd_opt.drafts import SupportLaw
from mdsd_opt.problem import TransportProblem
from mdsd_opt.problem.solution import Found, Status, TransportPlan
from mdsd_opt.solvers import budget
from mdsd_opt.solvers.budget import Needs
from mdsd_opt.solvers.integer_masses import IntegerMasses, integer_masses
from mdsd_opt.solvers.method import Method

#: Arcs up to which the method runs unless told otherwise.
DEFAULT_MAX_VARIABLES = 2**26

#: Peak memory per arc and per draft set, listing the draft sets included (measured).
_BYTES_PER_ARC = 40
_BYTES_PER_SUPPORT = 48


def solve(
    problem: TransportProblem,
    *,
    time_limit: float | None = None,
    max_variables: int = DEFAULT_MAX_VARIABLES,
    max_bytes: int = budget.DEFAULT_MAX_BYTES,
) -> Found:
    r"""Maximum flow source -> token i (p_i) -> draft set S with i in S -> sink (W_S).

    For any draft scheme of moderate size, where subset selection does not apply or a plan is
    wanted. Integer arithmetic from the first to the last step: target and set masses are rounded
    to multiples of :math:`2^{-60}`, and what that can change is part of the bounds. Fractions with
    a common denominator up to :math:`2^{60}` are not rounded at all (if the problem is small).
    Costs :math:`\sum_{j \le K} j \binom{V}{j}` arcs with replacement, about :math:`K V^K / K!`;
    then a few passes over them.

    Parameters
    ----------
    problem : TransportProblem
    time_limit : float, optional
        Seconds after which no further phase is begun; the bounds of the flow and of the best cut
        found hold in any case.
    max_variables, max_bytes : int
        Budget in arcs and memory.

    Returns
    -------
    Found
        With plan and subset: all tokens that mass left over cannot reach, the largest minimum cut.
        Status LIMIT if time ran out.

    Raises
    ------
    ProblemTooLarge
        The network does not fit the budget; nothing has been built.
    """
    start = time.perf_counter()
    needs(problem, max_variables, max_bytes).require()
    law = problem.drafts.support_law()
    masses = integer_masses(problem, law)
    build_seconds = time.perf_counter() - start
    result = _maximum_flow(law, masses, None if time_limit is None else start + time_limit)
    return _found(law, masses, result, build_seconds)


METHOD = Method(
    purpose="the same network as an integer maximum flow; returns plan and subset",
    cost="about K V^K / K! arcs, larger V than the LPs",
    needs="any scheme",
    exact=True,
    solve=solve,
)


def needs(
    problem: TransportProblem,
    max_variables: int = DEFAULT_MAX_VARIABLES,
    max_bytes: int = budget.DEFAULT_MAX_BYTES,
) -> Needs:
    """Size of the network, from counts alone, and its budget."""
    num_supports, num_arcs = problem.drafts.count_supports()
    return Needs(
        method="max_flow",
        problem=problem,
        variables=num_arcs,
        num_bytes=_BYTES_PER_ARC * num_arcs + _BYTES_PER_SUPPORT * num_supports,
        max_variables=max_variables,
        max_bytes=max_bytes,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Flow:
    """A feasible flow and a cut; maximal and minimal if their values agree."""

    flow: NDArray[np.int64]
    value: int
    subset: NDArray[np.bool_]
    cut: int
    phases: int
    augmentations: int


def _maximum_flow(law: SupportLaw, masses: IntegerMasses, deadline: float | None) -> _Flow:
    from mdsd_opt.solvers import dinic_kernels as dinic  # imports numba

    rows = (law.tokens, law.offsets)
    set_starts = np.empty(law.vocab_size + 1, dtype=np.int64)
    few = law.num_supports < 2**31
    sets = np.empty(law.num_arcs, dtype=np.int32 if few else np.int64)
    dinic.list_sets_of_tokens(*rows, set_starts, sets)

    token_left, set_left = masses.target.copy(), masses.supports.copy()
    flow = np.zeros(law.num_arcs, dtype=np.int64)
    residual = (token_left, set_left, flow)
    dinic.fill_greedily(*rows, *residual)

    level = np.empty(law.vocab_size, dtype=np.int32)
    queue = np.empty_like(level)
    phases = augmentations = 0
    while True:
        last = dinic.label_tokens(*rows, set_starts, sets, *residual, level, queue)
        if last == dinic.UNREACHED or (deadline is not None and time.perf_counter() >= deadline):
            break
        augmentations += dinic.saturate_level(*rows, set_starts, sets, *residual, level, last)
        phases += 1

    cuts = dinic.level_cuts(*rows, masses.target, masses.supports, level)
    best = int(cuts.argmin())
    return _Flow(
        flow=flow,
        value=masses.total - int(token_left.sum()),
        subset=(level < 0) | (level >= best),
        cut=int(cuts[best]),
        phases=phases,
        augmentations=augmentations,
    )


def _found(
    law: SupportLaw,
    masses: IntegerMasses,
    result: _Flow,
    build_seconds: float,
) -> Found:
    rate = result.value / masses.total
    optimal = result.value == result.cut
    plan = TransportPlan(
        tokens=law.tokens,
        offsets=law.offsets,
        mass=frozen(result.flow / masses.total),
        numerators=frozen(result.flow) if masses.exact else None,
        denominator=masses.total if masses.exact else 1,
    )
    rounding_error = masses.added + masses.removed
    rounding = (
        f"exact in units of 1/{masses.total}"
        if masses.exact
        else f"masses rounded to multiples of 2^-60, {rounding_error:.1e} in total"
    )
    return Found(
        acceptance_rate=rate,
        lower_bound=rate - masses.added,
        upper_bound=result.cut / masses.total + masses.removed,
        status=Status.OPTIMAL if optimal else Status.LIMIT,
        subset=result.subset,
        plan=plan,
        message=f"{rounding}; {'maximal flow' if optimal else 'out of time'} after "
        f"{result.phases} phases",
        stats={
            "supports": law.num_supports,
            "arcs": law.num_arcs,
            "phases": result.phases,
            "augmentations": result.augmentations,
            "scale": masses.total,
            "exact": masses.exact,
            "rounding_error": rounding_error,
            "build_seconds": build_seconds,
        },
    )
