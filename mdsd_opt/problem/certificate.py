r"""Two-sided bounds on the optimum, recomputed from the problem alone.

A plan proves a lower bound, a subset proves an upper bound (weak duality). Nothing a solver says is
trusted: the plan is clipped to the marginals before it counts, the subset is evaluated afresh, and
every claim that does not hold is listed. Without a plan, the lower bound comes from a selection
marginal x, the claimed one or else the water-filled one of the subset, after a check of
:math:`x(G) \ge Q(G)` on every prefix G in the order of x/w: if it fails by at most d, a selection
law within total variation d of x exists, so :math:`\sum_i \min(p_i, x_i) - d` is reached. Where Q
has no such order, a `proof` bounds P(H) - Q(H) for every H at once: tiles that cover the points
(q_1(H), .., q_K(H)), or a mixture of priority orders (`lower_bounds`).

In floating point, where Q is a quadrature (draws without replacement), it is evaluated a second
time from nodes of the certificate's own, and the bounds are widened by what the two differ by: an
error that solver and certificate have in common would otherwise look like a proof. For drafts with
and without replacement the prefixes of x/w are not sorted but searched (`prefix_search`).

What a solution brings along is read once, by `read_solution`: behind that door there are only
finite float64 numbers, masks and integers of the right shapes, whose sums do not overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import SUM_TOLERANCE, Flags, Floats
from mdsd_opt.base.checked import checked_tolerance, floats, mask, of_kind, real
from mdsd_opt.base.frames import Result
from mdsd_opt.drafts import product_form, split_fixed
from mdsd_opt.errors import InvalidInput
from mdsd_opt.prefix_search import saves_sorting
from mdsd_opt.problem.lower_bounds import BoxCover, OrderMixture, cover_bound, mixture_shortfall
from mdsd_opt.problem.solution import (
    Found,
    Solution,
    Status,
    feasible_mass,
    feasible_masses,
    plan_violations,
    read_plan,
)
from mdsd_opt.problem.transport_problem import TransportProblem, checked_problem
from mdsd_opt.problem.water_filling import running_sums, water_fill


@dataclass(frozen=True, slots=True)
class Certificate(Result):
    """Proven bounds on alpha*, and the claims of the solution that failed.

    Attributes
    ----------
    lower, upper : float, or Fraction if `exact`
        0 and 1 where the solution gives nothing to prove more with.
    violations : tuple of str
        Claims that do not hold, or that nothing given shows, in words; empty if the solution is
        honest.
    exact : bool
        Whether the bounds were computed in exact arithmetic.
    """

    lower: float | Fraction
    upper: float | Fraction
    violations: tuple[str, ...]
    exact: bool

    columns: ClassVar = ("lower", "upper", "gap", "valid", "violations", "exact")

    @property
    def gap(self) -> float | Fraction:
        """Difference upper - lower; never negative up to rounding."""
        return self.upper - self.lower

    @property
    def valid(self) -> bool:
        """Whether no claim of the solution is violated, whatever the gap."""
        return not self.violations


def certify(
    problem: TransportProblem, solution: Solution, exact: bool = False, tolerance: float = 1e-9
) -> Certificate:
    """Check a solution against the problem it claims to solve.

    Parameters
    ----------
    problem : TransportProblem
    solution : Solution
    exact : bool
        Compute the bounds in Fractions: the given numbers, divided by their sum.
    tolerance : float
        Distance of a claim from the truth above which it counts as violated.

    Returns
    -------
    Certificate

    Raises
    ------
    InvalidInput
        The tolerance is negative or not finite, or the solution is none. What is wrong with one is
        a violation.
    ProblemTooLarge
        Exact arithmetic would not end in good time; nothing has been computed.
    """
    tolerance = checked_tolerance("tolerance", tolerance, or_zero=True)
    read, violations = read_solution(solution, checked_problem(problem).vocab_size)
    upper: float | Fraction = Fraction(1) if exact else 1.0
    lower: float | Fraction = Fraction(0) if exact else 0.0
    if read is None:
        return Certificate(lower, upper, tuple(violations), exact)

    if read.subset is not None:
        cut = problem.law(exact).cut_value(read.subset) if exact else _cut(problem, read.subset)
        upper = min(upper, cut)
    if read.plan is not None:
        faults = plan_violations(problem, read.plan, tolerance)
        violations += faults
        if not faults:
            lower = (
                sum(feasible_masses(problem, read.plan), Fraction(0))
                if exact
                else float(feasible_mass(problem, read.plan).sum())
            )
    elif read.proof is not None:
        proven = _proven(problem, read.proof, exact)
        if proven is None:
            violations.append("the proof of the lower bound does not fit the problem")
        else:
            lower = max(lower, proven)
    if read.plan is None and _has_marginal(problem, read):
        lower = max(lower, _marginal_bound(problem, read, exact))
    violations += claim_violations(problem, read, lower, upper, tolerance)
    return Certificate(lower, upper, tuple(violations), exact)


def assert_optimal(
    problem: TransportProblem, solution: Solution, *, tolerance: float = 1e-9, exact: bool = False
) -> Certificate:
    """Certify that a solution is optimal, in your own test.

    Parameters
    ----------
    problem : TransportProblem
    solution : Solution
        Solution of `mdsd_opt.solve`, by any method; nothing in it is trusted.
    tolerance : float
        Largest gap, and largest distance of the claimed rate from the proven bounds.
    exact : bool
        Compute the bounds in Fractions.

    Returns
    -------
    Certificate

    Raises
    ------
    AssertionError
        A claim does not hold, or the proven bounds leave more than the tolerance open; it says
        which.
    InvalidInput
        As `certify`.
    """
    certificate = certify(problem, solution, exact=exact, tolerance=tolerance)
    if not certificate.valid:
        raise AssertionError("; ".join(certificate.violations))
    low, high = float(certificate.lower), float(certificate.upper)
    if high - low > tolerance:
        raise AssertionError(
            f"the optimum is proven to lie between {low:.12g} and {high:.12g}, which leaves "
            f"{high - low:.3g} open"
        )
    if abs(solution.acceptance_rate - high) > 2 * tolerance:
        raise AssertionError(
            f"acceptance_rate {solution.acceptance_rate:.12g} is not the optimum {high:.12g}"
        )
    return certificate


def _cut(problem: TransportProblem, subset: Flags) -> float:
    """Value 1 + P(H) - Q(H), widened by the difference of two evaluations of Q."""
    drafts, draws = problem.drafts, problem.drafts.random_draws
    if saves_sorting(draws):
        from mdsd_opt.prefix_search import upper_bound

        return upper_bound(problem.target, draws, subset)
    contained = drafts.containment(subset)
    again = drafts.with_finer_quadrature()
    doubt = 0.0 if again is drafts else abs(contained - again.containment(subset))
    return 1.0 + float(problem.target[subset].sum()) - contained + doubt


def _has_marginal(problem: TransportProblem, solution: Found) -> bool:
    has_subset = solution.selection is not None or solution.subset is not None
    return has_subset and problem.drafts.prefix_form is not None


def claim_violations(
    problem: TransportProblem,
    solution: Found,
    lower: float | Fraction,
    upper: float | Fraction,
    tolerance: float,
) -> list[str]:
    """Claims that contradict the proven bounds, or that the given evidence does not reach.

    Bounds between which a solver leaves its own tolerance meet up to that and the one given here.
    """
    rate, low, high = solution.acceptance_rate, solution.lower_bound, solution.upper_bound
    proven = f"the proven lower bound {float(lower):.12g}"
    optimal = f"acceptance_rate {rate:.12g} is claimed optimal"
    faults = []
    for name, value in (("acceptance_rate", rate), ("lower_bound", low)):
        if value > upper + tolerance:
            faults.append(f"{name} {value:.12g} exceeds the proven upper bound {float(upper):.12g}")
    if high < lower - tolerance:
        faults.append(f"upper_bound {high:.12g} is below {proven}")
    if solution.status is Status.OPTIMAL and rate < lower - tolerance:
        faults.append(f"{optimal}, below {proven}")
    elif solution.status is Status.OPTIMAL and rate < upper - 2 * tolerance:
        faults.append(f"{optimal}, but nothing given rules out more, up to {float(upper):.12g}")
    if rate < low - tolerance:
        faults.append(f"acceptance_rate {rate:.12g} is below the claimed lower bound {low:.12g}")
    if rate > high + tolerance:
        faults.append(f"acceptance_rate {rate:.12g} exceeds the claimed upper bound {high:.12g}")
    if high < upper - tolerance:
        known = f"the subset proves {float(upper):.12g}, not"
        shown = "nothing proves" if solution.subset is None else known
        faults.append(f"{shown} the claimed upper bound {high:.12g}")
    shown = f"{_shown_by(problem, solution)} {float(lower):.12g}, not the claimed"
    if low > lower + tolerance:
        faults.append(f"{shown} lower bound {low:.12g}")
    elif solution.status is not Status.LIMIT and rate > lower + 2 * tolerance:
        faults.append(f"{shown} acceptance_rate {rate:.12g}")
    return faults


def _shown_by(problem: TransportProblem, solution: Found) -> str:
    """Evidence for the lower bound, in words."""
    if solution.plan is not None:
        return "the plan proves"
    if solution.proof is not None:
        return "the proof gives"
    if not _has_marginal(problem, solution):
        return "nothing given proves more than"
    return f"the {'subset' if solution.selection is None else 'selection marginal'} proves"


def _proven(problem: TransportProblem, proof: object, exact: bool) -> float | Fraction | None:
    """One plus the bound of a proof on P(H) - Q(H); None if it proves nothing for this problem."""
    law = problem.law(exact)
    (fixed, drafts), target = split_fixed(law.drafts), law.target
    p = target.copy()
    p[fixed] = target[0] * 0  # drafted anyway
    if isinstance(proof, BoxCover):
        form = product_form(drafts)
        bound = None if form is None else cover_bound(p, form, proof)
    elif isinstance(proof, OrderMixture):
        bound = mixture_shortfall(p, drafts, proof)
    else:
        bound = None
    if bound is None:
        return None
    proven: float | Fraction = 1 + target[fixed].sum() + bound
    return proven if exact else float(proven)


def _marginal_bound(problem: TransportProblem, solution: Found, exact: bool) -> float | Fraction:
    """Rate that the selection marginal reaches: the claimed one, or that of the subset."""
    law, draws = problem.law(exact), None if exact else problem.drafts.random_draws
    p, drafts = law.target, law.drafts.prefix_form
    assert drafts is not None
    subset, x = solution.subset, solution.selection
    if x is None:
        assert subset is not None
        if saves_sorting(draws):
            from mdsd_opt.prefix_search import contained_in

            inside: Any = contained_in(draws, subset)
        else:
            inside = drafts.containment(subset)
        x = water_fill(p, drafts, subset, inside).values
    elif exact:
        x = np.array([Fraction(mass) for mass in x.tolist()], dtype=object)
    if saves_sorting(draws):
        from mdsd_opt.prefix_search import lower_bound

        return min(max(0.0, lower_bound(p, draws, x)), 1.0)
    order, contained = drafts.ordered(x)
    shortfall = (contained - running_sums(x[None, order])[0]).max()
    imbalance = abs(x.sum() - 1)
    reached = np.minimum(p, x).sum() - max(shortfall, imbalance * 0) - imbalance
    if exact:
        return max(reached, Fraction(0))
    again = drafts.with_finer_quadrature()
    if again is not drafts:
        reached -= np.abs(contained - again.prefix_containment(order)).max()
    return min(max(0.0, float(reached)), 1.0)


#: Fields that a solution may leave out. Its proof is read where it is checked.
_OPTIONAL = ("subset", "selection", "plan")


def read_solution(solution: Any, vocab_size: int) -> tuple[Found | None, list[str]]:
    """Solution in these types, or None, and descriptions of what cannot be read."""
    solution = of_kind(solution, Found, "solution", "what solve returns")
    readers: dict[str, Callable[[Any], Any]] = {
        "acceptance_rate": partial(read_rate, "acceptance_rate"),
        "lower_bound": partial(read_rate, "lower_bound"),
        "upper_bound": partial(read_rate, "upper_bound"),
        "status": read_status,
        "subset": partial(mask, name="the subset", size=vocab_size, of="tokens"),
        "selection": partial(_selection, vocab_size=vocab_size),
        "plan": partial(read_plan, vocab_size=vocab_size),
    }
    read: dict[str, Any] = {}
    unreadable = []
    for name, reader in readers.items():
        value = getattr(solution, name)
        try:
            read[name] = None if value is None and name in _OPTIONAL else reader(value)
        except InvalidInput as error:
            unreadable.append(str(error))
    return (None if unreadable else replace(solution, **read)), unreadable


def read_rate(name: str, value: Any) -> float:
    """Finite number; `InvalidInput` for anything else."""
    rate = real(value)
    if not np.isfinite(rate):
        raise InvalidInput(f"{name} is {value}")
    return rate


def read_status(status: Any) -> Status:
    """Status; `InvalidInput` for anything else."""
    if not isinstance(status, Status):
        raise InvalidInput(f"status is {status!r}, not a Status")
    return status


def _selection(selection: Any, vocab_size: int) -> Floats:
    x = floats(selection, "the selection marginal")
    if x.shape != (vocab_size,):
        raise InvalidInput(f"the selection marginal has shape {x.shape}")
    if not (np.isfinite(x) & (x >= 0)).all():
        raise InvalidInput("the selection marginal has masses that are negative or not finite")
    with np.errstate(over="ignore"):
        total = x.sum()
    if total > 1 + SUM_TOLERANCE:
        raise InvalidInput(f"the selection marginal sums to {total:.6g}, more than one")
    return x
