"""Audit of a function that drafts by itself, by the law of the texts it writes with toy models."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Unpack

import numpy as np

from mdsd_opt.auditing.causes import broken_side
from mdsd_opt.auditing.chain_calls import LIBRARIES, parameters_of
from mdsd_opt.auditing.checks import Hidden, Sight
from mdsd_opt.auditing.driving import Undrivable
from mdsd_opt.auditing.findings import Findings, together
from mdsd_opt.auditing.laws import PlaceLaws, WideLaws, drawn_from, given_laws, wide_laws
from mdsd_opt.auditing.pace import outcomes, settled
from mdsd_opt.auditing.randomness import served
from mdsd_opt.auditing.replay import Replay
from mdsd_opt.auditing.seen_texts import ByPlace, Numbered, Seen, by_place
from mdsd_opt.auditing.subject import HOPELESS_CALLS, ViolationLog, check_arguments
from mdsd_opt.auditing.texts.driven_law import DrivenText, driven_text
from mdsd_opt.auditing.texts.session import (
    AnyTables,
    Generate,
    Rounds,
    Session,
    Tables,
    counted,
    log_failure,
    log_impossible,
)
from mdsd_opt.auditing.texts.text_report import (
    After,
    TextAuditReport,
    Trial,
    position_checks,
    split_by_event,
    variations,
)
from mdsd_opt.base.checked import Rng, check_function, generator_of
from mdsd_opt.base.foreign import foreign
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.evidence import (
    CLEAN,
    EDGE,
    LOSSY,
    NOT_DRIVEN,
    NOT_JUDGED,
    RESTART,
    AuditOptions,
    Check,
    Example,
    Interval,
    NoTokenLeft,
    OptionKeywords,
    Options,
    Promise,
    Promises,
    Report,
    both_sides,
    budgeted,
    changes_with_text,
    leaves_one_token,
    options_of,
    pointed,
    promised,
    shared,
    worst_class,
)

#: Least and greatest length of the sampled texts at V = 3.
_LONG, _LONGEST = 5, 11

#: Tokens of the beginnings of texts, one of each range: a promise may change after any of them.
_BEGUN = ((1, 4), (5, 8), (9, 12), (13, 16))

#: Most different texts of a law that is driven.
_MAX_DRIVEN = 100

#: Number of different texts that are written repeatedly, and number of calls for it.
_REPEATED, _REPEATED_CALLS = 16, 2_048

#: Vocabulary sizes of the wide laws.
_WIDE_SIZES = (2_048,)

#: Texts that show what came before a token whose driven law is wrong.
_TELLING_TEXTS = 1_000


@foreign("the function under audit")
def audit_text(
    generate: Generate,
    rng: Rng = 0,
    length: int = 3,
    library: str = "numpy",
    *,
    laws: tuple[Any, Any] | None = None,
    vocab_sizes: Sequence[int] | None = None,
    promise: Promise | None = None,
    num_texts: int | None = None,
    options: AuditOptions = AuditOptions(),  # noqa: B008  # it is frozen
    **keywords: Unpack[OptionKeywords],
) -> TextAuditReport:
    r"""Decide whether a function that drafts, verifies and keeps state by itself is lossless.

    It is given two models, and writes the beginning of a text: in one step or in a session of
    many. What is missing of `length` tokens is completed by the target; lossless means that the law
    of all of them is the target's,

    .. math:: \sum_y \Pr(y) \prod_{i > |y|} p(t_i \mid t_{<i}) = \prod_i p(t_i \mid t_{<i})

    over the outputs y that a text t begins with. A session can be wrong where each decision is
    right: random numbers used again at the next step, drafts that end where their last token is
    unlikely, caches that keep refused tokens, a seed that is set anew in every call.

    Parameters
    ----------
    generate : callable
        ``(target, draft) -> tokens``: at least one token of a text, from the empty one on, as a
        list, an array or a tensor. If it has an argument `text`, it is handed the tokens that the
        text begins with, which are none but under a `promise` that is a callable. Random numbers
        may come from `numpy.random`, `random`, PyTorch, or from generators that it makes, see
        `mdsd_opt.auditing.served`. The models are tables of random laws. With
        ``library="numpy"``: ``model(ids) -> logits`` of shape (len(ids) + 1, V), of what follows
        each beginning of the text, the empty one included. With ``library="torch"``: modules,
        ``model(ids) -> output`` with ``output.logits`` of shape (1, n, V) for ids of shape (1, n),
        where a first token of id 0, which is not returned, stands before the text;
        ``past_key_values`` (or ``cache``, as transformers 5.24 calls it) is taken, as tuples or as
        an object with `update` and `crop`, and handed back.
    rng : numpy.random.Generator or int, optional
        Generator, or its seed, 0 by default.
    length : int
        Tokens that are compared, 1 to 11. Up to four are driven; sampled are five or more.
    library : str
        "numpy" or "torch".
    laws : tuple of two array_like, shape (..., V), optional
        Logits of target and draft, instead of the wide laws: consecutive rows are the places of a
        text, whatever came before; V is 262,144 at most.
    vocab_sizes : sequence of int, optional
        One wide law with a long tail of each size, instead of one of 2,048 tokens.
    promise : Sampling or callable, optional
        What the function itself makes of the target's logits, as in `mdsd_opt.audit_chain`: its
        texts are to follow the target's law under the promise. A callable is given the `text` and
        the tokens that are returned, without the first token of id 0 that PyTorch's models read.
    num_texts : int, optional
        Texts that are sampled of each pair of models, another name of `num_trials`.
    options : AuditOptions
        Its budgets are 21,000 texts, and 500 checks of each driven law; there is no limit of time
        unless one is given. With the method "driven", the law on small vocabularies is found by
        calling the function at chosen random numbers, exact up to the random checks that the report
        counts (what cannot be driven is sampled, and a note says why); "auto" does that, and
        samples wide vocabularies.
    **keywords
        The same by their names, such as ``method="sampling"``.

    Returns
    -------
    TextAuditReport
        Report, "not judged" if calls raise, or return no tokens.

    Raises
    ------
    InvalidInput
        An option is out of range.

    Notes
    -----
    What is said of accepted and refused drafts is read off the questions to the models. Positions
    are not looked at: a wrong ``position_ids`` shows nothing.
    """
    check_function("a callable (target, draft) -> tokens", generate=generate)
    check_arguments(generate, "target, draft", "text", "generate")
    if length not in range(1, _LONGEST + 1):
        raise InvalidInput(f"length is {length!r}: give an integer from 1 to {_LONGEST}")
    if library not in LIBRARIES:
        raise UnknownName.among("library", library, LIBRARIES)
    asked = options_of(options, {"num_trials": num_texts, **keywords})
    settings = budgeted(asked, rng, num_trials=21_000, driven_checks=500)
    length, promises = int(length), both_sides(promise)
    if laws is not None:
        wide = given_laws(laws, length)
    else:
        wide = wide_laws(length, _WIDE_SIZES if vocab_sizes is None else vocab_sizes)
    audit = _TextAudit(generate, generator_of(rng), length, library, settings, promises)
    return audit.report(wide)


def _long_tables(length: int) -> Tables:
    """Tables of texts long enough to show faults that come late."""
    return Tables(3, max(length, _LONG), 36)


def _fixed_tables(length: int, promise: Promise | None) -> list[Tables]:
    """Fixed laws over four tokens, which are driven, or sampled if nothing can be.

    Each has tables of its own where texts follow one path, on which no other law would be met.
    """
    is_one_path = length == 1 or leaves_one_token(promise)
    turns: list[tuple[int, ...]] = [(0,), (1,), (2,)] if is_one_path else [(0, 1, 2)]
    return [Tables(4, min(length, 2), 0, fixed=turn) for turn in turns]


def _driven_tables(length: int, promise: Promise | None) -> Iterator[Tables]:
    """Small tables with all that can go wrong: residuals of several tokens, ties, zeros."""
    every = (
        Tables(2, length, 6),
        *_fixed_tables(length, promise),
        Tables(3, length, 26, memory=1, zeros=True),
        Tables(2, length, 56, memory=1),
    )
    return (tables for tables in every if tables.vocab_size**length <= _MAX_DRIVEN)


#: Number of calls that show whether the audit is ever asked for a random number.
_WATCHED = 20

#: p-value below which a position is named, once the law is known to be wrong.
_NAMED = 1e-3


class Sample:
    """Texts of a session, completed by the target, and results of its calls.

    Logged are impossible texts and calls that gave none, in which case there are no checks. The
    `position` is that of the first token whose law given those before it seems wrong; `events` are
    kinds of tokens, see `Rounds.events`.
    """

    method, num_checks = "sampling", 0

    def __init__(self, session: Session) -> None:
        self._session, self.tables = session, session.tables
        self.written: Numbered | ByPlace
        if isinstance(session.target, PlaceLaws):
            draft = PlaceLaws(self.tables.draft, self.tables.length)
            self.written = by_place(session.target, draft)
        else:
            self.written = Numbered(session.texts)
        self.events: list[list[str]] = []
        self.num_calls, self.seconds = 0, 0.0
        self.log = ViolationLog()
        self.notes: tuple[str, ...] = ()
        self.seen: Seen | None = None
        self.checks: tuple[Check, ...] = ()
        self.position: int | None = None

    @property
    def is_hopeless(self) -> bool:
        return self.log.num_failed == self.num_calls

    @property
    def distance(self) -> float:
        return 0.0 if self.seen is None else self.seen.distance

    @property
    def points_to(self) -> str:
        """What the texts point to, be it by chance; empty where to nothing."""
        return pointed(self.checks, self.interval)

    @property
    def interval(self) -> Interval | None:
        return None if self.seen is None else self.seen.interval

    @property
    def first_token_variation(self) -> float:
        """Total variation of the first token's law, as observed."""
        if isinstance(self.written, Numbered):
            return variations(self.written.texts, self.written.law)[0]
        return 0.0 if self.seen is None else self.seen.first

    def example(self) -> Example:
        one = self.written.example(0 if self.seen is None else self.seen.place)
        return replace(one, where=f"{one.where} with the models of {self.tables}".strip())

    def split(self, position: int) -> tuple[After, ...]:
        """Parts of a deviation at a position, by the kind of the token before it."""
        written = self.written
        if isinstance(written, ByPlace):
            return ()
        return split_by_event(written.texts, written.numbers, self.events, position)

    def checked(self, rng: np.random.Generator, options: Options, deadline: float) -> Sample:
        """The sample, drawn up to the number of the options, and looked at."""
        self.draw(options.num_trials, rng, deadline)
        written = self.written
        if isinstance(written, ByPlace):
            self.seen = written.examined(rng, options.confidence)
            self.checks = () if self.log.num_failed else self.seen.checks
            self.position = self.seen.place if self.seen.interval.low > 0 else None
        elif written.size and not self.log.num_failed:
            each = position_checks(written.texts, written.numbers, rng)
            self.seen = written.examined(rng, options.confidence)
            self.checks = (*self.seen.checks, *each)
            odd = (n for n, check in enumerate(each) if check.p_value < _NAMED)
            self.position = next(odd, None)
        return self

    def _rounds(self, number: int) -> Iterator[Rounds]:
        """Rounds of the calls that are left, up to this number, unless all are failures."""
        while self.num_calls < number and (
            self.log.num_failed < max(self.num_calls, HOPELESS_CALLS)
        ):
            yield Rounds()

    def draw(self, number: int, rng: np.random.Generator, deadline: float) -> None:
        """Call until there are enough texts, or time is up, or all calls are failures."""
        began, is_served = time.perf_counter(), False
        met: set[Hashable] = set()
        with served(rng) as serving:

            def call(rounds: Rounds, _: np.random.Generator) -> Hashable:
                nonlocal is_served
                if self.num_calls >= _WATCHED:
                    return self._session.outcome(rounds.hear)
                before = serving.progress
                outcome = self._session.outcome(rounds.hear)
                is_served |= serving.progress != before
                met.add(outcome)
                return outcome

            made = serving, deadline, self.num_calls
            for rounds, outcome in outcomes(self._rounds(number), call, *made):
                self.num_calls += 1
                if not isinstance(outcome, tuple):
                    log_failure(outcome, self.log)
                elif self.written.add(outcome, rng):
                    self.events.append(rounds.events(outcome))
                else:
                    log_impossible(outcome, self.tables, "", self.log)
        if len(met) > 1 and not is_served:
            self.notes = (
                "the outcome varied although no draw was served: its random numbers come from "
                "where the audit does not reach",
            )
        self.seconds += time.perf_counter() - began
        self.log.restarts(serving.restarting)


#: A part of an audit, with what it shows.
Found = tuple[Sample | DrivenText, Findings]


def _accuses(found: Sequence[Found]) -> bool:
    """Whether any part shows a fault."""
    return any(one.verdict_class in (EDGE, LOSSY) for _, one in found)


@dataclass(slots=True, eq=False)
class _TextAudit:
    """Audit of one function, with the results so far."""

    generate: Generate
    rng: np.random.Generator
    length: int
    library: str
    options: Options
    promises: Promises
    samples: list[Sample] = field(default_factory=list)
    laws: list[DrivenText] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: dict[AnyTables, NoTokenLeft] = field(default_factory=dict)
    calls: int = 0
    deadline: float = math.inf
    is_cut: bool = False  # whether a sample had more calls to make when its time was up

    def report(self, wide: Sequence[WideLaws]) -> TextAuditReport:
        """Report on all pairs of models, of which those go on that point to something."""
        began, self.deadline = time.perf_counter(), self.options.deadline()

        def look(options: Options) -> list[TextAuditReport]:
            self.options = options
            open_ones = [sample for sample in self.samples if sample.points_to]
            if not (self.samples or self.laws):
                self._try(wide)
            for sample in open_ones:
                sample.checked(self.rng, options, self.deadline)
            return [self._summary(began)]

        return settled(look, self.options, self.deadline)[0]

    def _try(self, wide: Sequence[WideLaws]) -> None:
        options = self.options
        drives, samples = options.method != "sampling", options.method != "driven"
        small = list(_driven_tables(self.length, self.promises[0])) if drives else []
        if drives and not small:
            self.notes.append(
                f"{NOT_DRIVEN}: there are more than {_MAX_DRIVEN} texts of {self.length} tokens"
            )
        with progress_bar("pairs of models", len(small) + 2, options.progress) as advance:
            if samples:
                self._sample(_long_tables(self.length), 2)
                advance(1)
            replay = self._repeated()
            if replay.differing:
                small = []  # what it was told before cannot be foretold
            if not any(sample.is_hopeless for sample in self.samples):
                self._drive(small, advance)
                known = {law.tables for law in self.laws} | set(self.left_out)
                fixed = _fixed_tables(self.length, self.promises[0])
                rest: list[AnyTables] = [tables for tables in fixed if tables not in known]
                if not rest:
                    rest += [tables for tables in small if tables not in known][:1]
                rest += self._begun() if samples else []
                rest += wide if samples else ()
                for n, tables in enumerate(rest):
                    is_late = self.samples and time.perf_counter() > self.deadline
                    if not (self._is_wrong or is_late):
                        self._sample(tables, len(rest) - n)
                if not self.laws and not self.samples:
                    self._sample(_long_tables(self.length))
        if not self.laws and not self.samples:
            raise next(iter(self.left_out.values()))
        self.notes += [f"left out ({t}): {error}" for t, error in self.left_out.items()]
        self.notes += replay.note_after(self.deadline)
        if self.is_cut or time.perf_counter() > self.deadline:
            self.notes.append(options.up("not everything was tried"))

    def _begun(self) -> Iterator[Tables]:
        """Tables of texts that begin with tokens drawn as promised, where both can be."""
        if not changes_with_text(self.promises[0]) or "text" not in parameters_of(self.generate):
            return
        tables, promise = _long_tables(self.length), self.promises[0]
        assert promise is not None
        for least, most in _BEGUN:
            begin: tuple[int, ...] = ()
            with suppress(NoTokenLeft):
                for _ in range(self.rng.integers(least, most + 1)):
                    law = promised(promise, begin, tables.target(begin[-1:]))
                    begin = (*begin, drawn_from(law.cumsum(), self.rng))
            yield replace(tables, begin=begin)

    @property
    def longest_text(self) -> int | None:
        """Tokens of the longest text that was tried where a promise may change with it."""
        if not changes_with_text(self.promises[0]):
            return None
        tried: list[AnyTables] = [law.tables for law in self.laws]
        tried += [sample.tables for sample in self.samples]
        return max((len(one.begin) + one.length for one in tried), default=1)

    def _repeated(self) -> Replay:
        """Repeated calls for some texts, with the same random numbers."""
        session = self._session(_long_tables(self.length))

        def case(rng: np.random.Generator) -> Hashable:
            self.calls += 1
            return session.outcome(lambda model, text: None)

        replay = Replay([case] * _REPEATED, lambda: self.calls, int(self.rng.integers(2**31)))
        replay.run(_REPEATED_CALLS, shared(self.deadline, 4))
        return replay

    def _found(self) -> list[Found]:
        """What each driven law shows, and all samples together, with the oddest of these."""
        found: list[Found] = [(law, law.findings(self.options)) for law in self.laws]
        if self.samples:
            odd = min(self.samples, key=lambda one: self.options.combined(one.checks))
            findings = Findings(
                options=self.options,
                num_trials=sum(sample.num_calls for sample in self.samples),
                checks=[check for sample in self.samples for check in sample.checks],
                distance=(odd.distance, odd.interval),
                wrong_tokens=ViolationLog.joined(sample.log for sample in self.samples),
                example=odd.example(),
            )
            found.append((odd, findings))
        return found

    @property
    def _is_wrong(self) -> bool:
        return _accuses(self._found())

    def _session(self, tables: AnyTables, shown: tuple[bool, bool] = (False, False)) -> Session:
        return Session(self.generate, tables, self.library, self.promises, shown)

    def _sample(self, tables: AnyTables, parts: int = 1) -> None:
        """Sample texts in one of so many parts of the time that is left."""
        try:
            sample = Sample(self._session(tables))
            deadline = shared(self.deadline, parts)
            self.samples.append(sample.checked(self.rng, self.options, deadline))
            self.is_cut |= time.perf_counter() > deadline
        except NoTokenLeft as error:
            self.left_out[tables] = error

    def _drive(self, small: Sequence[Tables], advance: Callable[[int], None]) -> None:
        """Drive laws on small vocabularies, one after the other, up to the first that is wrong."""
        for tables in small:
            if time.perf_counter() > self.deadline:
                return
            try:
                self.laws.append(self._driven(tables))
            except NoTokenLeft as error:
                self.left_out[tables] = error
                continue
            except Undrivable as error:
                self.notes.append(f"{NOT_DRIVEN} at V = {tables.vocab_size}: {error.reason}")
            advance(1)
            if self._is_wrong or not self.laws:
                return

    def _driven(self, tables: Tables) -> DrivenText:
        """Law of the texts on some tables; a wrong one is driven again without merging."""
        seed = int(self.rng.integers(2**31))
        known = partial(driven_text, self._session(tables), deadline=self.deadline, seed=seed)
        law, more = known(self.options, tables.vocab_size > 2), self.options
        if law.num_merged and not law.fits:
            law = known(more, False)
        with suppress(Undrivable):
            while law.is_doubtful and (options := more.settling(law.distance, law.unseen)):
                more, law = options, known(options, False)
        return law

    def _broken_side(self, tables: AnyTables) -> str:
        if isinstance(tables, WideLaws) and not isinstance(self.promises[0], Sampling):
            return ""  # laws of so many texts are too many to keep

        def is_right(applied: tuple[bool, bool]) -> bool:
            if time.perf_counter() > self.deadline:
                return False
            sample = Sample(self._session(tables, applied))
            sample.checked(self.rng, self.options, self.deadline)
            fits = self.options.combined(sample.checks) >= self.options.false_alarm
            fits &= time.perf_counter() <= self.deadline
            return fits and not sample.log.count

        return broken_side(is_right, self.promises)

    def _summary(self, began: float) -> TextAuditReport:
        """Report, with distances of the law that shows the largest."""
        every = self._found()
        is_wrong = _accuses(every)
        reports = [one.report(Report, **self._hidden_of(one)) for _, one in every]
        kind = worst_class(one.verdict_class for one in reports)

        def telling_most(n: int) -> tuple[bool, bool, int, float]:
            part, findings = every[n]
            length = 0 if is_wrong else part.tables.length
            is_worst = kind in CLEAN or findings.verdict_class == kind
            return is_worst, findings.law is not None, length, part.distance

        worst = max(range(len(every)), key=telling_most)
        shown, samples = every[worst][0], list(self.samples)
        telling = shown
        if isinstance(shown, DrivenText) and (is_wrong or not samples):
            telling = Sample(self._session(shown.tables))
            telling.draw(_TELLING_TEXTS, self.rng, self.deadline)
            samples.append(telling)
        position = shown.position if is_wrong else None
        split: tuple[After, ...] = ()
        if position is not None and isinstance(telling, Sample):
            split = telling.split(position)
        wrong = [violation for one in reports for violation in one.violations]
        reasons = list(dict.fromkeys(one.message for one in wrong if one.kind == RESTART))
        if kind == LOSSY and (side := self._broken_side(shown.tables)):
            reasons.append(side)
        served = [note for sample in self.samples[:1] for note in sample.notes]
        is_open = kind not in (LOSSY, NOT_JUDGED)
        facts = together(reports, reports[worst]) | {
            "verdict_class": kind,
            "points_to": next((x.points_to for x in reports if is_open and x.points_to), ""),
            "first_token_variation": shown.first_token_variation,
            "longest_text": self.longest_text,
            "p_value": next((x.p_value for x in reports if x.checks), None),
            "checks": tuple(check for one in reports for check in one.checks),
            "violations": tuple(one for one in wrong if one.kind != RESTART),
            "num_violations": sum(one.num_violations for one in reports),
            "notes": (*served, *self.notes),
        }
        return TextAuditReport(
            vocab_size=shown.tables.vocab_size,
            length=shown.tables.length,
            position=position,
            after=split,
            causes=tuple(reasons),
            tried=tuple(Trial.of(part) for part in (*self.laws, *self.samples)),
            met=counted([event for sample in samples for event in sample.events]),
            seconds=time.perf_counter() - began,
            **facts,
        )

    def _hidden_of(self, findings: Findings) -> dict[str, Any]:
        """What all samples together could have missed; of a law that is in its findings."""
        if findings.law is not None:
            return {}
        options, level = self.options, self.options.level(findings.checks)
        sights = [Sight(0, 0) if one.seen is None else one.seen.sight for one in self.samples]
        return Hidden.largest([x.hidden(level, options.power) for x in sights])._asdict()
