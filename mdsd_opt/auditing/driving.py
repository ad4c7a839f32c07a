r"""Driving: the law of a callable's outcome is found by calling it at chosen random numbers.

As a function of each uniform that it draws, a verifier is a step function: accept below a
threshold, one token of an inverse CDF after the other. The steps are found by bisection, one draw
after the other, and what follows is explored once for each step. A draw from known weights
(`multinomial`, `bernoulli`) branches without bisection, and a row of exponentials of which
:math:`\arg\max_i w_i / e_i` counts is one branch whose weights are found by bisection.

What a value of a draw leads to can only be seen with some values for the draws that follow: these
continuations are random ones, all draws at their lower and all at their upper end, and every
counterexample that later turned up: the tree is tried at random and near the ends of its steps,
and is built again with each run that it does not foretell as one more continuation, and its numbers
as points to begin from. The law is exact up to these checks: a step that none of them has met stays
hidden.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from mdsd_opt.auditing.randomness import served
from mdsd_opt.auditing.randomness.sources import DOUBLE, Grid
from mdsd_opt.auditing.tape import (
    CategoryDraw,
    Draw,
    RaceDraw,
    Tail,
    Tape,
    UniformDraw,
    Value,
)
from mdsd_opt.base.arrays import Vector
from mdsd_opt.errors import InvalidInput

#: Calls the engine with the tape as its source, and returns what came of it.
Run = Callable[[Tape], Hashable]

#: Outcome and draws for each continuation; only the first one if nothing more is drawn.
Signature = tuple[tuple[Hashable, tuple[Draw, ...]], ...]

#: Points of a grid on both sides of each step that was found, in order.
Edges = dict[Grid, list[int]]

#: Steps are found to so many bits; those of narrower types, to their own grid.
_RESOLUTION = 45

#: Position inside each step at which the later draws are explored.
_INSIDE = 0.421

#: Number of runs near the ends of its steps for each leaf.
_CORNERS = 4

#: Number of counterexamples that may become continuations.
_MAX_REFINEMENTS = 12

#: Most calls for one part of a law, as a multiple of its share.
_LONGEST = 4


class Undrivable(InvalidInput):
    """An engine's law cannot be found by driving it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"verify cannot be driven through chosen uniforms: {reason}. Use method='sampling'."
        )


class OutOfTime(Undrivable):
    """Driving has reached the time limit of the audit, which is not one of the engine's own."""


class Budget:
    """Number of calls that driving one law may take, and the time at which it ends in any case.

    `begin` announces each of the parts of a law.
    """

    def __init__(self, calls: int, deadline: float = math.inf, parts: int = 1) -> None:
        self._calls, self.deadline, self._parts = calls, deadline, parts
        self._spent = self._begun = 0
        self._limit = calls

    def renewed(self) -> Budget:
        """As many calls anew, up to the same time."""
        return Budget(self._calls, self.deadline, self._parts)

    def begin(self) -> None:
        """Begin a part, if those before it do not foretell that all will take too many calls."""
        # The mean of the first ones may be too high by this much.
        if self._spent * self._parts > self._calls * (self._begun + _LONGEST):
            raise self._exceeded()
        self._begun += 1
        self._limit = min(self._calls, self._spent + _LONGEST * self._calls // self._parts)

    def _exceeded(self) -> Undrivable:
        return Undrivable(f"it needs more than {self._calls:,} calls (max_calls)")

    def spend(self) -> None:
        self._spent += 1
        if self._spent > self._limit:
            raise self._exceeded()
        if time.perf_counter() > self.deadline:
            raise OutOfTime("that takes longer than it may (seconds)")


@dataclass(frozen=True, slots=True)
class Step:
    """Values of a draw that all have the same consequences, and their probability.

    They are points of a uniform's grid, `stop` not included; of a category or a race, `start` is
    its number.
    """

    start: int
    stop: int
    share: float


@dataclass(frozen=True, slots=True)
class Leaf:
    """End of a run, where nothing more is drawn: outcome, probability, draws on the way."""

    outcome: Hashable
    mass: float
    path: tuple[tuple[Draw, Step], ...]

    @property
    def where(self) -> str:
        """Rare draws on the way here, in words; empty if there are none."""
        parts = []
        for place, (draw, step) in enumerate(self.path):
            if isinstance(draw, UniformDraw) and step.stop - step.start == 1:
                value = draw.grid.value(step.start)
                shown = "0" if value == 0 else f"{value:.17g}"
                once = f"once in 2**{draw.grid.bits} draws"
                parts.append(f"draw {place} (uniform) equal to {shown}, {once}")
        return " and ".join(parts)


@dataclass(slots=True)
class DrawNode:
    """A draw with one child for each of its steps; an outcome if there is no draw.

    The shares of the steps up to each one are `reached`.
    """

    draw: Draw | None = None
    outcome: Hashable = None
    steps: list[Step] = field(default_factory=list)
    children: list[DrawNode] = field(default_factory=list)
    reached: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.reached = [*accumulate(step.share for step in self.steps)]


class DrawTree:
    """Tree that predicts `checks` random runs: it is built again until none contradicts it.

    Its `num_checks` are the runs that it has foretold, corners included. It is `coarse` if any draw
    has less than 53 bits, any weight was found by bisection, or anything was computed in float32 by
    PyTorch: then rounding shows in the seventh digit. Steps are first looked for at the `edges` of
    other trees, to which those of this one are added. Raises `Undrivable`.
    """

    #: Number of points at which a uniform is tried before bisection.
    points = 9

    def __init__(
        self,
        run: Run,
        checks: int,
        tape: Tape,
        budget: Budget,
        seed: int,
        edges: Edges | None = None,
    ) -> None:
        self._call, self._tape, self._budget, self._seed = run, tape, budget, seed
        self._edges: Edges = {} if edges is None else edges
        self._rng = np.random.default_rng(seed)
        self._tails = [Tail(seed), Tail(seed, 0.0), Tail(seed, 1.0), Tail(seed + 1)]
        self._known: dict[tuple[tuple[Value, ...], int], tuple[Hashable, tuple[Draw, ...]]] = {}
        #: Numbers in [0, 1] of counterexamples by place: steps may lie between points of the grid.
        self._tried: defaultdict[int, list[float]] = defaultdict(list)
        self.coarse = False
        self.num_checks = 0
        with served(tape) as self._serving:
            self._run((), self._tails[0])  # what it makes once for all is made
            self._serving.check()
            self._root = self._settled(checks)
            self.coarse |= self._serving.narrow

    def _settled(self, checks: int) -> DrawNode:
        for _ in range(_MAX_REFINEMENTS + 1):
            root = self._explored(())
            counterexample = self._counterexample(root, checks)
            if counterexample is None:
                return root
            if root.draw is None and not counterexample.script:
                raise Undrivable("its outcome varied although no draw was served")
            self._tails.append(counterexample)
            for place, answer in counterexample.script.items():
                if isinstance(answer, float):
                    self._tried[place].append(answer)
        raise Undrivable("its thresholds depend on uniforms drawn before")

    @property
    def restarting(self) -> tuple[str, ...]:
        return self._serving.restarting

    def outcomes(self) -> list[Leaf]:
        """All outcomes once, likeliest first, each with the path to its heaviest leaf."""
        merged: dict[Hashable, Leaf] = {}
        for leaf in sorted(self._leaves(self._root, 1.0, ()), key=lambda leaf: -leaf.mass):
            first = merged.get(leaf.outcome)
            mass = leaf.mass + (0.0 if first is None else first.mass)
            merged[leaf.outcome] = replace(first or leaf, mass=mass)
        return list(merged.values())

    def _leaves(
        self, node: DrawNode, mass: float, path: tuple[tuple[Draw, Step], ...]
    ) -> Iterator[Leaf]:
        if node.draw is None:
            yield Leaf(node.outcome, mass, path)
            return
        for step, child in zip(node.steps, node.children, strict=True):
            yield from self._leaves(child, mass * step.share, (*path, (node.draw, step)))

    def _run(self, values: tuple[Value, ...], tail: Tail) -> tuple[Hashable, tuple[Draw, ...]]:
        self._budget.spend()
        self._tape.restart(values, tail)
        with self._serving.inside:
            outcome = self._call(self._tape)
        if self._tape.trouble:
            raise Undrivable(self._tape.trouble)
        return outcome, tuple(self._tape.seen)

    def _at(self, values: tuple[Value, ...], tail: int) -> tuple[Hashable, tuple[Draw, ...]]:
        """Outcome and draws with these values and this continuation."""
        key = (values, tail)
        if key not in self._known:
            self._known[key] = self._run(values, self._tails[tail])
        return self._known[key]

    def _signature(self, values: tuple[Value, ...]) -> Signature:
        """Value by which values of the last draw are told apart."""
        first = self._at(values, 0)
        if len(first[1]) <= len(values):  # nothing is drawn after it
            return (first,)
        return tuple(self._at(values, tail) for tail in range(len(self._tails)))

    def _explored(self, values: tuple[Value, ...]) -> DrawNode:
        outcome, seen = self._at(values, 0)
        if len(seen) <= len(values):
            return DrawNode(outcome=outcome)
        draw = seen[len(values)]
        if isinstance(draw, UniformDraw):
            steps = self._uniform_steps(values, draw)
            inside: list[Value] = [
                step.start + int(_INSIDE * (step.stop - step.start)) for step in steps
            ]
        elif isinstance(draw, CategoryDraw):
            self.coarse |= draw.rounded
            possible = [(k, share) for k, share in enumerate(draw.weights) if share > 0]
            steps = [Step(k, k + 1, share) for k, share in possible]
            inside = [step.start for step in steps]
        else:
            steps, inside = self._race_steps(values, draw)
        children = [self._explored((*values, value)) for value in inside]
        return DrawNode(draw, None, steps, children)

    def _uniform_steps(self, values: tuple[Value, ...], draw: UniformDraw) -> list[Step]:
        top = draw.grid.size - 1
        self.coarse |= draw.grid.bits < 53
        inner = (top * n // (self.points - 1) for n in range(1, self.points - 1))
        tried = (min(int(x * draw.grid.size), top) for x in self._tried[len(values)])
        points = sorted({0, 1, *inner, *tried, top - 1, top})
        signatures = [self._signature((*values, k)) for k in points]
        edges = [0]
        for (low, low_seen), (high, high_seen) in pairwise(zip(points, signatures, strict=True)):
            edges += self._changes(values, draw.grid, low, low_seen, high, high_seen)
        edges.append(draw.grid.size)
        return [Step(a, b, (b - a) / draw.grid.size) for a, b in pairwise(edges)]

    def _changes(
        self,
        values: tuple[Value, ...],
        grid: Grid,
        low: int,
        low_seen: Signature,
        high: int,
        high_seen: Signature,
    ) -> list[int]:
        resolution = _width(grid)
        if low_seen == high_seen:
            return []
        if high - low <= resolution:
            return [high]
        # One continuation in which the ends differ is enough to find a step; the others are asked
        # on both sides of it.
        tail = next(n for n, (a, b) in enumerate(zip(low_seen, high_seen, strict=False)) if a != b)
        before, after, known = low, high, self._edges.setdefault(grid, [])
        while after - before > resolution:
            first, end = bisect_right(known, before), bisect_left(known, after)
            middle = known[(first + end) // 2] if first < end else (before + after) // 2
            if self._at((*values, middle), tail) == low_seen[tail]:
                before = middle
            else:
                after = middle
        for point in {before, after}.difference(known):
            insort(known, point)
        left, right = self._signature((*values, before)), self._signature((*values, after))
        return [
            *self._changes(values, grid, low, low_seen, before, left),
            after,
            *self._changes(values, grid, after, right, high, high_seen),
        ]

    def _race_steps(
        self, values: tuple[Value, ...], draw: RaceDraw
    ) -> tuple[list[Step], list[Value]]:
        within = _range(draw)
        try:
            weights = race_weights(
                lambda row: self._signature((*values, row)), draw.width, within, self._seed
            )
        except NoRace as error:
            raise Undrivable(str(error)) from error
        if weights is None:
            return [Step(0, draw.width, 1.0)], [(within.usual,) * draw.width]
        self.coarse = True
        tokens = np.flatnonzero(weights > 0).tolist()
        steps = [Step(k, k + 1, float(weights[k])) for k in tokens]
        return steps, [winning_row(weights, k, within) for k in tokens]

    def _counterexample(self, root: DrawNode, checks: int) -> Tail | None:
        """Continuation made of the first run that the tree does not predict."""
        self.num_checks = 0
        plans: Iterator[list[int] | None] = (None for _ in range(checks))
        corners = (path for path in self._paths(root, []) for _ in range(_CORNERS))
        for plan in (*plans, *corners):
            values, outcome = self._foretold(root, plan)
            run = self._run(values, Tail(self._seed + 2))
            if run[0] != outcome or len(run[1]) != len(values):
                script = dict(enumerate(self._tape.answered))
                return Tail(self._seed + len(self._tails) + 2, script=script)
            self.num_checks += 1
        return None

    def _paths(self, node: DrawNode, path: list[int]) -> Iterator[list[int]]:
        if node.draw is None:
            yield path
        for n, child in enumerate(node.children):
            yield from self._paths(child, [*path, n])

    def _foretold(
        self, node: DrawNode, plan: list[int] | None
    ) -> tuple[tuple[Value, ...], Hashable]:
        """Values at random, or at the ends of the steps of a path, and the outcome they lead to."""
        values: list[Value] = []
        while node.draw is not None:
            chosen = None if plan is None else plan[len(values)]
            value, n = self._picked(node, chosen)
            values.append(value)
            node = node.children[n]
        return tuple(values), node.outcome

    def _picked(self, node: DrawNode, chosen: int | None) -> tuple[Value, int]:
        draw, steps = node.draw, node.steps
        if isinstance(draw, RaceDraw):
            row = self._rng.standard_exponential(draw.width)
            if len(steps) == 1:
                return tuple(row.tolist()), 0
            tokens = [step.start for step in steps]
            weights = np.zeros(draw.width)
            weights[tokens] = [step.share for step in steps]
            if chosen is not None:
                return winning_row(weights, tokens[chosen], _range(draw)), chosen
            return tuple(row.tolist()), tokens.index(int(np.argmax(weights / row)))
        n = self._chosen_by_share(node.reached) if chosen is None else chosen
        start, stop = steps[n].start, steps[n].stop
        if isinstance(draw, CategoryDraw):
            return start, n
        assert isinstance(draw, UniformDraw)
        if chosen is None:
            return int(self._rng.integers(start, stop)), n
        margin = min(_width(draw.grid) - 1, (stop - start) // 2)  # so far an end is known
        return (start + margin if self._rng.random() < 0.5 else stop - 1 - margin), n

    def _chosen_by_share(self, reached: list[float]) -> int:
        # `Generator.choice` takes longer than the call that is foretold.
        return min(bisect_right(reached, self._rng.random() * reached[-1]), len(reached) - 1)


def usual_edges(target: Vector, draft: Vector | None, rounds: int) -> Edges:
    """Where rejection of a draft in some rounds, and drawing from the laws, have their steps."""
    laws, ratios = [target], []
    if draft is not None:
        for _ in range(rounds):
            ratios.append(laws[-1][draft > 0] / draft[draft > 0])
            rest = np.maximum(laws[-1] - draft, 0.0)
            if not rest.any():
                break
            laws.append(rest / rest.sum())
        laws.append(draft)
    at = np.concatenate([*ratios, *(law.cumsum() for law in laws)])
    points = np.rint(at[(at > 0) & (at < 1)] * DOUBLE.size).astype(np.int64)
    near = _width(DOUBLE) // 2
    return {DOUBLE: np.unique(np.concatenate([points - near, points + near])).tolist()}


def _width(grid: Grid) -> int:
    """Number of points of a grid within which a step is found."""
    return 1 << max(grid.bits - _RESOLUTION, 0)


def _range(draw: RaceDraw) -> Range:
    return UNIFORM if draw.uniform else EXPONENTIAL


def driven_tree(
    run: Run, checks: int, race_width: int, budget: Budget, seed: int, edges: Edges | None = None
) -> DrawTree:
    """Tree of an engine; rows of so many uniforms are taken for races if possible.

    `Undrivable` also if the budget does not suffice.
    """
    tape = Tape(race_width)
    try:
        return DrawTree(run, checks, tape, budget, seed, edges)
    except OutOfTime:
        raise
    except Undrivable:
        if not tape.handed_out_rows:
            raise
    return DrawTree(run, checks, Tape(), budget, seed, edges)


# Weights of a race: a row of exponentials e decides by argmax_i w_i / e_i. With all others late, i
# beats j as long as e_i < e_j w_i / w_j: bisection of e_i finds the ratio. Rows stay within what
# generators return, where clamped logarithms are logarithms.

Uniforms = tuple[float, ...]

#: Maps a row to its result, in a form that can be compared.
RowSignature = Callable[[Uniforms], Any]

#: Relative width to which ratios are found: that of neighbouring numbers of float32.
_RATIO_WIDTH = 2e-8

#: Number of rows whose result the weights have to predict, random ones and near ties.
_TRIALS = 12


@dataclass(frozen=True, slots=True)
class Range:
    """Exponentials to try: very early, usual, very late.

    `comparisons` are those of a token compared with, and the earliest of the other: for tokens of
    similar weight, for a much heavier one, and for one beside which others are much heavier. What
    rounding leaves of a residual is a weight, too.
    """

    early: float
    usual: float
    late: float
    comparisons: tuple[tuple[float, float], ...]


EXPONENTIAL = Range(6e-8, 1.0, 16.0, ((1e-3, 6e-8), (1.0, 6e-8), (1e-7, 6e-12)))
#: Range for rows handed out as exp(-e) in float32, where e below 1e-5 has few digits.
UNIFORM = Range(1e-5, 6.0, 85.0, ((6.0, 1e-5),))


class NoRace(Exception):
    """The exponentials are not used as in a race."""


def race_weights(signature: RowSignature, width: int, within: Range, seed: int) -> Vector | None:
    """Shares of the tokens, shape (width,), which sum to one; None if the row decides nothing."""
    race = _Race(signature, width, within, np.random.default_rng(seed))
    return race.weights()


def winning_row(weights: Vector, token: int, within: Range) -> Uniforms:
    """A row that this token wins clearly."""
    row = _tied(weights, within)
    row[token] /= 50.0
    return tuple(row.tolist())


def _tied(weights: Vector, within: Range) -> Vector:
    """A row in which all possible tokens tie, none later than the usual time."""
    return np.where(weights > 0, weights / weights.max(), 1.0) * within.usual


class _Race:
    def __init__(
        self, signature: RowSignature, width: int, within: Range, rng: np.random.Generator
    ) -> None:
        self._signature, self._width, self._within, self._rng = signature, width, within, rng
        usual = np.full(width, within.usual)
        self._base = self._of(usual)
        self._alone = [self._of(_with(usual, i, within.early)) for i in range(width)]

    def weights(self) -> Vector | None:
        random_rows = self._rng.standard_exponential((_TRIALS, self._width))
        if all(seen == self._base for seen in self._alone):
            if any(self._of(row) != self._base for row in random_rows):
                raise NoRace("exponentials that are no race")
            return None
        w = self._measured()
        near_ties = _tied(w, self._within) * (1 + 1e-3 * self._rng.random(random_rows.shape))
        for row in (*random_rows, *near_ties):
            if self._of(row) != self._alone[int(np.argmax(w / row))]:
                raise NoRace("exponentials that are not used as argmax(w / e)")
        return w / w.sum()

    def _measured(self) -> Vector:
        """Weights relative to the heaviest token whose outcome is not the usual one."""
        first = np.array([seen == self._base for seen in self._alone])
        late = np.where(first, self._within.late, self._within.usual)
        rival = self._of(late)
        others = np.flatnonzero(~first)
        j = next((i for i in others.tolist() if self._alone[i] == rival), int(others[0]))
        w = np.zeros(self._width)
        w[j] = 1.0
        for i in np.flatnonzero(first).tolist():
            w[i] = self._ratio(i, j)
        heaviest = int(np.argmax(np.where(first, w, -1.0)))
        if w[heaviest] <= 0.0:
            raise NoRace("exponentials that are no race: no token wins where all are equal")
        for i in others.tolist():
            if i != j:
                w[i] = self._ratio(i, heaviest) * w[heaviest]
        return w

    def _ratio(self, i: int, j: int) -> float:
        within = self._within

        def wins(reference: float, e: float) -> bool:
            row = _with(np.full(self._width, within.late), j, reference)
            return self._of(_with(row, i, e)) != self._alone[j]

        is_comparable = False
        for reference, earliest in within.comparisons:
            if wins(reference, within.late * (1 - 1e-9)):  # or another token does
                continue
            is_comparable = True
            if not wins(reference, earliest):
                continue
            low, high = math.log(earliest), math.log(within.late)
            while high - low > _RATIO_WIDTH:
                middle = (low + high) / 2
                low, high = (middle, high) if wins(reference, math.exp(middle)) else (low, middle)
            return math.exp((low + high) / 2) / reference
        if not is_comparable:
            raise NoRace("weights of a race that are too far apart")
        return 0.0

    def _of(self, row: Vector) -> Any:
        return self._signature(tuple(row.tolist()))


def _with(row: Vector, place: int, value: float) -> Vector:
    changed = row.copy()
    changed[place] = value
    return changed
