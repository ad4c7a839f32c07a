"""Tree of a session's draws, in which the draws after the same questions are explored once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np

from mdsd_opt.auditing.driving import DrawTree, Tape
from mdsd_opt.auditing.driving.draw_tree import Budget, Node, Run
from mdsd_opt.auditing.driving.tape import CategoryDraw, Draw, Tail, UniformDraw, Value
from mdsd_opt.auditing.texts.rounds import Rounds
from mdsd_opt.auditing.texts.toys import Text

#: Number of random runs that a known node must predict before another is taken to be the same.
_MERGE_TRIALS = 8


class Context(NamedTuple):
    """Questions of a round before a draw, and the number of draws before the round."""

    asked: tuple[tuple[str, Text, int], ...]
    start: int


class SessionTape(Tape):
    """A tape that hears the questions to the models.

    Once a round begins after as many tokens as are compared, draws are random numbers that are not
    listed. If they matter nevertheless, no tree foretells the outcome.
    """

    max_draws = 200

    def __init__(self, length: int) -> None:
        self._length = length
        self._rng = np.random.default_rng(0)
        super().__init__()

    def restart(self, values: Any, tail: Tail) -> None:
        super().restart(values, tail)
        self.rounds = Rounds()
        self.contexts: list[Context] = []

    def heard(self, model: str, text: Text) -> None:
        """Record that a model was asked about a text."""
        self.rounds.hear(model, text, len(self.seen))

    def _next(self, draw: Draw) -> Value | None:
        current = self.rounds.all[-1]
        if current.asked and len(current.asked[0][1]) >= self._length:
            return self._unlisted(draw)
        self.contexts.append(Context(tuple(current.asked), current.start))
        return super()._next(draw)

    def _unlisted(self, draw: Draw) -> Value:
        if isinstance(draw, UniformDraw):
            return int(self._rng.integers(draw.grid.size))
        if isinstance(draw, CategoryDraw):
            return int(self._rng.choice(len(draw.weights), p=draw.weights))
        return tuple(self._rng.standard_exponential(draw.width).tolist())


class SessionTree(DrawTree):
    """A `DrawTree` of whole texts; `merges` puts the same rounds after the same text together.

    They are the same if all questions and draws since the round began are, and if the known one
    foretells random runs of the other. A session may still hold what no question shows, and a rare
    difference stays hidden: where a merged tree gives a law that is wrong, an unmerged one has to
    confirm it.

    Attributes
    ----------
    num_merged : int
        Nodes that were found to be known.
    """

    points = 9

    def __init__(self, run: Run, checks: int, length: int, merges: bool, budget: Budget) -> None:
        self._merges = merges
        self._contexts: dict[tuple[Value, ...], Context] = {}
        self._nodes: defaultdict[Hashable, list[Node]] = defaultdict(list)
        self.num_merged = 0
        self._session_tape = SessionTape(length)
        super().__init__(run, checks, self._session_tape, budget)

    def _run(self, values: tuple[Value, ...], tail: Tail) -> tuple[Hashable, tuple[Draw, ...]]:
        found = super()._run(values, tail)
        if tail is self._tails[0] and len(found[1]) > len(values):
            self._contexts[values] = self._session_tape.contexts[len(values)]
        return found

    def _explored(self, values: tuple[Value, ...]) -> Node:
        if not values:
            self._nodes.clear()  # of a tree that was given up
        seen = self._at(values, 0)[1]
        if not self._merges or len(seen) <= len(values):
            return super()._explored(values)
        asked, start = self._contexts[values]
        key = asked, values[start:], seen[len(values)]
        for known in self._nodes[key]:
            if self._foretells(known, values):
                self.num_merged += 1
                return known
        node = super()._explored(values)
        self._nodes[key].append(node)
        return node

    def _foretells(self, known: Node, values: tuple[Value, ...]) -> bool:
        """Whether a known node predicts random runs after these values."""
        for _ in range(_MERGE_TRIALS):
            node, draws, more = known, list[Draw](), list[Value]()
            while node.draw is not None:
                value, n = self._picked(node, None)
                draws.append(node.draw)
                more.append(value)
                node = node.children[n]
            outcome, seen = self._run((*values, *more), Tail(2))
            if (outcome, seen[len(values) :]) != (node.outcome, tuple(draws)):
                return False
        return True

    def _paths(self, node: Node, path: list[int]) -> Iterator[list[int]]:
        """Paths to leaves that together visit every node."""
        return self._fresh_paths(node, path, set())

    def _fresh_paths(self, node: Node, path: list[int], met: set[int]) -> Iterator[list[int]]:
        if id(node) in met:
            while node.draw is not None:
                path, node = [*path, 0], node.children[0]
            yield path
            return
        met.add(id(node))
        if node.draw is None:
            yield path
        for n, child in enumerate(node.children):
            yield from self._fresh_paths(child, [*path, n], met)
