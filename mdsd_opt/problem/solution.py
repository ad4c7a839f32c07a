"""Results of solvers: claims, to be proved by a certificate, and plans of transport.

The basic arcs of a vertex form a forest on tokens and draft sets. A node whose slack is not basic
has its whole mass on its arcs, so peeling off such nodes with one arc left fixes the masses one by
one, in Fractions, whatever rounding the solver had.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from itertools import pairwise
from numbers import Integral
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Flags, Floats, Integers, Numbers, frozen, weighted_count
from mdsd_opt.base.checked import checked_integer, floats, integers, mask, of_kind
from mdsd_opt.base.frames import Column, Table, data_frame, folded
from mdsd_opt.drafts import SupportLaw, count_power
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnsupportedScheme
from mdsd_opt.problem.lower_bounds import BoxCover, OrderMixture
from mdsd_opt.problem.transport_problem import TransportProblem, checked_problem

Mass = TypeVar("Mass", float, Fraction)

_UNFIT = "the plan's arrays do not fit together"

#: Most entries of a plan as one array: 80 MB.
_MAX_DENSE = 10**7


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


def read_plan(plan: Any, vocab_size: int) -> TransportPlan:
    """Plan with integers in int64 and masses in float64; `InvalidInput` if parts do not fit."""
    plan = of_kind(plan, TransportPlan, "the plan", "a TransportPlan")
    tokens = integers(plan.tokens, f"{_UNFIT}: tokens")
    offsets = integers(plan.offsets, f"{_UNFIT}: offsets")
    mass = floats(plan.mass, f"{_UNFIT}: mass")
    fit = (
        tokens.ndim == offsets.ndim == 1
        and tokens.shape == mass.shape
        and offsets.size > 0
        and int(offsets[0]) == 0
        and bool((offsets[1:] >= offsets[:-1]).all())  # a difference could overflow
        and tokens.size == int(offsets[-1])
    )
    if not fit:
        raise InvalidInput(_UNFIT)
    if not np.isfinite(mass).all():
        raise InvalidInput("the plan has a mass that is not finite")
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < vocab_size):
        raise InvalidInput("the plan names a token outside the vocabulary")
    numerators = plan.numerators
    if numerators is not None:
        numerators = integers(numerators, f"{_UNFIT}: numerators")
        if numerators.shape != tokens.shape:
            raise InvalidInput(f"{_UNFIT}: numerators has shape {numerators.shape}")
    denominator: Any = plan.denominator
    if not isinstance(denominator, Integral) or denominator < 1:
        raise InvalidInput(f"the plan's denominator is {denominator!r}: give a positive integer")
    basis = _read_basis(plan.basis, tokens.size, vocab_size, offsets.size - 1)
    return TransportPlan(tokens, offsets, mass, basis, numerators, int(denominator))


def _read_basis(basis: Any, num_arcs: int, num_tokens: int, num_supports: int) -> PlanBasis | None:
    if basis is None:
        return None
    basis = of_kind(basis, PlanBasis, "the plan's basis", "a PlanBasis")
    return PlanBasis(
        arcs=mask(basis.arcs, f"{_UNFIT}: basis", num_arcs, "arcs"),
        token_slacks=mask(basis.token_slacks, f"{_UNFIT}: basis", num_tokens, "tokens"),
        support_slacks=mask(basis.support_slacks, f"{_UNFIT}: basis", num_supports, "sets"),
    )


def plan_violations(problem: TransportProblem, plan: TransportPlan, tolerance: float) -> list[str]:
    """Ways in which the plan breaks a constraint of the problem, in words."""
    faults = []
    lowest = plan.mass.min(initial=0.0)
    if lowest < -tolerance:
        faults.append(f"the plan has a negative mass {lowest:.3g}")
    excess = plan.token_mass(problem.vocab_size) - problem.target
    token = int(excess.argmax())
    if excess[token] > tolerance:
        faults.append(f"the plan gives token {token} {excess[token]:.3g} more than the target has")
    excess = plan.support_mass() - support_masses(problem, plan)
    support = int(excess.argmax()) if excess.size else 0
    if excess.size and excess[support] > tolerance:
        members = plan.tokens[plan.offsets[support] : plan.offsets[support + 1]].tolist()
        faults.append(
            f"the plan moves {excess[support]:.3g} more through draft set {members} than the "
            "drafts put there"
        )
    return faults


def support_masses(problem: TransportProblem, plan: TransportPlan) -> Numbers:
    """Masses W_S of the plan's draft sets, from the problem, as `taken_masses` from the law."""
    law = problem.drafts.support_law()
    if _same_sets(law, plan):
        return law.mass
    return np.array(taken_masses(law.masses(), plan), dtype=law.mass.dtype)


def taken_masses(law: dict[tuple[int, ...], Any], plan: TransportPlan) -> list[Any]:
    """Mass of each draft set of the plan, removed from the law; 0 if it has none.

    So a set that is listed twice, in whatever order, gets its mass once, at its first place.
    """
    tokens, bounds = plan.tokens.tolist(), plan.offsets.tolist()
    return [law.pop(tuple(sorted(tokens[a:b])), 0) for a, b in pairwise(bounds)]


def _same_sets(law: SupportLaw, plan: TransportPlan) -> bool:
    return np.array_equal(law.offsets, plan.offsets) and np.array_equal(law.tokens, plan.tokens)


def feasible_mass(problem: TransportProblem, plan: TransportPlan) -> Floats:
    """Masses of the plan, each scaled down by the excess of its token or its draft set."""
    return clip_to_marginals(plan, problem.target, support_masses(problem, plan))


def clip_to_marginals(plan: TransportPlan, target: Floats, support_mass: Floats) -> Floats:
    """Masses C(i, S) min(1, p_i / C(i, .), W_S / C(., S)): feasible, and C itself if C is."""
    mass = np.maximum(plan.mass, 0.0)
    arc_support = plan.arc_support
    by_token = weighted_count(plan.tokens, mass, target.size)
    by_support = weighted_count(arc_support, mass, support_mass.size)
    keep_token = _share_kept(target, by_token)
    keep_support = _share_kept(support_mass, by_support)
    return mass * np.minimum(keep_token[plan.tokens], keep_support[arc_support])


def _share_kept(allowed: Floats, used: Floats) -> Floats:
    with np.errstate(over="ignore"):  # of much allowed and next to nothing used
        return np.minimum(1.0, np.divide(allowed, used, out=np.ones(used.shape), where=used > 0))


def feasible_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction]:
    """Exactly feasible mass of each arc: its integers or basis if they hold, else clipped."""
    for route in (integer_flow_masses, basis_masses):
        masses = route(problem, plan)
        if masses is not None:
            return masses
    return clipped_masses(problem, plan)


def clipped_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction]:
    """Masses C(i, S) min(1, p_i / C(i, .), W_S / C(., S)), each taken as the exact dyadic."""
    allowed_masses = support_masses(problem.law(exact=True), plan)
    p = problem.exact_target
    bounds = plan.offsets.tolist()
    tokens = plan.tokens.tolist()
    mass = [Fraction(max(x, 0.0)) for x in plan.mass.tolist()]
    by_token = [Fraction(0)] * problem.vocab_size
    for i, x in zip(tokens, mass, strict=True):
        by_token[i] += x
    clipped = []
    for (start, stop), allowed in zip(pairwise(bounds), allowed_masses, strict=True):
        used = sum(mass[start:stop], Fraction(0))
        keep_support = min(Fraction(1), allowed / used) if used else Fraction(0)
        for i, x in zip(tokens[start:stop], mass[start:stop], strict=True):
            clipped.append(x * min(keep_support, p[i] / by_token[i]) if x else x)
    return clipped


def basis_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction] | None:
    """Mass of each arc recomputed from the plan's basis; None if that is no feasible plan."""
    basis = plan.basis
    if basis is None:
        return None
    num_tokens, tokens = problem.vocab_size, plan.tokens.tolist()
    law = problem.law(exact=True)
    residual = [*law.target, *support_masses(law, plan)]
    slack = [*basis.token_slacks.tolist(), *basis.support_slacks.tolist()]

    supports = (num_tokens + plan.arc_support).tolist()
    arcs_at: list[set[int]] = [set() for _ in residual]
    for arc in np.flatnonzero(basis.arcs).tolist():
        arcs_at[tokens[arc]].add(arc)
        arcs_at[supports[arc]].add(arc)
    masses = [Fraction(0)] * len(tokens)
    leaves = [node for node, arcs in enumerate(arcs_at) if len(arcs) == 1 and not slack[node]]
    while leaves:
        node = leaves.pop()
        if len(arcs_at[node]) != 1:
            continue
        arc = arcs_at[node].pop()
        mass = residual[node]
        other = supports[arc] if node < num_tokens else tokens[arc]
        arcs_at[other].discard(arc)
        residual[node] = Fraction(0)
        residual[other] -= mass
        masses[arc] = mass
        if mass < 0 or residual[other] < 0:
            return None
        if len(arcs_at[other]) == 1 and not slack[other]:
            leaves.append(other)
    return None if any(arcs_at) else masses


def integer_flow_masses(problem: TransportProblem, plan: TransportPlan) -> list[Fraction] | None:
    """Exact masses, numerators / denominator, or None unless that plan is exactly feasible."""
    numerators, scale = plan.numerators, plan.denominator
    if numerators is None or numerators.min(initial=0) < 0:
        return None

    flow = numerators.tolist()  # Python integers: no sum can overflow
    tokens = plan.tokens.tolist()
    bounds = plan.offsets.tolist()
    by_token = [0] * problem.vocab_size
    for i, x in zip(tokens, flow, strict=True):
        by_token[i] += x
    if any(x > scale * p for x, p in zip(by_token, problem.exact_target, strict=True)):
        return None

    allowed_masses = support_masses(problem.law(exact=True), plan)
    for (start, stop), allowed in zip(pairwise(bounds), allowed_masses, strict=True):
        if sum(flow[start:stop]) > scale * allowed:
            return None
    return [Fraction(x, scale) for x in flow]


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

    def tables(self) -> list[Table]:
        """Table with a line on what was found, and how sure it is."""
        columns = [
            Column("method", is_text=True),
            Column("acceptance_rate", "acceptance rate", "{0:.9g}"),
            Column("status", of=lambda found: str(found.status), is_text=True),
            Column("lower_bound", "at least", "{0:.9g}"),
            Column("upper_bound", "at most", "{0:.9g}"),
            Column("solve_seconds", "seconds", "{0:.3g}"),
            Column("variant", is_text=True),
        ]
        return [Table("the optimal acceptance rate", columns, [self])]

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
