"""Results of solvers: claims, to be proved by a certificate."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Flags, Floats
from mdsd_opt.base.arrays import frozen, weighted_count
from mdsd_opt.base.frames import folded
from mdsd_opt.problem.lower_bounds import BoxCover, OrderMixture
from mdsd_opt.problem.transport_plans import TransportPlan


class Status(enum.Enum):
    """Outcome of a solver's run."""

    OPTIMAL = "optimal: the bounds are as close as the tolerance"
    CONVERGED = (
        "ended by the method's own measure, but its bounds are further apart than the tolerance"
    )
    LIMIT = "stopped at a limit: only the bounds hold; allow more time or take another method"
    BOUND = "the method gives a lower bound, not the optimum; its stats may bound what it loses"

    def __str__(self) -> str:
        return self.name.lower()


#: Facts of a run that tell one variant of a method from another.
_VARIANT = ("rule", "size", "stages")


@dataclass(frozen=True, slots=True, eq=False)
class TransportDual:
    r"""Prices that prove an upper bound: :math:`u_i + v_S \ge 1` for every i in S, none negative.

    Then :math:`\alpha^* \le p \cdot u + W \cdot v`. The LP has 0/1 optima: :math:`u_i = [i \in H]`
    and :math:`v_S = [S \not\subseteq H]`, of value :math:`1 + P(H) - Q(H)`.

    Attributes
    ----------
    tokens : ndarray, shape (V,)
        u, what one more unit of p_i is worth at most.
    sets : ndarray, shape (num_supports,), optional
        v, in the order of the plan's draft sets; None where the method lists none.
    """

    tokens: NDArray[np.float64]
    sets: NDArray[np.float64] | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Found:
    """Raw result of a method; `Solution` adds the method's name and its seconds.

    Attributes
    ----------
    acceptance_rate : float
        The optimum, where the status is OPTIMAL. Otherwise a rate that is reached, as far as the
        method knows one: it is `lower_bound` in the package's own methods.
    lower_bound, upper_bound : float
        Bounds of alpha* that the solver claims.
    subset : ndarray of bool, shape (V,), optional
        H with 1 + P(H) - Q(H) equal to `upper_bound`.
    plan : TransportPlan, optional
        Reaches `lower_bound`. The methods that list draft sets have one, as "full_lp" and
        "max_flow"; None from subset selection, which needs none.
    selection : ndarray, shape (V,), optional
        Marginal law p_I of the selected draft, where the method has one.
    proof : BoxCover or OrderMixture, optional
        Proves `lower_bound` without a plan.
    status : Status
    message : str
        Choices and their reasons, in words; a backend's own words included.
    stats : mapping
        Sizes, iterations, bounds and other facts of the run, by name. Those called "rule", "size"
        and "stages" stand beside the method's name in tables.
    """

    acceptance_rate: float
    lower_bound: float
    upper_bound: float
    status: Status
    subset: Flags | None = None
    plan: TransportPlan | None = None
    selection: Floats | None = None
    proof: BoxCover | OrderMixture | None = None
    message: str = ""
    stats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Solution(Found):
    """A claimed optimum (or bounds), with the evidence to prove it.

    All of `Found`, with rates in [0, 1] and arrays that are read-only.

    Attributes
    ----------
    method : str
    solve_seconds : float
    plan_by : str
        A method that finds a plan for a problem of this size; "" if there is none.
    """

    method: str
    solve_seconds: float
    plan_by: str = ""

    @classmethod
    def of(cls, found: Found, method: str, solve_seconds: float, plan_by: str = "") -> Solution:
        """Solution with all rates clipped to [0, 1], which rounding may leave."""
        values = {x.name: getattr(found, x.name) for x in fields(Found)}
        for name in ("acceptance_rate", "lower_bound", "upper_bound"):
            values[name] = min(max(values[name], 0.0), 1.0)
        for name in ("subset", "selection"):
            if values[name] is not None:
                values[name] = frozen(np.asarray(values[name]))
        return cls(**values, method=method, solve_seconds=solve_seconds, plan_by=plan_by)

    @property
    def rule(self) -> str | None:
        """Rule that decided where the method did not; None for methods without one."""
        return self.stats.get("rule")

    @property
    def size(self) -> int | None:
        """Number of tokens between which the method decided, if not between all."""
        return self.stats.get("size")

    @property
    def stages(self) -> int | None:
        """Number of programmes solved one after another, each on what the last one selects."""
        return self.stats.get("stages")

    @property
    def variant(self) -> str:
        """Rule, size and stages in words; "" for methods that have none of them."""
        named = [f"{name} {self.stats[name]}" for name in _VARIANT if name in self.stats]
        unused = self.stats.get("unused_drafts")
        return ", ".join([*named, *([f"{unused:,} drafts unused"] if unused else [])])

    @property
    def dual(self) -> TransportDual | None:
        """Prices of `upper_bound`, by the subset; None if there is no subset."""
        if self.subset is None:
            return None
        sets = None
        if self.plan is not None:
            outside = weighted_count(
                self.plan.arc_support,
                (~self.subset[self.plan.tokens]).astype(np.float64),
                self.plan.offsets.size - 1,
            )
            sets = (outside > 0).astype(np.float64)
        return TransportDual(self.subset.astype(np.float64), sets)

    def __repr__(self) -> str:
        plan = f"None (method={self.plan_by!r} has one)" if self.plan_by else "None"
        try:
            variant = f"variant={self.variant!r}, " if self.variant else ""
            if self.plan is not None:
                plan = f"{self.plan.mass.size} arcs"
            return folded(
                f"Solution(acceptance_rate={self.acceptance_rate:.9g}, status={self.status}, "
                f"method={self.method!r}, {variant}gap={self.upper_bound - self.lower_bound:.1e}, "
                f"plan={plan}, solve_seconds={self.solve_seconds:.3g})"
            )
        except (ArithmeticError, AttributeError, TypeError, ValueError):  # a forged one
            return object.__repr__(self)
