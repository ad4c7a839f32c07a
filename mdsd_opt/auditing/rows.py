"""Audits of chains in batches: rows of different laws and lengths, each judged by its own law."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mdsd_opt.auditing.chain_calls import READ_CALLS, Caller, chain_of, read_rows, reading
from mdsd_opt.auditing.draft_chain import DraftChain
from mdsd_opt.auditing.looks import settled
from mdsd_opt.auditing.pace import outcomes
from mdsd_opt.auditing.portfolio import PortfolioReport, Tried
from mdsd_opt.auditing.randomness.interception import served
from mdsd_opt.auditing.seen_texts import pair_check
from mdsd_opt.auditing.subject import Failure, answered, outcome_of
from mdsd_opt.auditing.tree_rules.report import TreeAuditReport
from mdsd_opt.auditing.tree_rules.rule import ChainRule, TreeSample
from mdsd_opt.auditing.trial_laws import WideLaws, fixed_laws
from mdsd_opt.base.array_types import Text
from mdsd_opt.drafts import WithReplacement
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import Options, Promises

#: Kinds of calls, of eight; the others have rows of laws and lengths of their own.
_NONE, _ALL, _OF_ONE_LAW = range(3)

#: Vocabulary size of the laws, and the most rows of a batch.
_VOCAB_SIZE, _MOST_ROWS = 16, 64


def audit_rows(
    caller: Caller,
    num_rows: int,
    num_drafts: int,
    options: Options,
    rng: np.random.Generator,
    wanted: int,
    promises: Sequence[Promises],
) -> PortfolioReport:
    """Audit by `wanted` calls of a function for batches of chains, see `mdsd_opt.audit_chain`.

    There is one pair of promises for all rows, or one for each.
    """
    if not 2 <= num_rows <= _MOST_ROWS:
        raise InvalidInput(f"batch is {num_rows!r}: give True, or 2 to {_MOST_ROWS} rows")
    if len(promises) not in (1, num_rows):
        raise InvalidInput(f"there are {len(promises)} promises and {num_rows} rows: give one each")
    began, deadline = time.perf_counter(), options.deadline()
    options = replace(options, false_alarm=options.false_alarm / num_rows)
    laws = [_laws(row, num_drafts + 1) for row in range(num_rows)]
    batch = _Batch(caller, laws, num_drafts, options, rng, promises)
    calls = 0

    def look(options: Options) -> list[TreeAuditReport]:
        nonlocal calls
        calls += batch.sample(options.num_trials - calls, rng, deadline)
        return batch.reports(options, rng)

    reports = settled(look, replace(options, num_trials=wanted), deadline)
    tried = [
        Tried.of(row, f"0 to {num_drafts} drafts", report)
        for row, report in zip(laws, reports, strict=True)
    ]
    one_row = f"not tried, as it {batch.refusal}" if batch.refusal else "in others"
    alike = f"all have {num_drafts}" + ("" if len(promises) > 1 else ", or all have one law")
    notes = [
        f"rows have 0 to {num_drafts} drafts, padded with -1, and NaN behind their ends; in some "
        f"calls none has drafts, {alike}; one row: {one_row}"
    ]
    if calls < wanted:
        notes.append(options.up(f"{calls:,} of {wanted:,} calls were made"))
    return PortfolioReport.of(tried, began, (*caller.notes, *notes))


def _laws(row: int, length: int) -> WideLaws:
    rng = np.random.default_rng([row, length, _VOCAB_SIZE])
    rows = rng.dirichlet(np.full(_VOCAB_SIZE, (1.0, 0.3, 5.0)[row % 3]), (length, 2))
    if row % 2:  # those that random ones never are
        fixed = fixed_laws(_VOCAB_SIZE)
        turns = [fixed[(row // 2 + place) % len(fixed)] for place in range(length)]
        rows = np.array([(laws.target(()), laws.draft(())) for laws in turns])
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
        promises: Sequence[Promises],
    ) -> None:
        self._caller, self._num_drafts = caller, num_drafts
        tree = chain_of(num_drafts)
        self.rules = [
            ChainRule(
                partial(self._of_row, n), row.target, row.draft, tree, WithReplacement, options,
                promises[n % len(promises)], by_place=True,
            )
            for n, row in enumerate(laws)
        ]  # fmt: skip
        self.parts = [TreeSample(rule, rng) for rule in self.rules]
        self._firsts: list[list[int]] = []  # tokens of all rows of a call
        self._size = laws[0].vocab_size
        # rows that keep promises of their own stay in their places
        self._in_place = len(promises) > 1
        self._read = self._reading(rng)
        #: What a call of one row did, if it failed.
        self.refusal = "has a promise of its own" if self._in_place else self._refusal(rng)

    def _drawn(self, rng: np.random.Generator) -> tuple[list[int], list[DraftChain]]:
        """Draw a chain for each row, of its own length, and the number of its law.

        One call in eight each: rows without drafts, with all of them, of one law.
        """
        rows, kind = list(range(len(self.rules))), int(rng.integers(8))
        if kind == _OF_ONE_LAW and not self._in_place:
            rows = [int(rng.integers(len(rows)))] * len(rows)
        chains = [self.rules[row].drawn(rng) for row in rows]
        lengths = rng.integers(0, self._num_drafts + 1, len(chains))
        if kind in (_NONE, _ALL):
            lengths[:] = 0 if kind == _NONE else self._num_drafts
        cut = zip(chains, lengths.tolist(), strict=True)
        return rows, [chain.cut(length) for chain, length in cut]

    def _refusal(self, rng: np.random.Generator) -> str:
        with served(rng):
            calls = (self._drawn(rng)[1][:1] for _ in range(READ_CALLS))
            answers = [outcome_of(partial(self._rows, chains, rng)) for chains in calls]
        return next((answer.message for answer in answers if isinstance(answer, Failure)), "")

    def _answer(self, chains: Sequence[DraftChain]) -> Any:
        """Answer of the function to these rows, with NaN after the end of each."""
        size, n = self._size, self._num_drafts
        p = np.full((len(chains), n + 1, size), np.nan)
        q = np.full((len(chains), n, size), np.nan)
        drafts = np.full((len(chains), n), -1, dtype=np.int64)
        for row, chain in enumerate(chains):
            for rows, known in ((p, chain.p), (q, chain.q), (drafts, chain.drawn)):
                rows[row, : len(known)] = known
        return self._caller.on_arrays(p, q, drafts)

    def _reading(self, rng: np.random.Generator) -> Callable[[Any, Sequence[Text]], list[Text]]:
        def drawn() -> tuple[Callable[[], Any], list[Text]]:
            _, chains = self._drawn(rng)
            self._caller.rng = rng
            return partial(self._answer, chains), [chain.drawn for chain in chains]

        how = "It is called with (p [B, n + 1, V], q [B, n, V], drafts [B, n])."

        def wrong(rows: list[Text]) -> str:
            return (
                f"{len(rows)} rows: return for each row its tokens, padded with -1, or two arrays "
                "(accepted, last token)"
            )

        ways = reading(drawn, [_by_row, _by_part], self._size, self._caller, rng, how, wrong)
        return partial(read_rows, *ways)

    def sample(self, number: int, rng: np.random.Generator, deadline: float) -> int:
        """Make calls while there is time, count the results of each row, and return the number."""
        with served(rng) as serving:
            drawn = (self._drawn_or_alone(rng) for _ in range(number))
            calls = 0
            call = lambda one, served_rng: self._outcomes(one[1], served_rng)  # noqa: E731
            for (rows, chains), each in outcomes(drawn, call, serving, deadline):
                calls += 1
                for row, chain, outcome in zip(rows, chains, each, strict=True):
                    self.parts[row].count(chain, outcome)
                if rows == [*range(len(self.parts))] and Failure not in map(type, each):
                    self._firsts.append([tokens[0] for tokens in each])
        return calls

    def _drawn_or_alone(self, rng: np.random.Generator) -> tuple[list[int], list[DraftChain]]:
        """Rows and their chains; one of them alone in one call of eight, if that is taken."""
        rows, chains = self._drawn(rng)
        if self.refusal or rng.integers(8):
            return rows, chains
        alone = int(rng.integers(len(rows)))
        return rows[alone : alone + 1], chains[alone : alone + 1]

    def reports(self, options: Options, rng: np.random.Generator) -> list[TreeAuditReport]:
        """Report of each row, and whether its first token depends on that of the next one."""
        tokens, reports = np.array(self._firsts, dtype=np.int64).reshape(-1, len(self.parts)), []
        laws = [rule.target(()) for rule in self.rules]
        possible = tokens[(np.take_along_axis(np.array(laws), tokens.T, 1) > 0).all(axis=0)].T
        for row, part in enumerate(self.parts):
            both = [row, (row + 1) % len(laws)]
            words = f"rows {both[0] + 1} and {both[1] + 1}", "rows that depend on each other"
            check = pair_check([laws[n] for n in both], possible[both], *words, rng)
            reports.append(part.report(options, checks=[check]))
        return reports

    def _rows(self, chains: Sequence[DraftChain], rng: np.random.Generator) -> tuple[Text, ...]:
        self._caller.rng = rng
        return tuple(self._read(self._answer(chains), [chain.drawn for chain in chains]))

    def _outcomes(self, chains: Sequence[DraftChain], rng: np.random.Generator) -> list[Any]:
        rows: Any = outcome_of(partial(self._rows, chains, rng))
        if isinstance(rows, Failure):
            return [rows] * len(chains)
        return [
            outcome_of(partial(answered, lambda *_, answer=answer: answer, chain, rng, self._size))
            for answer, chain in zip(rows, chains, strict=True)
        ]

    def _of_row(self, row: int, chain: DraftChain, rng: np.random.Generator) -> Text:
        """Answer for one row, beside others that are drawn anew."""
        _, chains = self._drawn(rng)
        chains[row] = chain
        return self._rows(chains, rng)[row]


def _by_row(answer: Any, rows: int) -> Sequence[Any]:
    return [answer[n] for n in range(rows)]


def _by_part(answer: Any, rows: int) -> Sequence[Any]:
    return [tuple(part[n] for part in answer) for n in range(rows)]
