"""Audits of chains in batches: rows of different laws and lengths, each judged by its own law."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd_opt.auditing.chain_calls import (
    READ_CALLS,
    READINGS,
    Caller,
    Tokens,
    chain_of,
    is_read,
)
from mdsd_opt.auditing.on_laws import WIDE_CALLS, put_together
from mdsd_opt.auditing.portfolio import PortfolioReport, Tried
from mdsd_opt.auditing.randomness.interception import served
from mdsd_opt.auditing.settings import LEAST_CALLS, Options
from mdsd_opt.auditing.subject import (
    AlwaysFails,
    Failure,
    answered,
    outcome_of,
)
from mdsd_opt.auditing.trees.rule import TreeRule, TreeSample
from mdsd_opt.auditing.trial_laws import WideLaws
from mdsd_opt.drafts import WithReplacement
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.trees.draft_tree import Node

#: Vocabulary size of the laws, and the most rows of a batch.
_VOCAB_SIZE, _MOST_ROWS = 16, 64

#: Splits the answer of a batch into answers for each row.
Split = Callable[[Any, int], Sequence[Any]]


def audit_rows(
    caller: Caller, num_rows: int, num_drafts: int, options: Options, rng: np.random.Generator
) -> PortfolioReport:
    """Audit of a function that verifies a batch of chains, see `mdsd_opt.audit_chain`.

    Raises
    ------
    InvalidInput
        The number of rows is out of range, or the function fails on every call.
    """
    if not 2 <= num_rows <= _MOST_ROWS:
        raise InvalidInput(f"batch is {num_rows!r}: give True, or 2 to {_MOST_ROWS} rows")
    began, deadline = time.perf_counter(), options.deadline()
    options = replace(options, false_alarm=options.false_alarm / num_rows)
    laws = [_laws(row, num_drafts + 1) for row in range(num_rows)]
    batch = _Batch(caller, laws, num_drafts, options, rng)
    batch.learn_to_read(rng)
    wanted = min(options.num_trials, WIDE_CALLS)
    made = batch.sample(wanted, rng, deadline)
    tried = [
        Tried.of(row, f"1 to {num_drafts} drafts", part.report(rng))
        for row, part in zip(laws, batch.parts, strict=True)
    ]
    notes = [f"rows have 1 to {num_drafts} drafts, padded with -1, and NaN behind their ends"]
    notes += [options.up(f"{made:,} of {wanted:,} calls were made")] * (made < wanted)
    return put_together(tried, began, notes=tuple(notes))


def _laws(row: int, length: int) -> WideLaws:
    rng = np.random.default_rng([row, length, _VOCAB_SIZE])
    rows = rng.dirichlet(np.full(_VOCAB_SIZE, (1.0, 0.3, 5.0)[row % 3]), (length, 2))
    return WideLaws(f"row {row + 1}", list(rows[:, 0]), list(rows[:, 1]), length)


class _Batch:
    """Batches of chains, as the function takes them, and the results of each row."""

    def __init__(
        self,
        caller: Caller,
        laws: Sequence[WideLaws],
        num_drafts: int,
        options: Options,
        rng: np.random.Generator,
    ) -> None:
        self._caller, self._num_drafts = caller, num_drafts
        tree = chain_of(num_drafts)
        self.rules = [
            TreeRule.of(
                partial(self._of_row, n), row.target, row.draft, tree, WithReplacement, options,
                by_place=True,
            )
            for n, row in enumerate(laws)
        ]  # fmt: skip
        self.parts = [TreeSample(rule) for rule in self.rules]
        self._read: Callable[[Any, Sequence[Tokens]], list[Tokens]] | None = None

    def _drawn(self, rng: np.random.Generator) -> list[Node]:
        """Draw a chain for each row, of its own length."""
        roots = [rule.drawn(rng) for rule in self.rules]
        for root, depth in zip(roots, self._lengths(rng), strict=True):
            _cut(root, depth)
        return roots

    def _lengths(self, rng: np.random.Generator) -> Iterator[int]:
        return iter(rng.integers(1, self._num_drafts + 1, len(self.parts)).tolist())

    def _answer(self, roots: Sequence[Node]) -> Any:
        """Answer of the function to these rows, with NaN after the end of each."""
        size, n = self.rules[0].target.vocab_size, self._num_drafts
        p = np.full((len(roots), n + 1, size), np.nan)
        q = np.full((len(roots), n, size), np.nan)
        drafts = np.full((len(roots), n), -1, dtype=np.int64)
        for row, root in enumerate(roots):
            for place, node in enumerate(root.walk()):
                p[row, place] = node.target
                if node.drafts is not None:
                    q[row, place] = node.drafts.models[0].values
                    drafts[row, place] = int(node.draws[0])
        return self._caller.on_arrays(p, q, drafts)

    def learn_to_read(self, rng: np.random.Generator) -> None:
        """Choose the reading of the answers that fits most rows of some calls."""
        answers = []
        failure: Failure | None = None
        with served(rng) as serving:
            for _ in range(READ_CALLS):
                roots = self._drawn(rng)
                self._caller.rng = rng
                kept: list[Any] = []
                outcome = outcome_of(lambda r=roots, k=kept: k.append(self._answer(r)))  # type: ignore[misc]
                if isinstance(outcome, Failure):
                    failure = outcome
                else:
                    answers.append((kept[0], [_drafts(root) for root in roots]))
                serving.check()
        if not answers:
            assert failure is not None
            raise AlwaysFails(
                failure, "It is called with (p [B, n + 1, V], q [B, n, V], drafts [B, n])."
            )
        size, rows = self.rules[0].target.vocab_size, len(self.parts)
        best, self._read = 0, None
        for split in (_by_row, _by_part):
            for read in READINGS:
                fits = sum(
                    is_read(read, row, drafts, size)
                    for answer, chains in answers
                    for row, drafts in zip(_split(split, answer, rows), chains, strict=False)
                )
                if fits > best:
                    best, self._read = fits, partial(_rows_read, split, read, rows)
        if self._read is None:
            raise InvalidInput(
                f"verify gave {answers[0][0]!r} for {rows} rows: return for each row its tokens, "
                "padded with -1, or two arrays (accepted, last token)"
            )

    def sample(self, number: int, rng: np.random.Generator, deadline: float) -> int:
        """Make calls while there is time, count the results of each row, and return the number."""
        with served(rng) as serving:
            for n in range(number):
                if n >= LEAST_CALLS and time.perf_counter() > deadline:
                    return n
                roots = self._drawn(rng)
                with serving.call():
                    outcomes = self._outcomes(roots, rng)
                if n == 0:
                    serving.check()
                for part, root, outcome in zip(self.parts, roots, outcomes, strict=True):
                    part.count(root, outcome, rng)
        return number

    def _outcomes(self, roots: Sequence[Node], rng: np.random.Generator) -> list[Any]:
        self._caller.rng = rng
        assert self._read is not None
        read = self._read
        rows: Any = outcome_of(
            lambda: tuple(read(self._answer(roots), [_drafts(root) for root in roots]))
        )
        if isinstance(rows, Failure):
            return [rows] * len(roots)
        size = self.rules[0].target.vocab_size
        return [
            outcome_of(partial(answered, lambda *_, given=given: given, root, rng, size))
            for given, root in zip(rows, roots, strict=True)
        ]

    def _of_row(self, row: int, root: Node, rng: np.random.Generator) -> Any:
        """Answer for one row, beside others that are drawn anew."""
        roots = self._drawn(rng)
        roots[row] = root
        self._caller.rng = rng
        assert self._read is not None
        return self._read(self._answer(roots), [_drafts(one) for one in roots])[row]


def _cut(root: Node, depth: int) -> None:
    """Remove the drafts below a depth."""
    for node in root.walk():
        if node.depth == depth:
            node.children, node.drafts = {}, None


def _drafts(root: Node) -> Tokens:
    return root.walk()[-1].tokens


def _by_row(answer: Any, rows: int) -> Sequence[Any]:
    return [answer[n] for n in range(rows)]


def _by_part(answer: Any, rows: int) -> Sequence[Any]:
    return [tuple(part[n] for part in answer) for n in range(rows)]


def _split(split: Split, answer: Any, rows: int) -> Sequence[Any]:
    try:
        return split(answer, rows)
    except (TypeError, IndexError, KeyError):
        return []


def _rows_read(
    split: Split,
    read: Callable[[Any, Tokens], Sequence[int]],
    rows: int,
    answer: Any,
    chains: Sequence[Tokens],
) -> list[Tokens]:
    return [
        tuple(read(row, drafts)) for row, drafts in zip(split(answer, rows), chains, strict=True)
    ]
