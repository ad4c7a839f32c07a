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
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Integers, Vector
from mdsd_opt.base.checked import checked_amount, checked_tolerance
from mdsd_opt.drafts import SchemeMaker, scheme_maker
from mdsd_opt.errors import SolverError
from mdsd_opt.problem import Status
from mdsd_opt.trees.text_tree import Laws, RandomTrees, TextTree
from mdsd_opt.trees.topology import Topology, checked_topology

#: Most level sets that one price adds, and most steps to the solution of one programme.
_MOST_SETS, _MOST_STEPS = 40, 100_000


@dataclass(frozen=True, slots=True)
class TreeBound:
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
    search = _Search(texts, trees, deadline)
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


class _Search:
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
