"""Law of the texts that a function writes with one pair of models, found by driving it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mdsd_opt.auditing.driven_laws import CheckTally, found_law, law_of
from mdsd_opt.auditing.driving import Budget, DrawNode, DrawTree, Leaf, Run
from mdsd_opt.auditing.findings import Findings, FoundLaw
from mdsd_opt.auditing.laws import Texts
from mdsd_opt.auditing.subject import ViolationLog
from mdsd_opt.auditing.tape import CategoryDraw, Draw, Tail, Tape, UniformDraw, Value
from mdsd_opt.auditing.texts.session import Rounds, Session, Tables, log_failure, log_impossible
from mdsd_opt.auditing.texts.text_report import variations
from mdsd_opt.base.arrays import Text, Vector
from mdsd_opt.evidence import Example, Options, oddest, unseen_bias

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
    confirm it. `num_merged` counts the nodes that were known.
    """

    def __init__(
        self, run: Run, checks: int, length: int, merges: bool, budget: Budget, seed: int
    ) -> None:
        self._merges = merges
        self._contexts: dict[tuple[Value, ...], Context] = {}
        self._nodes: defaultdict[Hashable, list[DrawNode]] = defaultdict(list)
        self.num_merged = 0
        self._session_tape = SessionTape(length)
        super().__init__(run, checks, self._session_tape, budget, seed)

    def _run(self, values: tuple[Value, ...], tail: Tail) -> tuple[Hashable, tuple[Draw, ...]]:
        run = super()._run(values, tail)
        if tail is self._tails[0] and len(run[1]) > len(values):
            self._contexts[values] = self._session_tape.contexts[len(values)]
        return run

    def _explored(self, values: tuple[Value, ...]) -> DrawNode:
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

    def _foretells(self, known: DrawNode, values: tuple[Value, ...]) -> bool:
        """Whether a known node predicts random runs after these values."""
        for _ in range(_MERGE_TRIALS):
            node, draws, more = known, list[Draw](), list[Value]()
            while node.draw is not None:
                value, n = self._picked(node, None)
                draws.append(node.draw)
                more.append(value)
                node = node.children[n]
            outcome, seen = self._run((*values, *more), Tail(self._seed + 2))
            if (outcome, seen[len(values) :]) != (node.outcome, tuple(draws)):
                return False
        return True

    def _paths(self, node: DrawNode, path: list[int]) -> Iterator[list[int]]:
        """Paths to leaves that together visit every node."""
        return self._fresh_paths(node, path, set())

    def _fresh_paths(self, node: DrawNode, path: list[int], met: set[int]) -> Iterator[list[int]]:
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DrivenText(FoundLaw):
    """A law of texts, and how far it is from the target's.

    Attributes
    ----------
    law : ndarray, shape (V**length,)
        Completed by the target; it sums to less than one where calls fail.
    num_merged : int
        Nodes of the tree that were taken to be others.
    log : ViolationLog
        Impossible texts, however rare, and calls that gave none.
    """

    tables: Tables
    texts: Texts
    law: Vector
    num_checks: int
    num_merged: int
    seconds: float
    log: ViolationLog = field(default_factory=ViolationLog)
    num_calls: int = 0  # of a sample

    def findings(self, options: Options) -> Findings:
        """What the law shows."""
        return Findings(
            options=options,
            law=self,
            wrong_tokens=self.log,
            edges=(ViolationLog(), None),
            example=self._example(),
        )

    @property
    def position(self) -> int | None:
        """First token whose law given those before it is wrong."""
        by_token = variations(self.texts, self.law)
        return next((n for n, tv in enumerate(by_token) if tv > self.tolerance), None)

    @property
    def first_token_variation(self) -> float:
        return variations(self.texts, self.law)[0]

    def _example(self) -> Example:
        n = oddest(self.law, self.texts.law)
        where = f"with the models of {self.tables}"
        return Example(where, self.texts.text(n), float(self.texts.law[n]), float(self.law[n]))


def driven_text(
    session: Session, options: Options, merges: bool, deadline: float, seed: int
) -> DrivenText:
    """Law of the texts of a session.

    `Undrivable` also if the options' calls do not suffice, and after the deadline.
    """
    began, texts, tables = time.perf_counter(), session.texts, session.tables
    assert isinstance(tables, Tables)
    budget = Budget(options.max_calls, deadline)

    def run(tape: Tape) -> Hashable:
        assert isinstance(tape, SessionTape)
        return session.outcome(tape.heard)

    tree = SessionTree(run, options.driven_checks, tables.length, merges, budget, seed)
    tally, log = CheckTally(unseen_bias(options.driven_checks, options.power)), ViolationLog()

    def impossible(text: Text, leaf: Leaf) -> None:
        where = f" with {leaf.where}" if leaf.where else ""
        log_impossible(text, tables, f"{where}: probability {leaf.mass:.3g}", log)

    leaves = tally.outcomes(tree)
    law = law_of(leaves, texts, lambda outcome, _: log_failure(outcome, log), impossible)
    log.restarts(tally.restarting)
    return DrivenText(
        **asdict(found_law(law, texts.law, options, tally)),
        tables=tables,
        texts=texts,
        law=law,
        num_merged=tree.num_merged,
        seconds=time.perf_counter() - began,
        log=log,
    )
