"""Audits of functions that verify a chain of drafts: one line instead of an adapter.

Audits of chains in batches: rows of different laws and lengths, each judged by its own law.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import numpy as np

from mdsd_opt.auditing.chain_calls import (
    LIBRARIES,
    READ_CALLS,
    READ_TOKENS,
    Caller,
    chain_of,
    chain_rule,
    read_rows,
    reading,
)
from mdsd_opt.auditing.findings import Findings
from mdsd_opt.auditing.laws import WideLaws, fixed_laws, given_laws, standard_laws, wide_laws
from mdsd_opt.auditing.on_laws import CALLS, WIDE_CALLS, OnTrees
from mdsd_opt.auditing.pace import outcomes, settled
from mdsd_opt.auditing.portfolio import PortfolioReport, Tried
from mdsd_opt.auditing.randomness import served
from mdsd_opt.auditing.seen_texts import pair_check
from mdsd_opt.auditing.subject import (
    DraftChain,
    Failure,
    Unread,
    ViolationLog,
    answered,
    outcome_of,
)
from mdsd_opt.auditing.tree_rule import ChainRule, TreeAuditReport, TreeSample
from mdsd_opt.base.arrays import Text
from mdsd_opt.base.checked import Rng, check_function, checked_integer, generator_of, is_among
from mdsd_opt.base.foreign import foreign
from mdsd_opt.drafts import WithReplacement
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.evidence import (
    AuditOptions,
    OptionKeywords,
    Options,
    Promise,
    Promises,
    budgeted,
    options_of,
    row_promises,
)

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
    batch = _ChainRows(caller, laws, num_drafts, options, rng, promises)
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


class _ChainRows:
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


TAKES = ("probabilities", "logits", "log_probabilities")

_MOST_DRAFTS = 16


@foreign("the function under audit")
def audit_chain(
    verify: Callable[..., Any],
    rng: Rng = 0,
    *,
    takes: str = "probabilities",
    batch: bool | int = False,
    library: str | None = None,
    num_drafts: int = 2,
    laws: tuple[Any, Any] | None = None,
    vocab_sizes: Sequence[int] | None = None,
    promise: Promise | Sequence[Promise | None] | None = None,
    draft_promise: Promise | Sequence[Promise | None] | None = None,
    options: AuditOptions = AuditOptions(),  # noqa: B008  # it is frozen
    **keywords: Unpack[OptionKeywords],
) -> PortfolioReport:
    r"""Decide whether a function that verifies a chain of drafts is lossless, on laws of all kinds.

    The law of the whole text counts, see `mdsd_opt.audit_tree`: accepted drafts and one more token,
    completed by the target. Small laws are driven through chosen random numbers and so exact; wide
    ones (V = 32, and 2,048 with a long tail) are sampled, so that a function that is right has "no
    deviation", and the report says which bias could have stayed hidden. It says on which laws it
    was tried, how often drafts were accepted and refused at each level, and whether answers depend
    on earlier calls.

    Parameters
    ----------
    verify : callable
        ``verify(p, q, drafts)`` with p of shape (n + 1, V), q (n, V), drafts (n,). It may draw from
        PyTorch, `random` or `numpy.random`, which the audit answers, or take an argument ``rng``.
        Its answer may be the tokens (accepted drafts and one more; ids below zero are padding), how
        many were accepted and the last token, the accepted drafts and the last token, or tokens
        padded by whatever it is and how many drafts were accepted, or how many tokens there are,
        before them or behind: the form that fits all of 64 calls is taken, and told; if none does,
        nothing is judged.
    rng : numpy.random.Generator or int, optional
        Generator, or its seed, 0 by default.
    takes : str
        "probabilities", "logits" or "log_probabilities"; impossible tokens have -inf.
    batch : bool or int
        Whether a leading axis of one is expected: p of shape (1, n + 1, V), drafts (1, n). A number
        B of two or more: calls have B rows, each with laws of its own, p of shape (B, n + 1, V) and
        so on. Rows have different numbers of drafts, padded with -1, and their laws are NaN behind
        the last one; each row is judged by its own law, and must not depend on the next one.
    library : str, optional
        "numpy" (float64) or "torch" (float32). Else arrays are NumPy's, and PyTorch's where the
        first call raises with these and not with tensors, which the report says.
    num_drafts : int
        n.
    laws : tuple of two array_like, shape (..., V), optional
        Logits of target and draft to audit on, instead of laws of all kinds: consecutive rows are
        the places of a text, V is 262,144 at most.
    vocab_sizes : sequence of int, optional
        Instead of the wide laws, one with a long tail of each size.
    promise : Sampling or callable, optional
        What the function itself makes of the laws that it is given, which stay as the models give
        them. Temperature and filters of a `Sampling` hold for both sides, and drafts are drawn from
        the draft's law under it. A callable ``(text, logits) -> law`` holds for the target:
        penalties, a grammar, logit biases, least lengths. Of row i it is given the text
        ``drafts[:i]``, a tuple without any prompt, and the logarithms of p's row, shape (V,), -inf
        where p is zero; it returns the probabilities that the token in place i is to follow, shape
        (V,). Laws on which it leaves no token are left out. With ``batch=B``, a list of B promises
        is one for each row, as of greedy and sampled requests together: None promises nothing.
    draft_promise : Sampling or callable, optional
        The same for the draft: its laws under it are those that drafts are drawn from.
    options : AuditOptions
        Its budgets are, for each law that is sampled, 20,000 calls, 14,000 of a wide one or of a
        batch, 21,000 of one with a long tail, fewer above 4,096 tokens; 65 checks of each tuple of
        drafts, and 64 probes of edges. Where all calls would take minutes, and no limit of time
        is given, it is 20 seconds, in which faults are looked for first; it is for all laws
        together. The method "driven" is the same as "auto": what cannot be driven is
        sampled.
    **keywords
        The same by their names, such as ``num_trials=2_000``.

    Returns
    -------
    PortfolioReport

    Raises
    ------
    InvalidInput
        The function fails on every call, or its answers cannot be read.
    """
    for value, name, known in ((takes, "takes", TAKES), (library, "library", LIBRARIES)):
        if not is_among(value, known):
            raise UnknownName.among(name, value, known)
    check_function(
        "a callable (p, q, drafts) -> tokens; audit_portfolio takes a verifier, audit_tree a rule "
        "for trees",
        verify=verify,
    )
    num_drafts = checked_integer(num_drafts, "num_drafts", most=_MOST_DRAFTS)
    asked = options_of(options, keywords)
    own = {"num_trials": CALLS, "edge_probes": 64, "driven_checks": 65}
    settings = budgeted(asked, rng, **own)
    rng, by_row = generator_of(rng), row_promises(promise, draft_promise)
    promises = by_row[0]
    if not isinstance(batch, (bool, int, np.integer)):
        raise InvalidInput(f"batch is {batch!r}: give True, False or a number of rows")
    if not isinstance(batch, bool) and batch != 1:
        if (laws, vocab_sizes) != (None, None):
            raise InvalidInput(
                "laws and vocab_sizes go with one chain at a time: rows of a batch have laws of "
                "their own"
            )
        caller, wanted = Caller(verify, takes, library, rng), asked.num_trials or WIDE_CALLS
        try:
            return audit_rows(caller, batch, num_drafts, settings, rng, wanted, by_row)
        except Unread as unread:
            return _unread(unread, caller, num_drafts, settings)
    if len(by_row) > 1:
        raise InvalidInput("a promise for each row goes with batch=B, for B rows")
    caller = Caller(verify, takes, library, rng, bool(batch))
    own_laws = None if laws is None else given_laws(laws, num_drafts + 1)
    read_at = READ_TOKENS if own_laws is None else own_laws[0].vocab_size
    try:
        rule = chain_rule("verify", caller, num_drafts, rng, read_at)
    except Unread as unread:
        return _unread(unread, caller, num_drafts, settings)
    small = standard_laws(1) if own_laws is None else []
    wide = wide_laws(num_drafts + 1, vocab_sizes) if own_laws is None else own_laws
    on_chains = OnTrees(
        rule, WithReplacement, settings, asked.num_trials,
        tree=chain_of(num_drafts), promises=promises, kind=ChainRule,
    )  # fmt: skip
    return on_chains.report(small, wide, rng, tuple(caller.notes))


def _unread(unread: Unread, caller: Caller, num_drafts: int, settings: Options) -> PortfolioReport:
    """Report that nothing can be judged, as answers have several forms."""
    began, laws, log = time.perf_counter(), standard_laws(1)[0], ViolationLog()
    log.add("not tokens", (), str(unread))
    tree, models = chain_of(num_drafts), (laws.target, laws.draft)
    rule = ChainRule(lambda root, rng: (), *models, tree, WithReplacement, settings)
    report = rule.report(Findings(options=settings, num_trials=READ_CALLS, wrong_tokens=log), 0.0)
    one = Tried.of(laws, f"{num_drafts} drafts", report)
    return PortfolioReport.of([one], began, tuple(caller.notes))
