r"""Most drafts that any lossless rule can accept from a small tree, between two bounds.

With :math:`m(w)` the probability that the output begins with the accepted drafts w,

.. math:: \max \sum_{w \ne ()} m(w) \quad\text{s.t.}\quad m(wy) \le p(y|w)\, m(w), \qquad
          m(A) \le \Pr(\text{the tree meets } A)

for every antichain A of texts; m(()) = 1. The stop node has law :math:`m(w) - \sum_y m(wy)`, and a
transport of trees to stop nodes inside them exists iff every ancestor-closed set has at least the
probability of the trees inside it: Hall's condition, whose complements are the antichains.

There are far too many antichains to write down. Prices :math:`\pi \ge 0` on the texts, with
:math:`\Pi(w)` their sum on the way to w, give an upper bound: the mean of the dearest text
of a tree, and what the target earns that stops when it likes,

.. math:: \operatorname{E} \max_{w \in T} \Pi(w)
          + \max_{\text{stopping}} \operatorname{E} \sum_{\text{passed } w} (1 - \pi(w)).

The chance that a tree meets a set is submodular, so the first term is greedy (Edmonds 1970): texts
in descending order of price, each with the chance to be the first in the tree. The level sets of
:math:`\Pi` are antichains, rows of a programme from above; those chances are a way to stop, a
column of a programme from below. Each programme prices the texts for the other.

Texts up to a length are numbered level by level.

At one node, the largest mean value that drafts of two values can bring has a formula. K independent
drafts from q; m1 of them are worth :math:`v_1`, the other m2 are worth :math:`v_2 < v_1`. With
:math:`d = v_1 - v_2`, :math:`n = \lceil v_1 / d \rceil` and :math:`f = v_1 - (n - 1) d`,

.. math:: \mathrm{OPT} = f\, C_n + (d - f)\, C_{n-1}, \qquad
          C_n = \min_{1 = a_0 \ge a_1 \ge \dots \ge a_n} \sum_{j=1}^n
                \bigl[ P(a_j) + 1 - a_j^{m_1} a_{j-1}^{m_2} \bigr],

P(a) the target mass of the tokens of lowest p/q with draft mass a: nested prefixes instead of one.
The proof is in the documentation, "Several steps".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress, product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import SUM_TOLERANCE, Flags, Floats, Integers, Text, Vector
from mdsd_opt.base.checked import checked_amount, checked_tolerance, floats
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.base.frames import Column, Result
from mdsd_opt.drafts import SchemeMaker, count_power, readable, scheme_maker
from mdsd_opt.errors import (
    InvalidDistribution,
    InvalidInput,
    ProblemTooLarge,
    SolverError,
    UnsupportedScheme,
)
from mdsd_opt.problem import Status
from mdsd_opt.trees.recursive_rejection import ratio_order
from mdsd_opt.trees.topology import Place, Topology, checked_topology

Laws = Callable[[Text], Floats]

#: Most texts: V = 16, three levels.
MAX_TEXTS = 5_000

#: Most draft tuples of one node, and of all nodes.
MAX_TUPLES = 20_000
MAX_ALL_TUPLES = 2_000_000


class TextTree:
    """All texts up to a length; the root, 0, is the empty one.

    Their number N is `size`; more than 5,000 are `ProblemTooLarge`. `levels`, shape (depth + 2,),
    is where each level begins, and the end; `level_of` and `parent` have shape (N,), as has `p`,
    the probability of the last token after the others under the target.
    """

    def __init__(self, target: Laws, depth: int) -> None:
        first = Distribution.of(target(()), "the target's first law").values
        self.vocab_size = first.size
        count = sum(count_power(self.vocab_size, n) for n in range(min(depth, 64) + 1))
        if count > MAX_TEXTS or depth > 64:
            raise ProblemTooLarge(
                f"V = {self.vocab_size} and depth {depth} make {readable(count)} texts, over the "
                f"limit of {MAX_TEXTS:,}: take a smaller vocabulary or a shallower tree"
            )
        sizes = self.vocab_size ** np.arange(depth + 1)
        self.depth, self.size = depth, int(count)
        self.levels: Integers = np.concatenate([[0], np.cumsum(sizes)])
        self.level_of: Integers = np.repeat(np.arange(depth + 1), sizes)
        number = np.arange(self.size)
        inside = number - self.levels[self.level_of]
        self.parent: Integers = self.levels[self.level_of - 1] + inside // self.vocab_size
        self.parent[0] = 0
        what = "the target's law after "
        laws = (Distribution.of(target(w), f"{what}{w}").values for w in self.inner())
        self.p: Vector = np.concatenate([[1.0], *laws])

    def inner(self) -> Iterator[Text]:
        """All texts but those of the last level, in their order."""
        levels = (product(range(self.vocab_size), repeat=n) for n in range(self.depth))
        return chain.from_iterable(levels)

    def level(self, n: int) -> slice:
        """Slice of the texts of n tokens."""
        return slice(int(self.levels[n]), int(self.levels[n + 1]))

    def summed_up(self, values: Vector) -> Vector:
        """Sum over each text and all that begin with it."""
        total = values.copy()
        for n in range(self.depth, 0, -1):
            total[self.level(n - 1)] += self.over_next(total[self.level(n)])
        return total

    def summed_down(self, values: Vector) -> Vector:
        """Sum over each text and all texts that it begins with."""
        total = values.copy()
        for n in range(1, self.depth + 1):
            here = self.level(n)
            total[here] += total[self.parent[here]]
        return total

    def over_next(self, values: Vector) -> Vector:
        """Sum over the last token, of the values of one level."""
        return values.reshape(-1, self.vocab_size).sum(axis=1)

    def outermost(self, inside: Flags) -> Integers:
        """Texts of a set, closed under continuation, that begin with no other text of it."""
        return np.flatnonzero(inside & ~inside[self.parent])


class RandomTrees:
    r"""Law of the trees of drafts, coinciding draws included.

    A tree misses a set of texts with :math:`m_a(w)`, by the place a that follows w: the mean over
    draws y of the product of :math:`m_b(w y_b)` over the drafts b of a whose tokens are new; 0 for
    w in the set. Where draws that coincide are merged, the tree is the union of independent ones:
    the product over all b of means, so that a node has as many tuples as tokens.

    Raises `UnsupportedScheme` for merged drafts that are not independent draws from one law, and
    `ProblemTooLarge` for more than 20,000 draft tuples of a node, or 2,000,000 of all.
    """

    def __init__(self, texts: TextTree, draft: Laws, topology: Topology, make: SchemeMaker) -> None:
        self._texts, self._merges, counts = texts, topology.merges, topology.num_drafts
        if topology.merges:
            random = make(draft(()), 1).random_draws
            if random is None or not random.is_replaced:
                raise UnsupportedScheme(
                    f"{topology.name} merges draws that coincide: its bounds are for drafts "
                    "with_replacement"
                )
            counts = dict.fromkeys(counts, 1)  # as if each had a node to itself
        widest = max(counts.values())
        tuples = count_power(texts.vocab_size, widest)
        pairs = {(len(place), count) for place, count in counts.items()}
        total = sum(
            texts.vocab_size**n * count_power(texts.vocab_size, count) for n, count in pairs
        )
        if tuples > MAX_TUPLES or total > MAX_ALL_TUPLES:
            raise ProblemTooLarge(
                f"V = {texts.vocab_size} and {widest} drafts after a node make {readable(tuples)} "
                f"draft tuples, {readable(total)} in all, over the limits of {MAX_TUPLES:,} and "
                f"{MAX_ALL_TUPLES:,}: take fewer drafts"
            )
        rows = {count: n for n, count in enumerate(sorted(set(counts.values())))}
        self._parts, self._below, self._num_misses = _parts(topology, texts, rows)
        self._starts = np.zeros((len(rows), texts.size), np.int64)
        self._counts = np.zeros((len(rows), texts.size), np.int64)
        tokens: list[NDArray[np.int32]] = []
        weights: list[Vector] = []
        start = 0
        for level, count in sorted(pairs):
            below = product(range(texts.vocab_size), repeat=level)
            for number, text in enumerate(below, start=int(texts.levels[level])):
                draws, law = _tuples(make(draft(text), count).tuple_law(), widest)
                self._starts[rows[count], number] = start
                self._counts[rows[count], number] = law.size
                start += law.size
                tokens.append(draws)
                weights.append(law)
        self._tokens, self._weights = np.concatenate(tokens), np.concatenate(weights)

    def first_met(self, order: Integers) -> Vector:
        """Chance of each text to be the first of an order in a tree; the rest is the root's."""
        from mdsd_opt.trees.tree_kernels import first_met

        texts = self._texts
        chances = np.zeros(texts.size)
        chances[0] = first_met(
            order, texts.vocab_size, texts.levels, texts.level_of, self._parts, self._below,
            self._starts, self._counts, self._tokens, self._weights, np.ones(self._num_misses),
            np.zeros(texts.size, np.bool_), chances, self._merges,
        )  # fmt: skip
        return chances


def _parts(
    topology: Topology, texts: TextTree, rows: dict[int, int]
) -> tuple[Integers, Integers, int]:
    """Tables `parts` and `below` that `first_met` takes, and the number of misses."""
    places: list[Place] = [()]
    for place in places:
        places.extend((*place, rank) for rank in range(topology.drafts_at(place)))
    known: dict[tuple[int, ...], int] = {}  # by the level and the parts after the drafts
    part_of: dict[Place, int] = {}
    table: list[list[int]] = []
    below: list[int] = []
    start = 0
    for place in reversed(places):
        count = topology.drafts_at(place)
        after = [part_of[*place, rank] for rank in range(count)]
        part_of[place] = known.setdefault((len(place), *after), len(table))
        if part_of[place] == len(table):
            table.append([len(place), count, len(below), start, rows.get(count, 0)])
            below += after
            start += texts.vocab_size ** len(place)
    return np.array(table), np.array(below, np.int64), start


def _tuples(law: tuple[Any, Vector], width: int) -> tuple[NDArray[np.int32], Vector]:
    """Possible draws, a repeated one as -1, padded to the width; and their probabilities."""
    draws, weights = law
    possible = weights > 0.0
    draws = np.array(draws[possible], np.int32)
    for later in range(1, draws.shape[1]):
        drawn_before = (draws[:, :later] == draws[:, later : later + 1]).any(axis=1)
        draws[drawn_before, later] = -1
    padded = np.full((len(draws), width), -1, np.int32)
    padded[:, : draws.shape[1]] = draws
    return padded, np.asarray(weights[possible], np.float64)


#: Most level sets that one price adds, and most steps to the solution of one programme.
_MOST_SETS, _MOST_STEPS = 40, 100_000


@dataclass(frozen=True, slots=True)
class TreeBound(Result):
    """Mean number of accepted drafts of one step, by the best lossless rule, in bounds.

    Attributes
    ----------
    lower, upper : float
        Value that a rule reaches, and value that none exceeds.
    status : Status
        OPTIMAL if they meet up to the tolerance, else LIMIT.
    stages : tuple of (float, float)
        Both bounds after every stage.
    """

    lower: float
    upper: float
    status: Status
    stages: tuple[tuple[float, float], ...]

    columns: ClassVar = (
        "lower", "upper", "gap", Column("status", of=lambda bound: str(bound.status), holds=str),
        "stages",
    )  # fmt: skip

    @property
    def gap(self) -> float:
        return self.upper - self.lower


def tree_bound(
    target: Laws,
    draft: Laws,
    topology: Topology,
    scheme: str | SchemeMaker = "with_replacement",
    *,
    tolerance: float = 1e-9,
    time_limit: float | None = 60.0,
    max_stages: int | None = None,
) -> TreeBound:
    """Bounds for the mean number of accepted drafts of one step.

    Parameters
    ----------
    target, draft : callable
        Laws of the next token after some tokens, shape (V,): p and q, everywhere.
    topology : Topology
        Even or not; coinciding draws are one node, at the place of the first, or of all of them
        where the topology merges them (`whole_paths`).
    scheme : str or callable
    tolerance : float
        Gap at which it stops.
    time_limit : float, optional
        Seconds, after which the bounds so far are returned; None for no limit.
    max_stages : int, optional
        Stages, after which they are returned, on any machine the same; each solves two programmes.

    Raises
    ------
    ProblemTooLarge
        More than 5,000 texts (V = 16, three levels), or too many draft tuples.

    Notes
    -----
    Neither bound trusts the solver of the programmes: the upper one is computed from prices, the
    lower one from a way to stop, both up to rounding of some 1e-12.
    """
    checked_tolerance("tolerance", tolerance, or_zero=True)
    limit = np.inf if time_limit is None else checked_amount("time_limit", time_limit)
    most = np.inf if max_stages is None else checked_amount("max_stages", max_stages)
    deadline = time.perf_counter() + limit
    texts = TextTree(target, checked_topology(topology).depth)
    trees = RandomTrees(texts, draft, topology, scheme_maker(scheme))
    search = _TreeSearch(texts, trees, deadline)
    while search.gap > tolerance and time.perf_counter() < deadline:
        if len(search.stages) >= most or not search.advance():
            break
    status = Status.OPTIMAL if search.gap <= tolerance else Status.LIMIT
    return TreeBound(min(search.lower, search.upper), search.upper, status, tuple(search.stages))


def tree_optimum(
    target: Laws, draft: Laws, topology: Topology, scheme: str | SchemeMaker = "with_replacement"
) -> float:
    """Largest mean number of accepted drafts of one step.

    Parameters
    ----------
    target, draft, topology, scheme
        As for `tree_bound`.

    Raises
    ------
    ProblemTooLarge
        As for `tree_bound`.
    SolverError
        The bounds of `tree_bound` did not meet within 1e-9 in a minute: it tells how far they came.

    Notes
    -----
    A rule that sees the laws at the nodes of its tree only may fall short of it.
    """
    bound = tree_bound(target, draft, topology, scheme)
    if bound.status is not Status.OPTIMAL:
        raise SolverError(
            f"the optimum of the tree lies between {bound.lower:.9f} and {bound.upper:.9f}, not "
            "known to 1e-9 after a minute: take these bounds, from tree_bound"
        )
    return bound.upper


class _TreeSearch:
    """Search by two programmes that price texts for one another, with the best bounds so far."""

    def __init__(self, texts: TextTree, trees: RandomTrees, deadline: float) -> None:
        self._texts, self._trees = texts, trees
        self._above, self._below = FromAbove(texts, deadline), FromBelow(texts, deadline)
        self.lower, self.upper = 0.0, float(texts.depth)
        self.stages: list[tuple[float, float]] = []
        self._learn(np.ones(texts.size))

    @property
    def gap(self) -> float:
        return self.upper - self.lower

    def advance(self) -> bool:
        """Run one stage; return False if there is nothing to go on from.

        Where one programme was not solved, which chances near the solver's tolerance may do, the
        other one goes on: its prices are rows and columns for both.
        """
        points = []
        from_below = self._below.solve()
        if from_below is not None:
            reach, prices = from_below
            self.lower = max(self.lower, self._reached(reach))
            points.append(prices)
        from_above = self._above.solve()
        if from_above is not None:
            points.append(from_above)
        if len(points) == 2:
            points.append((points[0] + points[1]) / 2)
        for prices in points:
            self._learn(prices)
        if not points:
            return False
        self.stages.append((self.lower, self.upper))
        return True

    def _learn(self, prices: Vector) -> None:
        """Evaluate a price: a bound, rows for one programme and a column for the other."""
        texts = self._texts
        prices = np.maximum(prices, 0.0)
        prices[0] = 0.0
        sums = texts.summed_down(prices)
        number = np.arange(1, texts.size)
        order = number[np.lexsort((number, -texts.level_of[1:], -sums[1:]))]
        chances = self._trees.first_met(order)
        self.upper = min(self.upper, float(chances @ sums) + self._earned(1.0 - prices))
        self._below.add(texts.summed_up(chances))
        self._add_level_sets(sums[order], order, chances)

    def _add_level_sets(self, falling: Vector, order: Integers, chances: Vector) -> None:
        ends = np.flatnonzero(np.append(np.diff(falling) < -1e-12, True) & (falling > 1e-12))
        if ends.size > _MOST_SETS:
            ends = ends[np.linspace(0, ends.size - 1, _MOST_SETS).astype(np.int64)]
        met = np.cumsum(chances[order])
        inside = np.zeros(self._texts.size, np.bool_)
        start = 0
        for end in ends.tolist():
            inside[order[start : end + 1]] = True
            start = end + 1
            self._above.add(self._texts.outermost(inside), float(met[end]))

    def _earned(self, rewards: Vector) -> float:
        """Mean reward of texts that follow the target and are stopped at the best time."""
        texts, worth = self._texts, rewards.copy()
        worth[0] = 0.0
        for n in range(texts.depth, 0, -1):
            here = texts.level(n)
            worth[texts.level(n - 1)] += texts.over_next(texts.p[here] * np.maximum(worth[here], 0))
        return float(worth[0])

    def _reached(self, reach: Vector) -> float:
        """Mean number of drafts accepted by a rule that passes on no more than `reach` allows."""
        texts, passed = self._texts, np.ones(self._texts.size)
        for n in range(1, texts.depth + 1):
            here = texts.level(n)
            passed[here] = np.minimum(texts.p[here] * passed[texts.parent[here]], reach[here])
        return float(passed[1:].sum())


#: Number of rounds that a row or column is kept without being used.
_PATIENCE = 12


class _Programme:
    """Linear programme of m for all texts but the root, with rounds since each row was used."""

    def __init__(self, texts: TextTree, deadline: float) -> None:
        from scipy.sparse import csr_array, eye_array

        self._deadline = deadline
        self._size = size = texts.size - 1
        parents, p = texts.parent[1:] - 1, texts.p[1:]
        below = np.flatnonzero(parents >= 0)
        passed: Any = csr_array((p[below], (below, parents[below])), shape=(size, size))
        self._flow = eye_array(size, format="csr") - passed  # m(wy) - p(y|w) m(w) <= 0
        self._flow_bounds = np.where(parents >= 0, 0.0, p)
        self._idle: list[int] = []

    def _solved(self, objective: Vector, **programme: Any) -> Any | None:
        """Result of HiGHS; None if there is none by the deadline.

        Interior points are tried first: the simplex method may stall on chances that are very
        small.
        """
        from scipy.optimize import linprog

        for method in ("highs-ipm", "highs-ds"):
            seconds = self._deadline - time.perf_counter()
            options = {"maxiter": _MOST_STEPS, "time_limit": max(seconds, 1e-3)}
            solution = linprog(objective, **programme, method=method, options=options)
            if solution.status == 0:
                return solution
        return None

    def _kept(self, used: Vector) -> list[bool]:
        idle = [0 if use > 1e-12 else n + 1 for n, use in zip(self._idle, used, strict=True)]
        self._idle = [n for n in idle if n <= _PATIENCE]
        return [n <= _PATIENCE for n in idle]


class FromAbove(_Programme):
    """Programme with the antichains found so far: every solution prices the texts."""

    def __init__(self, texts: TextTree, deadline: float) -> None:
        super().__init__(texts, deadline)
        self._rows: dict[tuple[int, ...], float] = {}

    def add(self, antichain: Integers, chance: float) -> None:
        """Add the row that bounds m of an antichain by the chance that a tree meets it."""
        key = tuple(antichain.tolist())
        if key not in self._rows:
            self._rows[key] = chance
            self._idle.append(0)

    def solve(self) -> Vector | None:
        """Prices, shape (N,); None if the programme was not solved."""
        from scipy.sparse import csr_array, vstack

        lengths = [len(row) for row in self._rows]
        columns = np.array([text - 1 for row in self._rows for text in row], np.int64)
        matrix = csr_array(
            (np.ones(columns.size), columns, np.cumsum([0, *lengths])),
            shape=(len(lengths), self._size),
        )
        solution = self._solved(
            -np.ones(self._size),
            A_ub=vstack([self._flow, matrix]).tocsr(),
            b_ub=np.concatenate([self._flow_bounds, list(self._rows.values())]),
        )
        if solution is None:
            return None
        duals = -solution.ineqlin.marginals[self._size :]
        self._rows = dict(compress(self._rows.items(), self._kept(duals)))
        return np.concatenate([[0.0], duals @ matrix])


class FromBelow(_Programme):
    """Programme that mixes the ways to stop found so far: m is at most what a mixture reaches."""

    def __init__(self, texts: TextTree, deadline: float) -> None:
        super().__init__(texts, deadline)
        self._columns: list[Vector] = []

    def add(self, reach: Vector) -> None:
        """Add a way to stop, by the probabilities that it stops at a text or below, shape (N,)."""
        self._columns.append(reach)
        self._idle.append(0)

    def solve(self) -> tuple[Vector, Vector] | None:
        """Probabilities that the best mixture reaches, and prices, each of shape (N,)."""
        from scipy.sparse import csr_array, eye_array, hstack, vstack

        size, count = self._size, len(self._columns)
        reach = np.array(self._columns)
        mixture = csr_array(-reach[:, 1:].T)
        solution = self._solved(
            np.concatenate([-np.ones(size), np.zeros(count)]),
            A_ub=vstack(
                [
                    hstack([self._flow, csr_array((size, count))]),
                    hstack([eye_array(size), mixture]),
                ]
            ).tocsr(),
            b_ub=np.concatenate([self._flow_bounds, np.zeros(size)]),
            A_eq=csr_array(np.concatenate([np.zeros(size), np.ones(count)])[None]),
            b_eq=[1.0],
        )
        if solution is None:
            return None
        shares = np.maximum(solution.x[size:], 0.0)
        prices = np.concatenate([[0.0], -solution.ineqlin.marginals[size:]])
        self._columns = list(compress(self._columns, self._kept(shares)))
        return shares @ reach / shares.sum(), prices


#: Most nested prefixes: they are many where the values are nearly the same.
MAX_PREFIXES = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class ValueBound(Result):
    r"""The optimum, and a proof that nothing brings more.

    Attributes
    ----------
    optimum : float
        Largest mean value of the draft that is passed.
    prices : ndarray, shape (V,)
        y >= 0: the optimum is :math:`\sum_i p_i y_i + E \max_k (v_k - y_{X_k})_+`, which is an
        upper bound for any y.
    """

    optimum: float
    prices: Vector

    columns: ClassVar = (
        "optimum", Column("prices", of=lambda bound: bound.prices.tolist(), holds=list[float]),
    )  # fmt: skip


def value_bound(target: Vector, draft: Vector, values: Sequence[float]) -> ValueBound:
    """Largest mean value of the draft that a lossless rule passes at one node.

    Parameters
    ----------
    target : array_like, shape (V,)
        p, or r p for a node that is passed with probability r.
    draft : array_like, shape (V,)
        q, from which K drafts are drawn independently.
    values : sequence of float
        Values of the drafts, one or two different ones; see `place_values`.

    Raises
    ------
    InvalidDistribution
        The draft is no distribution, or the target none of a mass up to one.
    InvalidInput
        No values, negative ones, or more than two different ones.
    ProblemTooLarge
        Two values so near to one another that it takes more than 10,000 prefixes.

    Notes
    -----
    O(V log V), and O(V) for each of 2 v_1 / (v_1 - v_2) prefixes.
    """
    p, q = floats(target, "target"), Distribution.of(draft, "draft").values
    if p.shape != q.shape or not p.min() >= 0.0 or p.sum() > 1.0 + SUM_TOLERANCE:
        raise InvalidDistribution(
            f"target has shape {p.shape} and sum {p.sum():.6g}: give r p of the draft's {q.size} "
            "tokens, r from 0 to 1"
        )
    worths, counts = np.unique(floats(values, "values"), return_counts=True)
    if not 1 <= worths.size <= 2 or not (worths[0] >= 0.0 and worths[-1] < np.inf):
        raise InvalidInput(
            f"the drafts have {worths.size} different values, from {worths.min(initial=0)} on: "
            "give one or two, at least 0"
        )
    best, many = float(worths[-1]), int(counts[-1])
    other, few = (float(worths[0]), int(counts[0])) if worths.size == 2 else (0.0, 0)
    step = best - other
    prices = np.zeros_like(p)
    if best == 0.0:
        return ValueBound(0.0, prices)
    order = ratio_order(p, q)
    a = np.minimum(np.concatenate([[0.0], np.cumsum(q[order])]), 1.0)
    masses = np.concatenate([[0.0], np.cumsum(p[order])])
    if best > MAX_PREFIXES * step:
        raise ProblemTooLarge(
            f"values {other} and {best} are so near that they take over {MAX_PREFIXES:,} prefixes: "
            "give the same value to all"
        )
    length = int(np.ceil(best / step - 1e-12))
    first = best - (length - 1) * step
    total = 0.0
    for width, count in ((first, length), (step - first, length - 1)):
        if width > 0.0 and count > 0:
            value, ends = _shortest_chain(a, masses, many, few, count)
            total += width * value
            for end in ends:
                prices[order[:end]] += width
    return ValueBound(total, prices)


def _shortest_chain(
    a: Vector, masses: Vector, many: int, few: int, count: int
) -> tuple[float, list[int]]:
    """Minimum over chains of prefixes, and the lengths of the prefixes.

    That the prefixes are nested need not be asked for: by the rearrangement inequality no order
    of the same numbers is better.
    """
    x, y = a**many, a**few
    total = masses + 1.0 - x
    backwards: list[Integers] = []
    for _ in range(count - 1):
        before = _lowest(y, total, x)
        backwards.append(before)
        total = masses + 1.0 + total[before] - x * y[before]
    at = int(total.argmin())
    value, ends = float(total[at]), [at]
    for before in reversed(backwards):
        at = int(before[at])
        ends.append(at)
    return value, ends


def _lowest(y: Vector, f: Vector, slopes: Vector) -> Integers:
    """Places where f - slope y is least, for ascending slopes: tangents of the lower hull."""
    hull: list[int] = []
    for i in range(y.size):
        if hull and y[i] <= y[hull[-1]]:  # no wider than the one before: the lower one stays
            if f[i] >= f[hull[-1]]:
                continue
            hull.pop()
        while len(hull) > 1:
            left, middle = hull[-2:]
            rise, run = f[middle] - f[left], y[middle] - y[left]
            if rise * (y[i] - y[middle]) < (f[i] - f[middle]) * run:  # below the line to i
                break
            hull.pop()
        hull.append(i)
    corners = np.array(hull)
    edges = np.diff(f[corners]) / np.diff(y[corners])
    return corners[np.searchsorted(edges, slopes)]
