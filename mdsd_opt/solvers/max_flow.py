r"""The transport problem as an integer maximum flow: exact, with plan and minimum cut.

Rational masses keep their exact values if their common denominator D is small enough; all others
become multiples of :math:`2^{-60}` by largest remainder. Changing masses from (p, W) to (p', W')
changes the maximum flow by at most

.. math:: -\sum (p - p')_+ - \sum (W - W')_+ \;\le\; \alpha' - \alpha \;\le\;
          \sum (p' - p)_+ + \sum (W' - W)_+ .
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import lcm

import numpy as np

from mdsd_opt.base.arrays import Flags, Floats, Integers, frozen
from mdsd_opt.drafts import SupportLaw
from mdsd_opt.problem import Found, Status, TransportPlan, TransportProblem
from mdsd_opt.solvers.method import DEFAULT_MAX_BYTES, Method, Needs

#: Total mass of rounded problems. The sum of the target and of all set masses fits into int64.
SCALE = 2**60

#: Largest sizes for which a common denominator is computed: Fractions would take seconds.
_EXACT_MAX_ENTRIES = 20_000
_EXACT_MAX_TUPLES = 200_000

#: Most arcs, unless the caller sets another limit.
DEFAULT_MAX_VARIABLES = 2**26

#: Peak memory per arc and per draft set, listing the draft sets included (measured).
_BYTES_PER_ARC = 40
_BYTES_PER_SUPPORT = 48


def solve(
    problem: TransportProblem,
    *,
    time_limit: float | None = None,
    max_variables: int = DEFAULT_MAX_VARIABLES,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Found:
    r"""Find the maximum flow source -> token i (p_i) -> draft set S with i in S -> sink (W_S).

    Use it for any draft scheme of moderate size, if subset selection does not apply or a plan is
    wanted. All steps are in integer arithmetic: target and set masses are rounded to multiples of
    :math:`2^{-60}`, and what that can change is part of the bounds. Fractions with a common
    denominator up to :math:`2^{60}` are not rounded at all (if the problem is small). Costs
    :math:`\sum_{j \le K} j \binom{V}{j}` arcs with replacement, about :math:`K V^K / K!`; then a
    few passes over them.

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
        Result with plan and subset: all tokens that mass left over cannot reach, the largest
        minimum cut. Status LIMIT if time ran out.

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
    name="max_flow",
    purpose="the same network as an integer maximum flow; returns plan and subset",
    cost="about K V^K / K! arcs, larger V than the LPs",
    needs="any scheme",
    exact=True,
    solve=solve,
    loads=("mdsd_opt.solvers.dinic_kernels",),
)


def needs(
    problem: TransportProblem,
    max_variables: int = DEFAULT_MAX_VARIABLES,
    max_bytes: int = DEFAULT_MAX_BYTES,
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

    flow: Integers
    value: int
    subset: Flags
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


def _found(law: SupportLaw, masses: IntegerMasses, result: _Flow, build_seconds: float) -> Found:
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


@dataclass(frozen=True, slots=True, eq=False)
class IntegerMasses:
    """Integers p, (V,), and W, (num_supports,), in units of 1 / total, to which both sum up.

    If these are not the given numbers exactly, rounding added so much mass to some entries and
    removed so much from others: alpha* of the integers exceeds alpha* by at most `added`, and falls
    below it by at most `removed`.
    """

    target: Integers
    supports: Integers
    total: int
    exact: bool
    added: float = 0.0
    removed: float = 0.0


def integer_masses(problem: TransportProblem, law: SupportLaw) -> IntegerMasses:
    """Exact masses over a common denominator if there is a small one, else rounded to 2^-60."""
    return _common_denominator(problem, law) or _rounded(problem, law)


def _common_denominator(problem: TransportProblem, law: SupportLaw) -> IntegerMasses | None:
    if (
        problem.vocab_size + law.num_arcs > _EXACT_MAX_ENTRIES
        or problem.drafts.count_tuples() > _EXACT_MAX_TUPLES
    ):
        return None
    total = 1
    for x in problem.exact_target:  # floats are exact dyadics and leave the loop early
        total = lcm(total, x.denominator)
        if total > SCALE:
            return None
    exact_law = problem.law(exact=True).drafts.support_law().masses()
    if len(exact_law) != law.num_supports:
        return None
    supports = [exact_law[members] for members in law.sets()]
    for x in supports:
        total = lcm(total, x.denominator)
        if total > SCALE:
            return None
    return IntegerMasses(
        target=np.array([int(x * total) for x in problem.exact_target], dtype=np.int64),
        supports=np.array([int(x * total) for x in supports], dtype=np.int64),
        total=total,
        exact=True,
    )


def _rounded(problem: TransportProblem, law: SupportLaw) -> IntegerMasses:
    target, target_added, target_removed = largest_remainder(problem.target)
    supports, added, removed = largest_remainder(law.mass)
    return IntegerMasses(
        target=target,
        supports=supports,
        total=SCALE,
        exact=False,
        added=target_added + added,
        removed=target_removed + removed,
    )


def largest_remainder(masses: Floats) -> tuple[Integers, float, float]:
    r"""Integers that sum to 2^60, each next to its mass times 2^60; the remainders decide which.

    Masses are not negative, in sum one up to rounding; what the sum lacks is spread in proportion.
    Of equal remainders the first is rounded up. Also returned are the sums of the changes upwards
    and downwards, as masses.
    """
    scaled = masses * float(SCALE)  # exact: only the exponent changes
    integers = scaled.astype(np.int64)
    scaled -= integers  # the fractional part, exact as well
    fraction = scaled
    lacking = SCALE - int(integers.sum()) - float(fraction.sum())
    share = lacking * masses
    share += fraction
    floor = np.floor(share)
    integers += floor.astype(np.int64)
    share -= floor

    missing = SCALE - int(integers.sum())
    integers[_largest(share, missing)] += 1

    change = (integers - (masses * float(SCALE)).astype(np.int64)) - fraction
    added = float(change[change > 0].sum()) / SCALE
    removed = -float(change[change < 0].sum()) / SCALE
    return integers, added, removed


def _largest(values: Floats, count: int) -> Integers:
    """Indices of the `count` largest values, the first of equal ones; nothing is sorted."""
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    threshold = np.partition(values, -count)[-count]
    above = np.flatnonzero(values > threshold)
    tied = np.flatnonzero(values == threshold)[: count - above.size]
    return np.concatenate([above, tied])
