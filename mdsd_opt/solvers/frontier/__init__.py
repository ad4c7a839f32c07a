"""Laws beyond lossless: the closest to the target among all with a given acceptance rate.

Here: the law that one budget buys, and its distances from the target.

- `curve`: the frontier of a problem, all such laws, from one chain of sets, by `cost_kernels`
- `relaxed_rows`: the same for rows of logits, by `group_kernels`
- `rules`: rules in use that accept more than a lossless one may
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.base.arrays import Floats, Numbers
from mdsd_opt.base.checked import check_truth, checked_amount
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.base.frames import Result, Table, folded, one_table
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers.frontier.curve import CostCurve, Frontier, frontier_of, shortfall

__all__ = ["Relaxation", "relax"]

#: Relative difference below which the logarithm is computed by its series.
_SMALL = 1e-3


@dataclass(frozen=True, slots=True)
class Distances:
    r"""Distances of a law x from the target p; logarithms are natural.

    Attributes
    ----------
    tv : float or Fraction
        :math:`\frac12 \sum_i |x_i - p_i|`.
    kl : float
        :math:`\mathrm{KL}(x \| p) = \sum_i x_i \log (x_i / p_i)`, in nats.
    reverse_kl : float
        :math:`\mathrm{KL}(p \| x)`.
    chi2 : float or Fraction
        :math:`\sum_i (x_i - p_i)^2 / p_i`.
    """

    tv: float | Fraction
    kl: float
    reverse_kl: float
    chi2: float | Fraction


def distances(x: Numbers, p: Numbers) -> Distances:
    """Distances of x from p; infinite if x has mass outside p's support (or the other way round).

    The laws sum to one; float64, or Fractions, whose logarithms alone are rounded.
    """
    exact = p.dtype == object
    difference = x - p
    # the positive and the negative parts are equal; their mean halves what rounding does
    tv = abs(difference).sum() / 2
    held = p > 0
    chi2: Any = np.inf
    kl = np.inf
    change = difference[held] / p[held]
    if not (x[~held] > 0).any():
        chi2 = (change * difference[held]).sum()
        kl = float(_weighted_sum(p[held], _forward(change.astype(np.float64))))
    reverse_kl = float(_weighted_sum(p[held], _backward(change.astype(np.float64)))) + float(
        x[~held].sum()
    )
    return Distances(tv if exact else float(tv), kl, reverse_kl, chi2 if exact else float(chi2))


def _weighted_sum(p: Numbers, values: Floats) -> float:
    return float((p.astype(np.float64) * values).sum())


def _forward(d: Floats) -> Floats:
    """Terms r log r - r + 1 at r = 1 + d: none is negative, so nothing cancels in the sum."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = (1 + d) * np.log1p(d) - d
    exact[d <= -1] = 1.0
    t = np.clip(d, -_SMALL, _SMALL)
    return np.where(np.abs(d) < _SMALL, t * t * (0.5 - t * (1 / 6 - t * (1 / 12 - t / 20))), exact)


def _backward(d: Floats) -> Floats:
    """Terms r - 1 - log r at r = 1 + d."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = d - np.log1p(d)
    exact[d <= -1] = np.inf
    t = np.clip(d, -_SMALL, _SMALL)
    return np.where(np.abs(d) < _SMALL, t * t * (0.5 - t * (1 / 3 - t * (1 / 4 - t / 5))), exact)


#: Names of the budgets by which a law can be relaxed.
NAMES = ("acceptance_rate", "tv", "kl", "chi2")

#: Largest relative error of a distance in floating point.
_ROUNDING = 1e-14

#: First step back from a rate that the budget does not cover; the steps double.
_LEAST_STEP = 2.0**-53


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation(Result):
    """A relaxed target, its acceptance rate, and its distances from the target.

    Attributes
    ----------
    problem : TransportProblem
        The same drafts with the relaxed target: a lossless verifier of this problem has the relaxed
        law as its output law, and the optimal one accepts with `acceptance_rate`.
    acceptance_rate : float or Fraction
        a, the optimum of `problem`.
    lossless_acceptance_rate : float or Fraction
        alpha*, the optimum of the given problem.
    tv : float or Fraction
        Total variation from the given target, ``acceptance_rate - lossless_acceptance_rate``.
    kl, reverse_kl : float
        KL(relaxed || target) and KL(target || relaxed), in nats; infinite where one has mass that
        the other has not.
    chi2 : float or Fraction
        The sum of (relaxed - target)^2 / target.
    gap : float
        Part of `acceptance_rate` that is not proven: no law that allows all of it is closer, and
        this one allows it but for the gap. Zero in exact arithmetic and where tokens have a prefix
        order (there but for rounding).
    """

    problem: TransportProblem
    acceptance_rate: float | Fraction
    lossless_acceptance_rate: float | Fraction
    tv: float | Fraction
    kl: float
    reverse_kl: float
    chi2: float | Fraction
    gap: float

    columns: ClassVar = (
        "acceptance_rate", "lossless_acceptance_rate", "tv", "kl", "reverse_kl", "chi2", "gap",
    )  # fmt: skip

    def tables(self) -> list[Table]:
        """All numbers, with their units."""
        return [replace(x, caption="kl and reverse_kl in nats") for x in one_table(self)]

    @property
    def target(self) -> Floats:
        """Relaxed target p_a, shape (V,); as Fractions: ``problem.exact_target``."""
        return self.problem.target

    def __str__(self) -> str:
        return folded(
            f"Relaxation(acceptance_rate={float(self.acceptance_rate):.8f}, "
            f"lossless_acceptance_rate={float(self.lossless_acceptance_rate):.8f}, "
            f"tv={float(self.tv):.3g}, kl={self.kl:.3g}, chi2={float(self.chi2):.3g})"
        )


def relax(
    problem: TransportProblem,
    *,
    acceptance_rate: float | Fraction | None = None,
    tv: float | Fraction | None = None,
    kl: float | None = None,
    chi2: float | None = None,
    exact: bool = False,
) -> Relaxation:
    r"""Law closest to the target among all with a higher acceptance rate than the target's.

    A verifier with output law x can accept with probability a iff, with :math:`c = 1 - a`,
    :math:`x(H) \ge Q(H) - c` for every set H of tokens. Among these laws one, :math:`p_a`,
    minimises :math:`\sum_i p_i f(x_i / p_i)` for every convex f at once: total variation, KL in
    both directions, chi-square, every Renyi divergence. Always
    :math:`\mathrm{TV}(p_a, p) = a - \alpha^*`. With a prefix order of the tokens,

    .. math:: p_a = p \cdot (\text{slopes of the least concave majorant of }
              (P_j, (F_j - c)_+)_{j < V} \text{ and } (1, 1)),

    P_j and F_j the target's mass and Q of the first j tokens: O(V log V). Elsewhere the sets that
    take the place of prefixes are found by repeated minimisation, to a certified `gap`.

    This is a statement about one step. Over a text the distances add up (KL by the chain rule,
    total variation at most), and none of them says what the change does to the text's quality.

    Parameters
    ----------
    problem : TransportProblem
        Problem with any draft scheme.
    acceptance_rate : float, optional
        a, at least 0. Below the optimum of the problem the answer is the target itself.
    tv, kl, chi2 : float, optional
        The most that the law may be away from the target: total variation, KL(relaxed || target)
        in nats, chi-square. Exactly one of the four budgets is to be given. A budget is never
        overspent: where rounding would, the answer is a little further back on the frontier. One
        that buys more than can be accepted, an infinite one at least, is not used up.
    exact : bool
        Compute in Fractions, from the given numbers divided by their sum. The acceptance rate that
        a budget of KL or chi-square buys is found in floating point and then taken exactly.

    Returns
    -------
    Relaxation

    Raises
    ------
    InvalidInput
        Not exactly one budget, one that is negative or NaN, or an acceptance rate that no law
        allows.
    ProblemTooLarge
        There are, without a prefix order, more tokens than exact arithmetic takes, or than a draft
        law that is known by its containment probabilities alone.

    Notes
    -----
    Where some tokens Z have no mass in the target, KL and chi-square are finite up to
    :math:`a = 1 - Q(Z)`, where they may stop short of their budget, and infinite beyond. The mass
    on Z is then fixed in total, and none of these divergences asks how it is shared: here in
    proportion to the draft's weights where there is a prefix order.

    For K = 1 and total variation the frontier is known [Yin24]; that one law serves every
    divergence is Fujishige's lexicographically optimal base [Fujishige80]. See the theory page
    "Beyond lossless" for the proof.
    """
    budgets = {"acceptance_rate": acceptance_rate, "tv": tv, "kl": kl, "chi2": chi2}
    name, budget = the_budget(budgets)
    budget = checked_amount(name, budget)
    check_truth(exact=exact)
    frontier = frontier_of(problem, exact)
    reached = _bought(problem, frontier, name, budget)
    relaxed, distances = _relaxed(problem, frontier, reached)
    step = _number(frontier, _LEAST_STEP)
    while name != "acceptance_rate" and _overspent(getattr(distances, name), budget):  # by rounding
        reached = max(reached - step, frontier.least)
        relaxed, distances = _relaxed(problem, frontier, reached)
        step *= 2
    return Relaxation(
        problem=relaxed,
        acceptance_rate=reached,
        lossless_acceptance_rate=frontier.least,
        tv=distances.tv,
        kl=distances.kl,
        reverse_kl=distances.reverse_kl,
        chi2=distances.chi2,
        gap=_gap(relaxed, reached),
    )


def relaxed_by(problem: TransportProblem, budget: Mapping[str, float]) -> Relaxation:
    """Relaxation by a budget given as a mapping, ``{"kl": 0.01}``."""
    return relax(problem, **checked_relax(budget))


def _relaxed(
    problem: TransportProblem, frontier: Frontier, reached: Any
) -> tuple[TransportProblem, Distances]:
    """Problem of p_a, and the distances of p_a from the target."""
    relaxed = problem
    if reached > frontier.least:
        law = frontier.law(reached)
        target: Any = Distribution.computed(tuple(law)) if frontier.exact else law
        relaxed = TransportProblem(target, problem.drafts)
    x = relaxed.law(frontier.exact).target
    return relaxed, distances(x, frontier.p)


def _overspent(spent: Any, budget: Any) -> bool:
    """Whether a distance exceeds its budget, or is a float so close that rounding may hide it."""
    allowed = budget if isinstance(spent, Fraction) else float(budget) * (1 - _ROUNDING)
    return bool(spent > 0 and spent > allowed)


def _gap(relaxed: TransportProblem, reached: Any) -> float:
    if relaxed.drafts.prefix_form is not None or isinstance(reached, Fraction):
        return 0.0
    return shortfall(relaxed, reached)


def _bought(problem: TransportProblem, frontier: Frontier, name: str, budget: Any) -> Any:
    """Largest acceptance rate that the budget buys."""
    if name in ("kl", "chi2"):
        if not frontier.exact:
            return CostCurve.of(frontier).rate_within(name, float(budget))
        # logarithms are irrational: look for the rate in floating point, then take it as it is
        rate: Any = Fraction(CostCurve.of(frontier_of(problem)).rate_within(name, float(budget)))
        most = frontier.most_finite if np.isfinite(float(budget)) else frontier.most
        return min(max(rate, frontier.least), max(most, frontier.least))
    if name == "tv":
        if budget >= 1:
            return frontier.most
        return min(frontier.least + _number(frontier, budget), frontier.most)
    if budget > float(frontier.most) * (1 + _ROUNDING):
        raise InvalidInput(
            f"acceptance_rate is {budget}: no law allows more than {float(frontier.most):.12g}"
        )
    rate = min(_number(frontier, budget), frontier.most)
    if not frontier.exact and rate <= frontier.most_finite * (1 + _ROUNDING):
        rate = min(rate, frontier.most_finite)  # else rounding decides what is impossible
    return max(frontier.least, rate)


def _number(frontier: Frontier, budget: Any) -> Any:
    return Fraction(budget) if frontier.exact else float(budget)


def the_budget(budgets: Mapping[str, Any]) -> tuple[str, Any]:
    """Name and value of the only one that is not None; `InvalidInput` for none or several."""
    amounts = {name: budget for name, budget in budgets.items() if budget is not None}
    if len(amounts) != 1:
        fault = f"{' and '.join(amounts)} are given" if amounts else "no budget is given"
        raise InvalidInput(f"{fault}: give exactly one of {', '.join(budgets)}")
    return next(iter(amounts.items()))


def checked_relax(relax: Any) -> dict[str, Any]:
    """Budget in an argument such as ``relax={"kl": 0.01}``, for `relax(problem, **budget)`.

    Raises `UnknownName` where there is no such budget, `InvalidInput` for no mapping with one
    budget.
    """
    if not isinstance(relax, Mapping):
        raise InvalidInput(f'relax is {relax!r}: give one budget, as {{"kl": 0.01}}')
    for name in relax:
        if name not in NAMES:
            raise UnknownName.among("budget", name, NAMES)
    name, budget = the_budget({name: relax.get(name) for name in NAMES})
    return {name: checked_amount(name, budget)}
