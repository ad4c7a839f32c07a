"""Results of solvers: claims, to be proved by a certificate."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Flags, Floats, Integers
from mdsd_opt.base.arrays import frozen, weighted_count
from mdsd_opt.base.checked import checked_integer
from mdsd_opt.base.frames import data_frame, folded
from mdsd_opt.drafts import count_power
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnsupportedScheme
from mdsd_opt.problem.lower_bounds import BoxCover, OrderMixture
from mdsd_opt.problem.transport_problem import TransportProblem, checked_problem

#: Most entries of a plan as one array: 80 MB.
_MAX_DENSE = 10**7


class Status(enum.Enum):
    """Outcome of a solver's run."""

    OPTIMAL = "optimal: the bounds meet up to the solver's tolerance"
    LIMIT = "stopped at a limit: only the bounds hold; allow more time or take another method"
    BOUND = "the method gives a lower bound, not the optimum; its stats may bound what it loses"

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, eq=False)
class PlanBasis:
    """Basis of the transport LP: which arcs and which slacks are basic."""

    arcs: Flags
    token_slacks: Flags
    support_slacks: Flags


class PlanMatrix(np.ndarray[tuple[int, int], np.dtype[np.float64]]):
    """Masses of a plan as an array, shape (num_supports, V), whose rows have labels.

    Attributes
    ----------
    labels : tuple of tuples of int
        Draft set of each row, tokens ascending; empty for a part of the matrix.
    """

    labels: tuple[tuple[int, ...], ...] = ()

    def to_pandas(self) -> Any:
        """Data frame of draft sets by tokens; `MissingExtra` without pandas."""
        rows = [dict(enumerate(row)) for row in self.tolist()]
        names = ["{" + ", ".join(map(str, drafts)) + "}" for drafts in self.labels]
        return data_frame(rows, index=names or None)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TransportPlan:
    """Sparse transport plan C(i, S), one entry for each (token, draft set) arc.

    Attributes
    ----------
    tokens : ndarray of int32, shape (num_arcs,)
        Elements of the draft sets, one set after another.
    offsets : ndarray of int64, shape (num_supports + 1,)
        Set s is ``tokens[offsets[s]:offsets[s + 1]]``.
    mass : ndarray of float64, shape (num_arcs,)
        C(i, S) for each element i of each set S.
    basis : PlanBasis, optional
        Basis from which the plan can be recomputed exactly.
    numerators : ndarray of int64, shape (num_arcs,), optional
        The plan without rounding: C(i, S) is ``numerators / denominator``.
    denominator : int
        Denominator of the numerators.
    """

    tokens: NDArray[np.int32]
    offsets: Integers
    mass: Floats
    basis: PlanBasis | None = None
    numerators: Integers | None = None
    denominator: int = 1

    @property
    def arc_support(self) -> Integers:
        """Index of each arc's draft set, shape (num_arcs,)."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))

    @property
    def value(self) -> float:
        """Sum of C: the acceptance rate if the plan is feasible."""
        return float(self.mass.sum())

    def __repr__(self) -> str:
        arrays = (self.tokens, self.offsets, self.mass)
        # A forged plan, which a certificate refuses, may hold anything.
        if not all(type(x) is np.ndarray and x.dtype.kind in "iuf" for x in arrays):
            return f"TransportPlan(tokens={self.tokens!r:.60}, mass={self.mass!r:.60})"
        with np.errstate(all="ignore"):
            value = self.value
        return (
            f"TransportPlan({self.offsets.size - 1:,} draft sets, {self.tokens.size:,} arcs, "
            f"value={value:.9g})"
        )

    def matrix(self, vocab_size: int | None = None) -> PlanMatrix:
        r"""Masses :math:`C(i, S)`, draft sets by tokens, with the sets as ``labels`` of the rows.

        Row s sums to what is accepted from set ``labels[s]``, column i to the accepted mass of
        token i, the whole to the acceptance rate; tokens that are not in the set have 0.

        Parameters
        ----------
        vocab_size : int, optional
            V; one more than the highest token that is drafted unless given.

        Raises
        ------
        ProblemTooLarge
            More than ten million entries.
        """
        least = int(self.tokens.max(initial=-1)) + 1
        size = least if vocab_size is None else checked_integer(vocab_size, "vocab_size", least)
        num_sets = self.offsets.size - 1
        if num_sets * size > _MAX_DENSE:
            raise ProblemTooLarge(
                f"a plan of {num_sets:,} draft sets and {size:,} tokens has over {_MAX_DENSE:,} "
                "entries: go through its items(), the masses above zero"
            )
        matrix = cast("PlanMatrix", np.zeros((num_sets, size)).view(PlanMatrix))
        matrix[self.arc_support, self.tokens] = self.mass
        matrix.labels = self.sets()
        return matrix

    def sets(self) -> tuple[tuple[int, ...], ...]:
        """Draft sets, tokens ascending, in the order of the plan."""
        tokens = self.tokens.tolist()
        return tuple(tuple(tokens[i:j]) for i, j in pairwise(self.offsets.tolist()))

    def items(self) -> Iterator[tuple[tuple[int, ...], int, float]]:
        """Draft set, accepted token and its mass, for every mass above zero.

        The tokens of a set ascend.
        """
        tokens, mass = self.tokens.tolist(), self.mass.tolist()
        for start, stop in pairwise(self.offsets.tolist()):
            drafts = tuple(tokens[start:stop])
            yield from (
                (drafts, token, x)
                for token, x in zip(drafts, mass[start:stop], strict=True)
                if x > 0
            )

    def dense(self, problem: TransportProblem) -> Floats:
        r"""Joint law of drafts and output, shape (V,) * K + (V,).

        Entry :math:`(x_1, \dots, x_K, y)` is the probability that these are the drafts, in draw
        order, and y comes out: the mass of every draft set is spread over its tuples as the drafts
        do, and what is left of a tuple follows what is left of the target. Sums over the last axis
        are the law of the drafts, sums over all others the target.

        Parameters
        ----------
        problem : TransportProblem
            Problem of the plan, for which it is feasible.

        Raises
        ------
        InvalidInput
            The plan is not feasible for this problem.
        ProblemTooLarge
            More than ten million entries.
        UnsupportedScheme
            There may be fewer than K drafts.
        """
        from mdsd_opt.problem.transport_plans import plan_violations, read_plan

        size, k = checked_problem(problem).vocab_size, problem.num_drafts
        if count_power(size, k + 1) > _MAX_DENSE:
            raise ProblemTooLarge(
                f"a plan of V = {size}, K = {k} has V^(K+1) entries, over {_MAX_DENSE:,}: go "
                "through its items(), the masses above zero"
            )
        if faults := plan_violations(problem, read_plan(self, size), 1e-6):
            raise InvalidInput(f"the plan is none of this problem: {faults[0]}")
        tuples, chances = problem.drafts.tuple_law()
        if (tuples[chances > 0] < 0).any():
            raise UnsupportedScheme(
                "there may be fewer drafts than K, which an array over K drafts cannot hold: go "
                "through the items() of the plan"
            )
        sets = [tuple(sorted({*row})) for row in tuples.tolist()]
        whole: dict[tuple[int, ...], float] = {}
        for members, chance in zip(sets, chances.tolist(), strict=True):
            whole[members] = whole.get(members, 0.0) + chance
        moved: dict[tuple[int, ...], Floats] = {}
        for members, token, mass in self.items():
            moved.setdefault(members, np.zeros(size))[token] += mass
        residual = np.maximum(problem.target - self.token_mass(size), 0.0)
        residual /= residual.sum() if residual.any() else 1.0
        joint = np.zeros((size,) * (k + 1))
        for row, members, chance in zip(tuples.tolist(), sets, chances.tolist(), strict=True):
            if chance > 0:
                share = chance / whole[members]
                accepted = share * moved.get(members, np.zeros(size))
                joint[tuple(row)] = accepted + max(chance - accepted.sum(), 0.0) * residual
        return joint

    def token_mass(self, vocab_size: int) -> Floats:
        """Sum over S of C(i, S), shape (V,); at most p_i in a feasible plan."""
        return weighted_count(self.tokens, self.mass, vocab_size)

    def support_mass(self) -> Floats:
        """Sum over i of C(i, S), shape (num_supports,); at most W_S in a feasible plan."""
        num_supports = self.offsets.size - 1
        return weighted_count(self.arc_support, self.mass, num_supports)


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
    """A claimed optimum (or bounds), with the evidence to prove it.

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
        """Solution with all rates clipped to [0, 1], which rounding may leave."""
        values = {x.name: getattr(found, x.name) for x in fields(Found)}
        for name in ("acceptance_rate", "lower_bound", "upper_bound"):
            values[name] = min(max(values[name], 0.0), 1.0)
        for name in ("subset", "selection"):
            if values[name] is not None:
                values[name] = frozen(np.asarray(values[name]))
        return cls(**values, method=method, solve_seconds=solve_seconds)

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
        plan = "None (method='full_lp' has one)"
        try:
            if self.plan is not None:
                plan = f"{self.plan.mass.size} arcs"
            return folded(
                f"Solution(acceptance_rate={self.acceptance_rate:.9g}, status={self.status}, "
                f"method={self.method!r}, gap={self.upper_bound - self.lower_bound:.1e}, "
                f"plan={plan}, solve_seconds={self.solve_seconds:.3g})"
            )
        except (ArithmeticError, AttributeError, TypeError, ValueError):  # a forged one
            return object.__repr__(self)
