"""Texts that a function wrote with one pair of models, and checks of them."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from dataclasses import replace

import numpy as np

from mdsd_opt.auditing.laws import PlaceLaws
from mdsd_opt.auditing.pace import outcomes
from mdsd_opt.auditing.randomness.interception import served
from mdsd_opt.auditing.seen_texts import ByPlace, Numbered, Seen, by_place
from mdsd_opt.auditing.subject import HOPELESS_CALLS, ViolationLog
from mdsd_opt.auditing.texts.report import After, position_checks, split_by_event, variations
from mdsd_opt.auditing.texts.session import Rounds, Session, log_failure, log_impossible
from mdsd_opt.evidence import Check, Example, Interval, Options, pointed

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
