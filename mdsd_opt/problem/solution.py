"""What a solver hands back: a claim, to be proved by a certificate."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Flags, Floats, Integers
from mdsd_opt.base.arrays import frozen
from mdsd_opt.problem.lower_bounds import BoxCover, OrderMixture


class Status(enum.Enum):
    """How a solver ended."""

    OPTIMAL = "optimal: the bounds meet up to the solver's tolerance"
    LIMIT = "stopped at a limit: only the bounds hold; allow more time or take another method"
    BOUND = "the method gives a lower bound, not the optimum; its stats may bound what it loses"

    def __str__(self) -> str:
        return self.name.lower()


def weighted_count(index: NDArray[Any], weights: Floats, size: int) -> Floats:
    """Sum of the weights at each index, shape (size,)."""
    total: Floats = np.bincount(index, weights=weights, minlength=size)  # type: ignore[assignment]  # with weights, bincount gives floats
    return total


@dataclass(frozen=True, slots=True, eq=False)
class PlanBasis:
    """A basis of the transport LP: which arcs and which slacks are basic."""

    arcs: Flags
    token_slacks: Flags
    support_slacks: Flags


@dataclass(frozen=True, slots=True, eq=False)
class TransportPlan:
    """A sparse transport plan C(i, S), one entry for each (token, draft set) arc.

    Attributes
    ----------
    tokens : ndarray of int32, shape (num_arcs,)
        Elements of the draft sets, one set after another.
    offsets : ndarray of int64, shape (num_supports + 1,)
        Set s is ``tokens[offsets[s]:offsets[s + 1]]``.
    mass : ndarray of float64, shape (num_arcs,)
        C(i, S) for each element i of each set S.
    basis : PlanBasis, optional
        From which the plan can be recomputed exactly.
    numerators : ndarray of int64, shape (num_arcs,), optional
        The plan without rounding: C(i, S) is ``numerators / denominator``.
    denominator : int
        Of the numerators.
    """

    tokens: NDArray[np.int32]
    offsets: Integers
    mass: Floats
    basis: PlanBasis | None = None
    numerators: Integers | None = None
    denominator: int = 1

    @property
    def arc_support(self) -> Integers:
        """Which draft set each arc belongs to, shape (num_arcs,)."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))

    @property
    def value(self) -> float:
        """Sum of C: the acceptance rate if the plan is feasible."""
        return float(self.mass.sum())

    def token_mass(self, vocab_size: int) -> Floats:
        """Sum over S of C(i, S), shape (V,); at most p_i in a feasible plan."""
        return weighted_count(self.tokens, self.mass, vocab_size)

    def support_mass(self) -> Floats:
        """Sum over i of C(i, S), shape (num_supports,); at most W_S in a feasible plan."""
        num_supports = self.offsets.size - 1
        return weighted_count(self.arc_support, self.mass, num_supports)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Found:
    """What a method has computed; `Solution` says the same and who computed it in what time.

    Attributes
    ----------
    acceptance_rate : float
    lower_bound, upper_bound : float
        What the solver claims to enclose alpha* with.
    subset : ndarray of bool, shape (V,), optional
        H with 1 + P(H) - Q(H) equal to `upper_bound`.
    plan : TransportPlan, optional
        Reaches `lower_bound`.
    selection : ndarray, shape (V,), optional
        Marginal law p_I of the selected draft, where the method has one.
    proof : BoxCover or OrderMixture, optional
        Proves `lower_bound` without a plan.
    status : Status
    message : str
        What was chosen and why, in words; a backend's own words included.
    stats : mapping
        Sizes, iterations, bounds and other facts of the run, by name.
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
    """A claimed optimum (or bounds), with what it takes to prove it.

    All of `Found`, with rates in [0, 1] and arrays that are read-only.

    Attributes
    ----------
    method : str
    solve_seconds : float
    """

    method: str
    solve_seconds: float

    @classmethod
    def of(cls, found: Found, method: str, solve_seconds: float) -> Solution:
        """Rounding must not lead a rate out of [0, 1]."""
        given = {x.name: getattr(found, x.name) for x in fields(found)}
        for name in ("acceptance_rate", "lower_bound", "upper_bound"):
            given[name] = min(max(given[name], 0.0), 1.0)
        for name in ("subset", "selection"):
            if given[name] is not None:
                frozen(given[name])
        return cls(**given, method=method, solve_seconds=solve_seconds)

    def __repr__(self) -> str:
        return (
            f"Solution(acceptance_rate={self.acceptance_rate:.9g}, status={self.status}, "
            f"method={self.method!r}, gap={self.upper_bound - self.lower_bound:.1e}, "
            f"solve_seconds={self.solve_seconds:.3g})"
        )
